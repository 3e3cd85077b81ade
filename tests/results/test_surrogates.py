"""Surrogates are fitted again from front and log: to the same bits, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import IDEAL, LOSS, bowls, changed, line, logged, make_study, run
from quick_fronts import fronts_of_few_points
from surrogate_data import IDENTITY, fit, noisy_data, unit

from mergekit_map.results import surrogates
from mergekit_map.results.surrogates import fit_again, fit_all, locate, merge_at
from mergekit_map.search.finish import found_front
from mergekit_map.types import Measurement, Metric

X = np.random.default_rng(0).uniform(size=(40, 2))


def of_two(merge: Mapping[str, float], task: str) -> Measurement:
    return bowls({name: merge[name] for name in "ab"}, task)


def searched(names: str = "ab", **spec: Any) -> Any:
    """Return study, result, front and log of a search of bowls."""
    study = make_study(names, list(IDEAL), ("base", "soup"), remeasure=2, **spec)
    with fronts_of_few_points(30):
        result = run(study, Path(), of_two)
    log = list({e.key: e for e in logged()}.values())
    return result, found_front(study, result, log), log


@pytest.mark.parametrize(
    "spec",
    [
        {"evaluations": 16},
        {"evaluations": 12, "refine": False, "surrogate": "quadratic"},
        {"evaluations": 8, "strategy": "bayesian", "surrogate": "residual_gp"},
    ],
)
def test_the_fit_of_a_finished_log_is_bit_for_bit_that_of_the_search(
    spec: dict[str, Any],
) -> None:
    result, front, log = searched(**spec)
    # What only judges a search is not fitted.
    rivals = [changed(e, role="opponent", value=9.0, foretold=None) for e in log]

    found = fit_again(front, [*log, *rivals])

    assert found.keys() == result.surrogates.keys()
    for task, surrogate in found.items():
        expected = result.surrogates[task]
        assert surrogate.quality == expected.quality
        np.testing.assert_array_equal(surrogate.predict(X), expected.predict(X))
        np.testing.assert_array_equal(surrogate.stderr(X), expected.stderr(X))
    assert fit_again(front, log[:2]) == {}


def test_groups_of_nested_map_are_fitted_on_the_weights_of_groups() -> None:
    result, front, log = searched("abc", strategy="nested", evaluations=10)

    found = fit_again(front, log)

    for task, surrogate in found.items():
        expected = result.surrogates[task].predict(X)
        np.testing.assert_allclose(surrogate.predict(X), expected, rtol=1e-6)
    merges = [merge_at(front, row) for row in X]
    again = locate(merges, front.coefficients, front.groups, front.axis_bounds)
    np.testing.assert_allclose(again, X, atol=1e-12)


# What line i of a log is changed to: a value beyond numbers, the same as all others,
# and measured at nearly the same place.
BENT: list[Callable[[int], dict[str, Any]]] = [
    lambda i: {"value": (-1) ** i * 1e50},
    lambda _: {"value": 0.0, "stderr": 0.0},
    lambda i: {"coefficients": {"a": 1e-12 * i, "b": 0.5}},
]


@pytest.mark.parametrize("bend", BENT)
def test_a_log_that_nobody_measured_still_predicts_numbers(
    bend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, front, log = searched(evaluations=12)
    monkeypatch.setattr(surrogates, "_agree_with_front", lambda *_: True)

    found = fit_again(front, [changed(e, **bend(i)) for i, e in enumerate(log)])
    assert found.keys() == {*IDEAL}
    for surrogate in found.values():
        for numbers in (surrogate.predict(X), surrogate.stderr(X)):
            assert np.isfinite(numbers).all()


def test_the_choice_of_documents_is_no_part_of_the_noise_beside_it() -> None:
    noise, (places, y) = {"stderr": 0.5, "sampling": 0.4}, noisy_data(IDENTITY)
    values = zip(places.tolist(), y.tolist(), strict=True)
    lines = [line(dict(zip("ab", x, strict=True)), "t", v, **noise) for x, v in values]

    found = fit_all({"t": LOSS}, unit(2), "auto", places, lines)["t"]

    apart = {"stderr": np.full(14, 0.3), "sampling": np.full(14, 0.4)}
    expected = fit(places, y, kind="auto", **apart)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)
    np.testing.assert_allclose(found.stderr(X), expected.stderr(X), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 3e-6])  # all and some of them
def test_values_too_near_to_a_bound_for_the_link_are_predicted(scale: float) -> None:
    places, y = noisy_data(IDENTITY)
    values = scale * (y - y.min())
    merges = zip(places.tolist(), values.tolist(), strict=True)
    lines = [line(dict(zip("ab", x, strict=True)), "t", v) for x, v in merges]

    found = fit_all({"t": Metric(False, 0.0, None)}, unit(2), "auto", places, lines)

    assert np.abs(found["t"].predict(places) - values).max() < 0.1 * np.ptp(values)
