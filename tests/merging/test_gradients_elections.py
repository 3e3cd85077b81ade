"""Derivatives where merges elect signs: elections that turn are part of the slope."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from merge_slopes import (
    Opened,
    config,
    derivatives,
    differences,
    distant_family,
    norms_in_the_dtype_of_the_model,
    opened,
)

from mergekit_map.merging import gradients


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
