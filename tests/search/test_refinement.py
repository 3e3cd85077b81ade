"""Which merge is measured next, and when no more is, on predictions made up here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import IDEAL, LOSS, bowls, changed, line, make_study
from surrogate_data import fit

from mergekit_map.results.front import Border, Reading
from mergekit_map.results.log import Evaluation, Role
from mergekit_map.search.planning import (
    expected_gain,
    find_border,
    n_quiet_rounds,
    n_spent,
    refinement_round,
)
from mergekit_map.search.study import Candidate, StudyResult
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogate
from mergekit_map.types import Metric

# On the line between the two best merges each loss goes from 1 to 1 + this.
RANGE = 0.49 + 0.25
SCORE = Metric(higher_is_better=True, lower=None, upper=None)
BOX = np.array([[0.0, 1.0], [-0.5, 0.5]])


STUDY = make_study("ab", list(IDEAL), ("base",))


def known_within(stderr: float | Callable[[FloatArray], FloatArray]) -> Any:
    """Predict bowls, with an error that is a share of the range on the front."""

    def everywhere(X: FloatArray) -> FloatArray:
        return (stderr(X) if callable(stderr) else np.full(len(X), stderr)) * RANGE

    def predicted(task: str) -> Any:
        bowl_of_task = bowl(*IDEAL[task])
        return SimpleNamespace(predict=lambda X: 1 - bowl_of_task(X), stderr=everywhere)

    return {task: predicted(task) for task in IDEAL}


def merge(a: float, b: float, role: Role = "refinement") -> Candidate:
    return role, {"a": a, "b": b}


def measured(
    candidate: Candidate, missed: float = 0.0, stderr: float | None = 0.0
) -> list[Evaluation]:
    """Measure a merge, that was foretold with so much of an error."""
    role, coefficients = candidate
    found = []
    for task in IDEAL:
        value = bowls(coefficients, task).value
        foretold = Reading.of(value - missed, stderr) if role == "refinement" else None
        found.append(line(coefficients, task, value, role=role, foretold=foretold))
    return found


def searched(n_quiet: int) -> tuple[list[list[Candidate]], list[Evaluation]]:
    """Plan and measure a first design, a round that surprises, and quiet ones."""
    design = [merge(x, y, "design") for x, y in [(0, 0), (1, 0), (0, 1), (0.6, 0.5)]]
    later = [[merge(0.31 + 0.1 * k, 0.4)] for k in range(n_quiet + 1)]
    known = [e for candidate in design for e in measured(candidate)]
    known += measured(later[0][0], missed=10.0)
    known += [e for (candidate,) in later[1:] for e in measured(candidate)]
    return [design, *later], known


@pytest.mark.parametrize(
    ("error", "n_quiet", "more"),
    [
        (0.0045, 2, False),
        (0.0055, 2, True),
        (0.0045, 1, True),
        (0.0, 3, False),
        (0.0, 0, True),
    ],
)
def test_a_search_ends_after_two_quiet_rounds_with_a_front_known_to_half_a_percent(
    error: float, n_quiet: int, more: bool
) -> None:
    rounds, known = searched(n_quiet)

    assert len(refinement_round(STUDY, rounds, known, known_within(error))) == int(more)


@pytest.mark.parametrize(
    ("missed", "stderr", "came_true"),
    [
        (0.0045, 0.0, True),  # shares of what a task was seen to vary
        (0.0055, 0.0, False),
        (-0.0055, 0.0, False),
        (1.9 * 0.1, 0.1, True),
        (2.1 * 0.1, 0.1, False),
        (0.0045, None, True),
    ],
)
def test_a_prediction_comes_true_within_its_error_or_a_small_share(
    missed: float, stderr: float | None, came_true: bool
) -> None:
    rounds, known = searched(0)
    last = merge(0.7, 0.7)
    width = min(np.ptp([e.value for e in known if e.task == t]) for t in IDEAL)
    error = None if stderr is None else stderr * width

    after = [*known, *measured(last, missed * width, error)]

    assert n_quiet_rounds([*rounds, [last]], after) == int(came_true)


def test_merges_outside_the_bounds_make_no_prediction_come_true() -> None:
    rounds, known = searched(1)
    last = merge(0.7, 0.7)
    after = [*known, *measured(merge(9, 9, "imported")), *measured(last, 0.1)]

    assert refinement_round(STUDY, [*rounds, [last]], after, known_within(0.0)) != []


def test_what_was_foretold_of_one_task_alone_must_come_true_of_all() -> None:
    rounds, known = searched(1)
    assert n_quiet_rounds(rounds, known) == 1
    wrong = [*known[:-1], changed(known[-1], value=known[-1].value + 1)]
    untold = [*known[:-1], changed(known[-1], foretold=None)]
    failed = [*known[:-2], *(changed(e, value=np.nan) for e in known[-2:])]

    for log in (wrong, untold, failed):
        assert n_quiet_rounds(rounds, log) == 0


def far(X: FloatArray) -> FloatArray:
    """Where nothing of the front is, and no merge of the design."""
    return np.linalg.norm(X - [0.05, 0.95], axis=1) < 0.2


@pytest.mark.parametrize(("unknown", "poor"), [(0.04, False), (0.06, True)])
def test_every_other_round_goes_where_least_is_known_while_much_is_unknown(
    unknown: float, poor: bool
) -> None:
    """A twentieth of the variance over the box is much."""
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 64)] * 2), axis=-1).reshape(-1, 2)
    variances = [((grid - IDEAL[t]) ** 2).sum(axis=1).var() for t in IDEAL]
    share = np.sqrt(unknown * min(variances) / far(grid).mean()) / RANGE
    surrogates = known_within(lambda X: 1e-9 + share * far(X))
    rounds, known = searched(0)
    assert len(rounds) % 2 == 0

    ((_, even),) = refinement_round(STUDY, rounds, known, surrogates)
    last = merge(0.7, 0.7)
    odd_known = [*known, *measured(last, missed=10.0)]
    ((_, odd),) = refinement_round(STUDY, [*rounds, [last]], odd_known, surrogates)

    assert not far(STUDY.vector(even)[None]).any()
    assert far(STUDY.vector(odd)[None]).any() == poor


def test_what_is_planned_is_on_the_front_where_most_is_gained() -> None:
    rounds, known = searched(0)

    ((role, planned),) = refinement_round(STUDY, rounds, known, known_within(0.02))

    assert role == "refinement"
    start, end = (np.array(IDEAL[task]) for task in IDEAL)
    line = end - start
    offset = STUDY.vector(planned) - start
    along = offset @ line / (line @ line)
    assert np.linalg.norm(offset - along * line) < 0.1
    # A merge of the design is near the middle, and none near either end.
    assert not 0.3 < along < 0.7


@pytest.mark.parametrize(("apart", "again"), [(0.025, False), (0.035, True)])
@pytest.mark.parametrize("value", [None, 1.0, np.nan])
def test_nothing_is_measured_next_to_what_was_measured_or_where_it_failed(
    apart: float, again: bool, value: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near as three percent of the box; planned or only in the log."""
    # What was measured is worth as much as ever, so that its place alone decides.
    monkeypatch.setattr(
        "mergekit_map.search.planning.improvements",
        lambda hoped, _: -np.arange(len(hoped)),
    )
    rounds, known = searched(0)
    surrogates = known_within(0.02)
    ((_, best),) = refinement_round(STUDY, rounds, known, surrogates)
    inwards = np.where(STUDY.vector(best) < 0.5, apart, -apart)
    beside = merge(*(STUDY.vector(best) + inwards), role="design")
    if value is not None:
        known = [*(changed(e, value=value) for e in measured(beside)), *known]
    else:
        rounds = [[*rounds[0], beside], *rounds[1:]]

    ((_, planned),) = refinement_round(STUDY, rounds, known, surrogates)

    assert (planned == best) == (again and value is not np.nan)


def test_what_was_searched_is_counted_once_and_the_front_is_not() -> None:
    design = [merge(0.1, 0.2, "design"), merge(0.3, 0.4, "design")]
    front, outside = merge(0.5, 0.5, "front"), merge(2.0, 0.0, "imported")
    imported = merge(0.9, 0.1, "imported")

    def spent(*more: Candidate, rounds: Sequence[Sequence[Candidate]] = ()) -> int:
        known = [e for candidate in (*design, *more) for e in measured(candidate)]
        return n_spent(STUDY, [design, *rounds], known)

    assert n_spent(STUDY, [design], []) == spent() == 2
    assert spent(front) == spent(outside) == 2
    assert spent(imported) == 3
    assert spent(front, rounds=[[("refinement", front[1])]]) == 3
    assert spent(outside, rounds=[[("anchor", outside[1])]]) == 3


def volume(error: float) -> float:
    """Integrate what lies below the front, moved by an error on both tasks.

    In units of the ranges it is (1 - t^2, 1 - (1 - t)^2), which has 5/6 above its
    worst values; the volume reaches a tenth below these.
    """
    margin = 0.1 + error
    return 5 / 6 + 2 * margin + margin**2


@pytest.mark.parametrize("error", [0.0, 0.02, 0.3])
def test_what_more_would_bring_is_the_front_moved_by_its_standard_errors(
    error: float,
) -> None:
    hope = expected_gain(STUDY, known_within(error))

    assert hope == pytest.approx(volume(error) / volume(0) - 1, rel=0.02)


def surrogate(f: Callable[[FloatArray], FloatArray], box: FloatArray) -> Surrogate:
    """Fit a quadratic function exactly."""
    axes = [np.linspace(*ends, 9) for ends in box]
    X = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(box))
    return fit(X, f(X), bounds=box)


def bowl(*ideal: float) -> Callable[[FloatArray], FloatArray]:
    return lambda X: -np.square(X - np.array(ideal)).sum(axis=1)


def borders(
    tasks: dict[str, tuple[Metric, Surrogate]],
    X: FloatArray,
    anchors: dict[str, tuple[float, ...]],
) -> list[Border]:
    metrics = {name: metric for name, (metric, _) in tasks.items()}
    surrogates = {name: fitted for name, (_, fitted) in tasks.items()}
    study = make_study(("de", "fr")[: X.shape[1]], metrics)
    box = next(iter(surrogates.values())).bounds.tolist()
    study = replace(study, bounds=dict(zip(study.bounds, box, strict=True)))
    named = {label: study.rounded(np.array(place)) for label, place in anchors.items()}
    result = StudyResult(surrogates, [study.rounded(row) for row in X], 0)
    return list(find_border(replace(study, anchors=named), result))


@pytest.mark.parametrize("metric", [SCORE, LOSS])
def test_of_one_task_the_gain_is_the_share_of_its_range(metric: Metric) -> None:
    """-(c - 1.3)²: from -1.69 at the base to -0.09 at c = 1, and -0.01 at c = 1.2."""
    box = np.array([[0.0, 1.0]])
    fitted = surrogate(lambda X: metric.sign * bowl(1.3)(X), box)

    constant = surrogate(lambda X: np.zeros(len(X)), box)
    for tasks in ({"t": fitted}, {"t": fitted, "constant": constant}):
        known = {name: (metric, one) for name, one in tasks.items()}

        (found,) = borders(known, np.array([[1.0]]), {"base": (0.0,)})

        assert found == Border(coefficient="de", end=1, beyond=1.2, gain=0.05)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e5])
def test_ends_are_told_where_points_lie_and_more_is_better(unit: float) -> None:
    """One task wants more of de, the other less of fr than the box has."""
    tasks = {
        "one": (SCORE, surrogate(lambda X: unit * bowl(1.2, 0.0)(X), BOX)),
        "two": (SCORE, surrogate(bowl(0.5, -0.6), BOX)),
    }
    t = np.linspace(0, 1, 5)[:, None]
    X = np.clip((1 - t) * [1.2, 0.0] + t * [0.5, -0.6], *BOX.T)

    found = borders(tasks, X, {"base": (0.0, 0.5), "outside": (2.0, 0.0)})

    assert [(b.coefficient, b.end) for b in found] == [("de", 1.0), ("fr", -0.5)]
    assert [b.beyond for b in found] == [1.2, -0.7]
    assert all(0 < b.gain < 0.2 for b in found)
