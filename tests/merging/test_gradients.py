"""Derivatives by the coefficients, against differences of the loss itself.

Where merges elect signs, elections that turn are part of the slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from merge_slopes import (
    BATCHES,
    TOKENS,
    Opened,
    config,
    derivatives,
    differences,
    distant_family,
    loss,
    norms_in_the_dtype_of_the_model,
    opened,
)
from transformers import PreTrainedModel

from mergekit_map.errors import MergeError
from mergekit_map.merging import gradients
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.replay import TaskVectorReplay
from mergekit_map.types import Differentiate


@pytest.fixture(scope="module")
def distant(make_model: Callable[..., Path]) -> dict[str, Path]:
    return distant_family(make_model)


@pytest.fixture(scope="module")
def added(distant: dict[str, Path]) -> Iterator[Opened]:
    with opened(config("task_arithmetic", distant)) as merge:
        yield merge


@pytest.fixture(scope="module")
def close(make_model: Callable[..., Path], distant: dict[str, Path]) -> dict[str, Path]:
    """A family so close that its losses are nearly linear in what the merge changes."""
    base = distant["base"]
    tuned = {n: make_model(n, 75 + i, base, noise=0.001) for i, n in enumerate("pqr")}
    return {"base": base, **tuned}


@pytest.fixture(scope="module")
def elected(close: dict[str, Path]) -> Iterator[Opened]:
    with opened(config("ties", close, "pq")) as merge:
        yield merge


@pytest.fixture(autouse=True)
def _float64(monkeypatch: pytest.MonkeyPatch) -> None:
    norms_in_the_dtype_of_the_model(monkeypatch)


def test_linear_merges_have_the_derivatives_of_their_loss(added: Opened) -> None:
    merge, space = added
    for point in [(0.3, 0.8), (0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.5)]:
        coefficients = dict(zip("xy", point, strict=True))
        expected = differences(merge, coefficients, 1e-4)

        found = derivatives(merge, space, coefficients)

        assert found == pytest.approx(expected, rel=1e-6)
        assert min(map(abs, found.values())) > 0.1


FILTERED = [{"filter": "mlp", "value": "mlp"}, {"value": 0.25}]


@pytest.mark.parametrize(
    ("method", "weights", "parameters"),
    [
        ("dare_linear", [None, None], {"lambda": 0.7}),
        # The weight of y is 1 minus that of x.
        ("dare_linear", [None, None], {"normalize": True}),
        ("dare_linear", [None, None, 0.4], {"normalize": True, "lambda": 1.3}),
        ("dare_linear", [None, None, 0.4], {"rescale": True}),
        ("task_arithmetic", [FILTERED, ["early", 0.3, "late"], 0.2], {}),
    ],
)
def test_shared_parameters_layer_gradients_filters_and_fixed_weights(
    method: str,
    weights: list[Any],
    parameters: dict[str, Any],
    distant: dict[str, Path],
) -> None:
    names = "xyz"[: len(weights)]
    merge_config = config(method, distant, names, parameters=parameters)
    for model, weight in zip(merge_config["models"], weights, strict=True):
        if weight is not None:
            model["parameters"]["weight"] = weight
    with opened(merge_config) as (merge, space):
        coefficients = dict(zip(space.names, (0.7, 0.2, 0.9), strict=False))
        expected = differences(merge, coefficients, 1e-4)

        found = derivatives(merge, space, coefficients)

    assert found == pytest.approx(expected, rel=1e-5)


def test_tied_embeddings_count_at_both_ends(make_model: Callable[..., Path]) -> None:
    base = make_model("tied-distant", 80, tied=True, noise=0.1)
    tuned = make_model("t", 81, base, tied=True, noise=0.05)
    merge_config = config("task_arithmetic", {"base": base, "t": tuned}, "t")
    with opened(merge_config) as (merge, space):
        assert "lm_head.weight" not in merge.replays
        expected = differences(merge, {"t": 0.4}, 1e-4)

        found = derivatives(merge, space, {"t": 0.4})

    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "dtype", "tolerance"),
    [
        ("task_arithmetic", torch.float32, 1e-5),
        ("task_arithmetic", torch.bfloat16, 0.05),
        ("ties", torch.float32, 1e-4),
    ],
)
def test_merges_in_less_precision_have_nearly_the_derivatives_in_float64(
    method: str, dtype: torch.dtype, tolerance: float, make_model: Callable[..., Path]
) -> None:
    half = {"dtype": torch.bfloat16}
    base = make_model("distant16", 90, noise=0.1, **half)
    family = {n: make_model(n, ord(n), base, **half) for n in "vw"}
    found = {}
    for precision in (torch.float64, dtype):
        name = str(precision).removeprefix("torch.")
        merge_config = config(method, {**family, "base": base}, "vw", dtype=name)
        for model in merge_config["models"]:
            model["parameters"] = {}  # what ties cuts off depends on the dtype
        with opened(merge_config) as (merge, space):
            assert merge.model.dtype == precision
            # No simple ratio, in which task vectors in bfloat16 may cancel exactly.
            coefficients = {"v": 0.51234, "w": 0.74831}
            found[precision] = derivatives(merge, space, coefficients)

    scale = max(map(abs, found[torch.float64].values()))
    exact = pytest.approx(found[torch.float64], abs=tolerance * scale)
    assert found[dtype] == exact


def test_the_model_is_left_as_it_was(added: Opened) -> None:
    merge, space = added
    before = {k: v.clone() for k, v in merge.model.state_dict().items()}
    differentiate = differentiation(merge, space, checkpoint_activations=True)

    with pytest.raises(InterruptedError, match="here"):
        interrupted(differentiate, merge.model)

    for name, tensor in merge.model.state_dict(keep_vars=True).items():
        assert torch.equal(tensor, before[name])
        assert tensor.grad is None
        assert not tensor.requires_grad
        assert not tensor._post_accumulate_grad_hooks
    assert not any("forward" in vars(m) for m in merge.model.modules())


def interrupted(differentiate: Differentiate, model: PreTrainedModel) -> None:
    with differentiate():
        loss(model, TOKENS).backward()
        loss(model, TOKENS)
        raise InterruptedError("here")


def test_checkpointed_layers_are_computed_twice_and_give_the_same(
    make_model: Callable[..., Path],
) -> None:
    # Dropout, which would be at work in training mode.
    dropout = {"attention_dropout": 0.5, "noise": 0.1}
    base = make_model("dropout", 100, **dropout)
    tuned = make_model("d", 101, base, **dropout)
    merge_config = config("task_arithmetic", {"base": base, "d": tuned}, "d")
    with opened(merge_config) as (merge, space):
        calls = []
        attention = merge.model.model.layers[0].self_attn
        attention.register_forward_hook(lambda *_: calls.append(1))

        kept = derivatives(merge, space, {"d": 0.4})
        assert len(calls) == len(BATCHES)
        again = derivatives(merge, space, {"d": 0.4}, checkpoint=True)

    assert len(calls) == 3 * len(BATCHES)
    assert again == kept


def test_refuses_methods_that_do_not_add_up_task_vectors(
    distant: dict[str, Path],
) -> None:
    merge_config = config("task_arithmetic", distant, merge_method="linear")
    del merge_config["base_model"]
    with (
        opened(merge_config) as (merge, space),
        pytest.raises(MergeError, match="weight is not a sum of weighted task vectors"),
    ):
        differentiation(merge, space, checkpoint_activations=False)


def test_refuses_to_checkpoint_layers_that_are_not_known(
    added: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "GradientCheckpointingLayer", TaskVectorReplay)

    with pytest.raises(MergeError, match=r"Llama.* has no layers .*can checkpoint"):
        differentiation(*added, checkpoint_activations=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "parameters"),
    [("ties", {}), ("dare_ties", {"normalize": True, "lambda": 0.5})],
)
def test_elections_that_turn_are_part_of_the_slope(
    method: str, parameters: dict[str, Any], close: dict[str, Path]
) -> None:
    merge_config = config(method, close, "pqr", parameters=parameters)
    merge_config["models"][2]["parameters"]["weight"] = 0.4
    with opened(merge_config) as (merge, space):
        coefficients = {"p": 0.5, "q": 0.6}
        step = gradients._STEP
        expected = differences(merge, coefficients, step)

        found = derivatives(merge, space, coefficients)

    scale = max(map(abs, expected.values()))
    assert found == pytest.approx(expected, abs=0.02 * scale)


@pytest.mark.parametrize("corner", [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.5)])
def test_slopes_at_the_edges_of_the_box_are_those_from_inside(
    corner: tuple[float, float], elected: Opened
) -> None:
    merge, space = elected
    coefficients = dict(zip("pq", corner, strict=True))
    expected = differences(merge, coefficients, gradients._STEP)

    found = derivatives(merge, space, coefficients)

    scale = max(map(abs, expected.values()))
    assert found == pytest.approx(expected, abs=0.02 * scale)
