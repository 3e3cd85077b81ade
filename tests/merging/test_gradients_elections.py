"""Derivatives where merges elect signs: elections that turn are part of the slope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from merge_slopes import (
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

from mergekit_map.merging import gradients
from mergekit_map.merging.in_memory import ResidentMerge


@pytest.fixture(scope="module")
def distant(make_model: Callable[..., Path]) -> dict[str, Path]:
    return distant_family(make_model)


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


def with_elections_fixed(
    merge: ResidentMerge, coefficients: Mapping[str, float]
) -> dict[str, float]:
    """Differentiate with mergekit's masks as they are at the coefficients.

    For coefficients that are the weights of the models, in their order.
    """
    merge.write(coefficients)
    merge.model.requires_grad_(True)
    loss(merge.model, TOKENS).backward()
    found = dict.fromkeys(coefficients, 0.0)
    weights = torch.tensor(list(coefficients.values()), dtype=torch.float64)
    for name, parameter in merge.model.named_parameters():
        deltas = merge.replays[name].deltas
        weighted = deltas * weights.view(-1, *[1] * parameter.dim())
        kept = weighted.sign() == torch.where(weighted.sum(0) >= 0, 1, -1)
        for coefficient, delta in zip(found, deltas * kept, strict=True):
            found[coefficient] += float((delta * parameter.grad).sum())
    merge.model.requires_grad_(False)
    merge.model.zero_grad()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ties", "della"])
def test_in_a_box_without_an_election_that_turns_the_elected_signs_are_fixed(
    method: str, distant: dict[str, Path]
) -> None:
    box = (0.3, 0.3 + 2e-6)
    with opened(config(method, distant, "xyz"), box) as (merge, space):
        coefficients = dict(zip("xyz", (0.3, 0.3 + 4e-7, 0.3 + 1e-6), strict=True))
        expected = with_elections_fixed(merge, coefficients)

        found = derivatives(merge, space, coefficients)

        assert found == pytest.approx(expected, rel=1e-5)
        assert found == pytest.approx(differences(merge, coefficients, 1e-7), rel=1e-4)


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


def test_elections_held_fixed_would_miss_much_of_the_slope(elected: Opened) -> None:
    merge, space = elected
    coefficients = {"p": 0.5, "q": 0.6}
    expected = differences(merge, coefficients, gradients._STEP)
    fixed = with_elections_fixed(merge, coefficients)

    found = derivatives(merge, space, coefficients)

    for name, slope in expected.items():
        assert abs(found[name] - slope) < 0.05 * abs(fixed[name] - slope)


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
