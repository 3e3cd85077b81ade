"""Tensors merged again against mergekit's own methods, bit by bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from test_in_memory import TASK_VECTOR_METHODS
from torch import Tensor

from mergekit_map.errors import EvaluationError
from mergekit_map.merging import replay as replays
from mergekit_map.merging.methods import recording
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
MORE = {"della": "epsilon", "della_linear": "epsilon"}
MORE |= {"breadcrumbs": "gamma", "breadcrumbs_ties": "gamma"}

# Blocks of four models begin at multiples of 2048.
UNIT, BLOCK = 1024, 8 * 1024
SIZES = [(1,), (UNIT - 1,), (UNIT + 1,), (2 * UNIT,), (3 * UNIT + 31,), (33, 20, 50)]
SIZES += [(127, 129), (40 * UNIT + 65,), (2, 17 * UNIT - 1)]
COUNTS = [1, 2, 3, 4, 5, 8, 20]  # models


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "_BLOCK", BLOCK)


@cache
def wide(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Draw numbers of many sizes, equal ones, opposite ones and zeros of both signs."""
    generator = torch.Generator().manual_seed(seed)
    least, most = (-20, 3) if dtype == torch.float16 else (-45, 16)
    size = torch.Size(shape).numel()
    exponents = torch.randint(least, most, (size,), generator=generator)
    numbers = torch.randn(size, generator=generator) * exponents.float().exp2()
    numbers[::5] = numbers[0]
    numbers[1::5] = -numbers[0]
    numbers[torch.rand(size, generator=generator) < 0.2] = 0
    numbers[torch.rand(size, generator=generator) < 0.1] = -0.0
    numbers[7::50] *= 1e-38 if dtype != torch.float16 else 2e-7  # without an exponent
    return numbers.to(dtype).reshape(shape)


def assert_written_as_by_mergekit(
    method: str, tensors: list[Tensor], weights: list[float], **more: Any
) -> None:
    """Record a tensor at other weights than it is merged with."""
    models = range(1, len(tensors))
    group = TensorGroup.from_tensors(tensors, base_index=0, name="tensor")
    parameters = {"normalize": False, "lambda": 1, "int8_mask": False, "rescale": False}
    parameters["density"] = dict.fromkeys(models, 0.5)
    if method in MORE:
        parameters[MORE[method]] = dict.fromkeys(models, 0.1)
    parameters |= more
    found: dict[str, Replay] = {}
    torch.manual_seed(3)
    with recording(found.__setitem__):
        merge_methods.get(f"map_{method}").merge_group(
            group, **parameters, weight=dict.fromkeys(models, 0.5)
        )
    torch.manual_seed(3)
    stock = merge_methods.get(method).merge_group(
        group, **parameters, weight=dict(zip(models, weights, strict=True))
    )
    replay = found["tensor"]
    assert isinstance(replay, TaskVectorReplay)
    target = torch.empty_like(stock)
    replay.write(weights, target)
    undefined = target.isnan()
    assert torch.equal(undefined, stock.isnan())
    bits = (t.masked_fill(undefined, 0).view(torch.uint8) for t in (target, stock))
    assert torch.equal(*bits)  # a zero of the other sign is a difference


def rules() -> Iterator[dict[str, Any]]:
    """Cycle through what the entries share."""
    return itertools.cycle(
        {"normalize": normalize, "lambda": scale, "rescale": rescale, "int8_mask": int8}
        for normalize, rescale in itertools.product((False, True), repeat=2)
        for scale, int8 in ((1, False), (-0.3, True))
    )


EVERY = [(method, 0.5, (2, 3, 5), SIZES[-3:]) for method in TASK_VECTOR_METHODS]
EVERY += [(method, 1, COUNTS, SIZES) for method in ("task_arithmetic", "ties")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("method", "density", "counts", "shapes"), EVERY)
def test_every_method_in_every_dtype_and_shape_has_mergekits_bits(
    method: str,
    density: float,
    counts: list[int],
    shapes: list[tuple[int, ...]],
    dtype: torch.dtype,
) -> None:
    cases = list(itertools.product(counts, shapes, (False, True)))
    for (n, shape, negative), rule in zip(cases, rules(), strict=False):
        tensors = [wide(shape, dtype, seed) for seed in range(n + 1)]
        weights = torch.rand(n, generator=torch.Generator().manual_seed(n)).tolist()
        if negative:
            # Weights that add up to nothing, for some of those that are kept.
            weights[1::2] = [-weight for weight in weights[: n // 2]]
        densities = {"density": dict.fromkeys(range(1, n + 1), density)}
        assert_written_as_by_mergekit(method, tensors, weights, **rule, **densities)


def cancelling(n: int, size: int, dtype: torch.dtype) -> Tensor:
    """Draw rows of which what is left depends on the order in which they are added."""
    generator = torch.Generator().manual_seed(n + size)
    exponents = torch.randint(-14, 5, (n, size), generator=generator)
    rows = torch.randn(n, size, generator=generator) * exponents.float().exp2()
    places = torch.rand(n, size, generator=generator).argsort(dim=0)[:4, None]
    for one, other in (places[:2], places[2:]):
        rows.scatter_(0, other, -rows.gather(0, one))
    return rows.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_models_are_added_in_mergekits_order(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensitive = 0
    overs = (0, 1, 9, 31, 32, 40, 63, 100, 127)
    ns = (4, 5, 7, 8, 15, 20)
    for n, over, block in itertools.product(ns, overs, (BLOCK, 10 * BLOCK)):
        monkeypatch.setattr(replays, "_BLOCK", block)
        deltas = cancelling(n, (2 * BLOCK + 2 * block) // n + over, dtype)
        base, target = torch.zeros_like(deltas[0]), torch.empty_like(deltas[0])
        replay = TaskVectorReplay(tuple(range(n)), base, deltas, False, False, 1)

        replay.write([1.0] * n, target)

        assert torch.equal(target, deltas.sum(dim=0))
        sensitive += int((sum(row.float() for row in deltas).to(dtype) != target).sum())
    assert sensitive > 0
    last_columns = cancelling(6, 13, dtype)
    assert torch.equal(replays._sum(last_columns), last_columns.sum(dim=0))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 6e4])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("method", ["task_arithmetic", "dare_ties"])
def test_what_overflows_overflows_as_mergekits_does(
    method: str, n: int, normalize: bool, value: float
) -> None:
    tensors = [wide((5 * UNIT,), torch.float16, seed).clone() for seed in range(n + 1)]
    tensors[1][::3], tensors[2][::2] = value, -value

    for weights in ([0.5, 0.5, 0.25], [1000.0, -6e4, 2.0], [float("inf"), 1.0, 1.0]):
        assert_written_as_by_mergekit(method, tensors, weights[:n], normalize=normalize)


def test_a_merge_that_a_method_cannot_make_is_a_measurement_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = Mock(side_effect=ValueError("the average is near zero"))
    monkeypatch.setattr(merge_methods, "get", lambda _: method)
    replay = MethodReplay("multislerp", TensorGroup(()), {"weight": {"a": 1.0}})

    with pytest.raises(EvaluationError, match="multislerp has no merge: the aver"):
        replay.write([1.0], torch.zeros(1))
