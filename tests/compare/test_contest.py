"""A search held against rivals on metrics whose answers are known; no models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import IDEAL, Recorder, bowls, changed, logged, make_study

from mergekit_map.compare.contest import (
    OURS,
    OURS_PAID,
    ComparisonSpec,
    Contest,
    MeasureMerges,
    Points,
    Searched,
    front_scores,
    own_merges,
    r_squared_scores,
    read_utilities,
    run_contest,
)
from mergekit_map.errors import EvaluationError
from mergekit_map.results.log import EvaluationLog, Role, open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.loop import run_study
from mergekit_map.search.measure import measure
from mergekit_map.search.planning import next_round
from mergekit_map.search.study import Evaluator, Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogate
from mergekit_map.types import Measurement


@pytest.fixture
def study() -> Study:
    plain = {"remeasure": 3, "surrogate": "quadratic", "refine": False}
    return make_study("ab", list(IDEAL), ("base",), evaluations=10, **plain)


def measuring(study: Study, log: EvaluationLog, evaluate: Evaluator) -> MeasureMerges:
    def measure_merges(role: Role, merges: Points) -> FloatArray:
        measure(study, [(role, merge) for merge in merges], evaluate, log)
        return read_utilities(study, log, merges)

    return measure_merges


def contested(study: Study, evaluate: Evaluator) -> Contest:
    """Measure a design, as a search does, and hold the true front against rivals."""
    # Merges on the line between the two points: no other dominates them.
    start, end = np.array(IDEAL["near_a"]), np.array(IDEAL["near_b"])
    front = [study.rounded(start + t * (end - start)) for t in np.linspace(0, 1, 60)]
    spec = ComparisonSpec(budget=12, opponents=("nsga2",))
    with open_log(RunFolder(Path())) as log:
        measure(study, next_round(study, [], []), evaluate, log)
        return run_contest(study, front, spec, log, measuring(study, log, evaluate))


def fitted(study: Study) -> dict[str, Surrogate]:
    return study.fit([e for e in logged() if e.role in {"anchor", "design"}])


def test_the_true_front_and_exact_surrogates_and_what_they_cost(study: Study) -> None:
    contest = contested(study, bowls)

    scores = front_scores(contest)

    r2 = r_squared_scores(study, contest, fitted(study))
    assert r2 == pytest.approx({"near_a": 1, "near_b": 1})
    assert scores[OURS].hypervolume == pytest.approx(1, abs=1e-3)
    assert scores["random"].hypervolume < 0.9
    assert scores["random"].win_rate > 0.5
    assert scores[OURS].gd == pytest.approx(0, abs=1e-12)
    assert scores["random"].gd > 0.01
    assert scores[OURS].evaluations == 10
    assert scores["nsga2"].evaluations == 12
    # The points of our front were measured to assess it.
    assert scores[OURS].points == 60
    paid = scores[OURS_PAID]
    assert paid.evaluations == 10
    assert paid.points <= 10
    assert paid.hypervolume < scores[OURS].hypervolume
    rival = scores["random"]
    assert rival.win_rate_paid != rival.win_rate


def test_surrogates_are_scored_on_merges_they_were_not_fitted_to(study: Study) -> None:
    X = np.array([[x, 0.0] for x in (0.1, 0.2, 0.3, 0.6, 0.9)])
    direct = Searched(X, -X[:, [0, 0]])  # of losses
    contest = Contest(direct.Y, Searched(X[:3], direct.Y[:3]), {"random": direct}, X)
    # Right where it was fitted, elsewhere always the same.
    learnt = SimpleNamespace(predict=lambda X: np.where(X[:, 0] < 0.5, X[:, 0], 0.75))
    surrogates: Any = dict.fromkeys(study.tasks, learnt)

    r2 = r_squared_scores(study, contest, surrogates)

    # The mean of 0.6 and 0.9 explains nothing of them.
    assert r2 == pytest.approx({"near_a": 0, "near_b": 0}, abs=1e-12)
    assert r_squared_scores(study, contest, {}) == {}


def test_scores_beside_a_front_of_one_point_have_no_unit() -> None:
    found = []
    for unit in (1.0, 1e4):
        X, Y = np.eye(3), unit * np.array([[3.0, 1.0], [2.0, 2.0], [4.0, 5.0]])
        all_merges = Searched(X, Y)
        contest = Contest(Y[:2], all_merges, {"random": all_merges}, Y[2:])
        score = front_scores(contest)[OURS]
        found.append((score.hypervolume, score.igd))

    assert found[1] == pytest.approx(found[0])
    assert 0 < found[0][0] < 1


def failing(count: int, above: float) -> Evaluator:
    """Fail after some measurements, where the first coefficient is large."""
    asked = Recorder(bowls)

    def evaluate(coefficients: Mapping[str, float], task: str) -> Measurement:
        value = asked(coefficients, task)
        if len(asked.calls) > count and coefficients["a"] > above:
            raise RuntimeError("out of memory")
        return value

    return evaluate


def test_what_fails_counts_for_nothing(study: Study) -> None:
    contest = contested(study, failing(20, 0.8))
    scores = front_scores(contest)

    assert np.isnan(contest.points).any()
    assert 0 < scores[OURS].points < 60
    assert scores["random"].evaluations == 12
    r2 = r_squared_scores(study, contest, fitted(study))
    assert r2 == pytest.approx({"near_a": 1, "near_b": 1})
    Path("evaluations.jsonl").unlink()
    with pytest.raises(EvaluationError, match=r"none of the \d+ points of the front"):
        contested(study, failing(20, -1))


def test_opponents_measure_as_many_merges_as_the_search_did(study: Study) -> None:
    with open_log(RunFolder(Path())) as log:
        run_study(study, bowls, log)
        own = own_merges(study, log)

        # Three points of the front, and what is chosen, which may be one of them.
        assert len(own) in {13, 14}
        contest = run_contest(
            study, own[:1], ComparisonSpec(), log, measuring(study, log, bowls)
        )
        measure(study, [("front", {"a": 0.3, "b": 0.1})], bowls, log)
        assert own_merges(study, log) == own
    assert {len(rival.X) for rival in contest.rivals.values()} == {len(own)}


def test_what_some_documents_say_is_no_measurement_of_a_contest(study: Study) -> None:
    with open_log(RunFolder(Path())) as log:
        measure(study, [("design", {"a": 0.3, "b": 0.1})], bowls, log)
        part = changed(next(iter(log)), n=5, sampling=0.0005)
        log.append(changed(part, coefficients={"a": 0.5, "b": 0.5}))

        Y = read_utilities(study, log, [{"a": 0.3, "b": 0.1}, {"a": 0.5, "b": 0.5}])

    assert np.isfinite(Y[0]).all()
    assert np.isnan(Y[1]).all()
