"""Merging in slices against mergekit's own methods, bit by bit."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from mergekit.merge_methods.generalized_task_arithmetic import ConsensusMethod
from torch import Tensor

from mergekit_map.merging import replay as replays
from mergekit_map.merging.kernels import UNIT, Kernel
from mergekit_map.merging.methods import recording
from mergekit_map.merging.replay import (
    Replay,
    TaskVectorReplay,
    in_slices,
    orders_agree,
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ELECTIONS = [None, ConsensusMethod.sum, ConsensusMethod.count]

# Around the least size that is sliced, units, vectors, and what torch gives a thread.
SHAPES = [(8 * UNIT - 1,), (8 * UNIT,), (8 * UNIT + 31,), (127, 129), (33, 20, 50)]
SHAPES += [(40 * UNIT + 65,), (2, 17 * UNIT - 1)]


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


def random_replay(
    n: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    elect: ConsensusMethod | None = None,
    normalize: bool = False,
    scale: float = 1,
) -> TaskVectorReplay:
    return TaskVectorReplay(
        models=tuple(range(n)),
        base=wide(shape, dtype, 99).clone(),
        deltas=torch.stack([wide(shape, dtype, seed) for seed in range(n)]),
        elect_signs=elect,
        mask_dtype=dtype,
        normalize=normalize,
        scale=scale,
        plain=False,
    )


def some_weights(n: int, *, negative: bool) -> list[float]:
    weights = torch.rand(n, generator=torch.Generator().manual_seed(n)).tolist()
    if negative:
        # Weights that add up to nothing, for some of those that are kept.
        weights[1::2] = [-weight for weight in weights[: n // 2]]
    return weights


def written(replay: Replay, weights: list[float]) -> Tensor:
    assert not isinstance(replay, replays.MethodReplay)
    target = torch.empty_like(replay.base)
    replay.write(weights, target)
    return target


def assert_same_bits(one: Tensor, other: Tensor) -> None:
    # Bytes, so that a zero of the other sign is a difference.
    assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", range(1, 9))
def test_slices_have_the_bits_of_mergekits_operations(
    n: int, dtype: torch.dtype
) -> None:
    rules = list(itertools.product(ELECTIONS, (False, True), (1, -0.3)))
    assert len(rules) == 12
    for count, (elect, normalize, scale) in enumerate(rules, n):
        shape = SHAPES[count % len(SHAPES)]
        rule: dict[str, Any] = {"elect": elect, "normalize": normalize, "scale": scale}
        replay = random_replay(n, shape, dtype, **rule)
        sliced = in_slices(replay, some_weights(n, negative=False))
        assert sliced.plain == (shape != SHAPES[0])
        for negative in (False, True):
            weights = some_weights(n, negative=negative)
            assert_same_bits(written(sliced, weights), written(replay, weights))


@pytest.mark.parametrize("shape", SHAPES)
def test_slices_have_mergekits_bits_in_every_shape(shape: tuple[int, ...]) -> None:
    for n, count in ((3, 1), (4, 2), (5, 1), (8, 2), (8, 1)):
        with threads(count):
            assert orders_agree(n, torch.float32, torch.device("cpu"), count)
            replay = random_replay(n, shape, torch.float32)
            sliced = dataclasses.replace(replay, plain=True)
            weights = some_weights(n, negative=True)
            assert_same_bits(written(sliced, weights), written(replay, weights))


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["task_arithmetic", "ties"])
def test_a_recorded_tensor_is_written_as_mergekits_method_writes_it(
    name: str, dtype: torch.dtype, *, normalize: bool
) -> None:
    method, twin = merge_methods.get(name), merge_methods.get(f"map_{name}")
    for n, shape in ((1, SHAPES[2]), (4, SHAPES[3]), (8, (700, 65))):
        tensors = [wide(shape, dtype, seed) for seed in range(n + 1)]
        group = TensorGroup.from_tensors(tensors, base_index=0, name="tensor")
        same = dict.fromkeys(range(1, n + 1), 0.5)
        parameters: dict[str, Any] = {"normalize": normalize, "lambda": 1}
        parameters |= {"int8_mask": n == 4, "rescale": False, "density": same}
        found: dict[str, Replay] = {}
        with recording(found.__setitem__):
            twin.merge_group(group, **parameters, weight=same)
        assert found["tensor"].plain
        weights = some_weights(n, negative=True)
        by_model = dict(enumerate(weights, 1))
        stock = method.merge_group(group, **parameters, weight=by_model)
        assert_same_bits(written(found["tensor"], weights), stock)


def test_parts_are_written_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "_PART", 9 * UNIT)
    shape, weights = (40 * UNIT + 65,), some_weights(5, negative=True)
    replay = random_replay(5, shape, torch.bfloat16, elect=ConsensusMethod.sum)
    sliced = dataclasses.replace(replay, plain=True)
    target = torch.empty(shape, dtype=torch.bfloat16)

    for part in reversed(sliced.parts()):
        sliced.write_part(weights, target, part)

    assert len(sliced.parts()) == 4
    assert_same_bits(target, written(replay, weights))
    assert replay.parts() == [slice(0, shape[0])]


@pytest.mark.parametrize("elect", ELECTIONS)
@pytest.mark.parametrize("normalize", [True, False])
def test_deltas_are_merged_alike_whether_in_slices_or_not(
    elect: ConsensusMethod | None, *, normalize: bool
) -> None:
    replay = random_replay(4, (5000,), torch.float32, elect=elect, normalize=normalize)
    column = torch.tensor(some_weights(4, negative=False))[:, None]
    sliced = dataclasses.replace(replay, plain=True)

    one, other = (r.merge_deltas(replay.deltas, column) for r in (sliced, replay))

    torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_a_zero_weight_gives_the_base() -> None:
    base = torch.randn(9 * UNIT, generator=torch.Generator().manual_seed(0))
    replay = random_replay(2, tuple(base.shape), torch.float32)
    replay = dataclasses.replace(replay, base=base, elect_signs=ConsensusMethod.sum)

    for plain in (True, False):
        target = written(dataclasses.replace(replay, plain=plain), [0.0, 0.0])
        assert torch.equal(target, base)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_no_slices_where_something_may_overflow(value: float) -> None:
    replay = random_replay(3, (9 * UNIT,), torch.float32)
    assert in_slices(replay, [0.5] * 3).plain
    replay.deltas[1, 4000] = value

    assert not in_slices(replay, [0.5] * 3).plain


def test_weights_that_may_overflow_are_not_merged_in_slices() -> None:
    replay = random_replay(3, (9 * UNIT,), torch.float16, elect=ConsensusMethod.sum)
    sliced = dataclasses.replace(replay, plain=True)
    for weights in ([1000.0, -60000.0, 2.0], [float("inf"), 1.0, 1.0]):
        expected = written(replay, weights)
        assert not torch.isfinite(expected).all()
        assert_same_bits(written(sliced, weights), expected)


def test_another_type_is_not_merged_in_slices() -> None:
    replay = random_replay(3, (9 * UNIT,), torch.float32)
    double = dataclasses.replace(
        replay, base=replay.base.double(), deltas=replay.deltas.double()
    )

    assert not in_slices(double, [0.5] * 3).plain
    assert torch.isfinite(written(double, [0.5] * 3)).all()


@pytest.fixture
def _another_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let slices add up the rows from the last to the first."""
    forward = Kernel.__call__

    def backward(kernel: Kernel, deltas: Tensor) -> Tensor:
        turned = dataclasses.replace(kernel, weights=kernel.weights[::-1])
        return forward(turned, deltas.flip(0))

    orders_agree.cache_clear()
    monkeypatch.setattr(Kernel, "__call__", backward)
    yield
    orders_agree.cache_clear()


@pytest.mark.usefixtures("_another_order")
@pytest.mark.parametrize("dtype", DTYPES)
def test_where_torch_has_another_order_its_own_operations_are_used(
    dtype: torch.dtype,
) -> None:
    replay = random_replay(5, (40 * UNIT,), dtype)
    weights = some_weights(5, negative=True)

    assert not orders_agree(5, dtype, torch.device("cpu"), torch.get_num_threads())
    sliced = dataclasses.replace(replay, plain=True)  # as recorded elsewhere
    assert_same_bits(written(sliced, weights), written(replay, weights))
    assert not in_slices(replay, weights).plain


@pytest.mark.usefixtures("_another_order")
def test_a_tensor_is_merged_both_ways_when_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replays, "orders_agree", lambda *_: True)
    replay = random_replay(5, (70 * UNIT,), torch.float32)
    replay.deltas[:, UNIT : -5 * UNIT] = 0  # so that only the ends tell

    assert not in_slices(replay, some_weights(5, negative=True)).plain
    assert in_slices(replay, [0.0] * 5).plain


def test_many_rows_are_added_as_torch_does_it() -> None:
    # torch adds up parts of this many rows and more.
    device = torch.device("cpu")
    assert not orders_agree(20, torch.float32, device, torch.get_num_threads())
    replay = random_replay(20, (9 * UNIT,), torch.float32)
    weights = some_weights(20, negative=True)
    sliced = dataclasses.replace(replay, plain=True)

    assert_same_bits(written(sliced, weights), written(replay, weights))
