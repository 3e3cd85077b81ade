"""A front so far is the one that the search would have at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import IDEAL, bowls, make_study, run
from quick_fronts import fronts_of_few_points

from mergekit_map.results.log import read_log
from mergekit_map.search.partial_front import find_partial_front
from mergekit_map.search.study import Study

pytestmark = pytest.mark.usefixtures("_few_points")


@pytest.fixture
def _few_points() -> Iterator[None]:
    with fronts_of_few_points(30):
        yield


def study_of() -> Study:
    return make_study("ab", list(IDEAL), ("base", "soup"), evaluations=16, remeasure=2)


def test_of_a_whole_log_it_has_the_points_and_the_choice_of_the_end(
    tmp_path: Path,
) -> None:
    study = study_of()
    result = run(study, tmp_path, bowls)
    log = list(read_log(tmp_path / "evaluations.jsonl"))

    front, surrogates = find_partial_front(study, log, [study.select])

    assert surrogates is not None
    X = np.random.default_rng(0).uniform(size=(50, 2))
    for task, fitted in surrogates.values().items():
        np.testing.assert_array_equal(
            fitted.predict(X), result.surrogates[task].predict(X)
        )
    chosen = front.chosen.coefficients
    end = result.front[result.selected]
    assert chosen == pytest.approx(end, abs=1e-9)


def test_what_opponents_and_checkpoints_measured_is_no_part_of_it(
    tmp_path: Path,
) -> None:
    study = study_of()
    run(study, tmp_path, bowls)
    log = list(read_log(tmp_path / "evaluations.jsonl"))
    better = {"a": 0.55, "b": 0.45}
    others = [
        replace(e, coefficients=better, role="opponent", value=0.0) for e in log[:2]
    ]

    front, _ = find_partial_front(study, [*log, *others], [study.select])

    alone, _ = find_partial_front(study, log, [study.select])
    assert front.points == alone.points
    assert front.selected == alone.selected
