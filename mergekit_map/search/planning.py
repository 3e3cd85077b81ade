"""The strategies that plan the next merges, as pure functions of the measurements.

After a first design, a search refines itself, which is beyond the paper: the design is
as small as is safe, and every round measures one merge: the one of the front that may
add most hypervolume to the measured merges, with predictions one standard error better
than they are (an upper confidence bound); and every other round, while predictions
within the bounds are poor, one from anywhere in them, two standard errors better. While
even merges left out are predicted badly, every other of these is the merge with the
largest error. It stops when predictions come true, or when all evaluations are used.

Notation: ``k`` points of a front, ``m`` tasks, ``d`` coefficients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mergekit_map.errors import DesignError
from mergekit_map.optimize.design import fixed_sobol, make_design
from mergekit_map.optimize.front_filling import improvements, relative_gain
from mergekit_map.optimize.nsga3 import approximate_front
from mergekit_map.optimize.scalarization import varying_range
from mergekit_map.results.front import Border
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.search.bayesian import bayesian_round
from mergekit_map.search.study import Candidate, Rounds, Study, StudyResult
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, to_unit
from mergekit_map.surrogates.fit import Surrogate, Surrogates
from mergekit_map.surrogates.quadratic import n_quadratic_terms

# The largest standard error on the front, as a share of a task's range there, with
# which a search may stop; and how many rounds before must have come out as predicted.
GOOD_ENOUGH = 0.005
QUIET_ROUNDS = 2
# A prediction came true if it missed by at most so many of its standard errors, or by
# this share of the range of all measurements of its task.
_STDERRS, _SHARE = 2.0, 0.005
# How many standard errors better than they are predictions are taken.
_FRONT_STDERRS, _BOX_STDERRS = 1.0, 2.0
_UNKNOWN = 0.05  # share of the variance of a task over the box that may be unknown
# A surrogate only guesses if its leave-one-out error is a larger share of the range.
_GUESSES = 0.12
# A task that varies by less than this share of its range over the box is level.
LEAST_RANGE, _ROUNDING = 0.05, 1e-9
# Nearer to a measured merge than this share of the box, there is nothing to learn.
_SAME = 0.03
_BEYOND = 0.2  # how far past an end, as a share of the box
_GOOD = 0.1  # error of an extrapolation that is believed, of the gains on the front
_STEPS = 5  # on the way there
_NEAR = 1e-3  # what lies at an end, as a share of the box
_LEAST_GAIN = 1e-3  # a smaller one is not worth a larger box


def next_round(
    study: Study,
    rounds: Rounds,
    known: Sequence[Evaluation],
    surrogates: Mapping[str, Surrogate] = {},
) -> list[Candidate]:
    """Propose the merges to measure next, none at the end, or raise DesignError."""
    if study.search.strategy == "bayesian":
        # A merge that failed may have displaced others; those before are of no round.
        first = itertools.chain(*rounds[:1])
        start = {merge_key(c) for role, c in first if role == "design"}
        own = [*itertools.dropwhile(lambda e: e.key[0] not in start, known)]
        return bayesian_round(study, rounds, known, n_spent(study, rounds, own))
    if not rounds:
        return design(study, known)
    wanted = study.wanted_evaluations
    if study.search.refines and (again := _failed_before(study, rounds, known)):
        return again
    if not study.search.refines or n_spent(study, rounds, known) >= wanted:
        return []
    if surrogates:
        return refinement_round(study, rounds, known, surrogates)
    # A further merge of the first design, for those that failed.
    X = _tried(study, rounds, known)
    rng = np.random.default_rng(study.search.seed)
    points = make_design(study.search.design, len(X) + 1, study.box, X, rng)
    return [("design", study.rounded(points[-1]))]


def _failed_before(
    study: Study, rounds: Rounds, known: Sequence[Evaluation]
) -> list[Candidate]:
    """Return a merge of the log that failed and that this search has not asked for."""
    asked = {merge_key(c) for planned in rounds for _, c in planned}
    errors = (e for e in known if e.error)
    failed = {e.key[0]: e.coefficients for e in errors if e.key[0] not in asked}
    is_inside = study.contains(study.vectors(failed.values()))
    again = [*itertools.compress(failed.values(), is_inside)]
    is_spent = len(asked) >= study.wanted_evaluations
    return [] if is_spent else [("design", merge) for merge in again[:1]]


def _tried(study: Study, rounds: Rounds, known: Sequence[Evaluation]) -> FloatArray:
    """List the merges that were proposed, or tried on every task; (n, d)."""
    proposed = {merge_key(c): c for planned in rounds for _, c in planned}
    whole = (k for k, of in by_merge(known).items() if of.keys() >= study.tasks.keys())
    return study.vectors((proposed | {k: dict(k) for k in whole}).values())


def design(study: Study, known: Sequence[Evaluation] = ()) -> list[Candidate]:
    """List the merges to evaluate at first, reference points before all others.

    Merges imported with every task replace new ones. A search that refines itself
    spends here what a first fit needs, and keeps the rest. Raises DesignError for fewer
    evaluations than reference points, or than a surrogate needs.
    """
    rng = np.random.default_rng(study.search.seed)
    merges = {merge_key(c): c for c in study.fixed.values()}
    anchors = study.vectors(merges.values())
    n_anchors = len(merges)
    n_outside = n_anchors - int(study.contains(anchors).sum())
    others = by_merge(e for e in known if e.role == "imported")
    whole = [key for key, of in others.items() if of.keys() >= study.tasks.keys()]
    imported = study.vectors(dict(key) for key in whole if key not in merges)
    imported = imported[study.contains(imported)]
    is_quadratic = study.search.surrogate == "quadratic"
    needed = n_quadratic_terms(len(study.bounds)) if is_quadratic else 3
    count = study.wanted_evaluations
    if study.search.refines:
        first_fit = max(n_anchors, needed + n_outside) + len(study.bounds)
        count = min(count, max(first_fit, n_anchors + len(imported)))
    start = np.vstack([anchors, imported[: max(count - n_anchors, 0)]])
    points = make_design(study.search.design, count, study.box, start, rng)
    # Only merges within the bounds are fitted.
    if (fitted := int(study.contains(points).sum())) < needed:
        other = ", or set another surrogate" if is_quadratic else ""
        raise DesignError(
            f"a surrogate ({study.search.surrogate}) in {len(study.bounds)} "
            f"coefficients needs {needed} merges within the bounds, but only {fitted} "
            f"of {len(points)} evaluations would be; allow at least {needed - fitted} "
            f"more{other}"
        )
    return study.candidates(points)


@dataclass(frozen=True, eq=False)
class _Outlook:
    points: FloatArray  # (k, d)
    Y: FloatArray  # (k, m) larger is better
    stderr: FloatArray  # (k, m)
    width: FloatArray  # (m,) range of each task over the points

    @property
    def errors(self) -> FloatArray:
        """Return the standard errors as shares of the ranges; (k, m)."""
        return np.asarray(self.stderr / self.width)


def refinement_round(
    study: Study, rounds: Rounds, known: Sequence[Evaluation], surrogates: Surrogates
) -> list[Candidate]:
    """Propose the merge to measure next; none when the predictions are trusted."""
    front = _outlook_of_front(study, surrogates)
    is_trusted = front.errors.max() <= GOOD_ENOUGH
    is_fitted = study.contains(study.vectors(e.coefficients for e in known))
    fitted = [*itertools.compress(known, is_fitted)]
    if is_trusted and n_quiet_rounds(rounds, fitted) >= QUIET_ROUNDS:
        return []
    best = partial(_best, study, _tried(study, rounds, known), known)
    worst = front.Y.min(axis=0)
    found = by_merge(known)
    is_known = np.isfinite(study.utilities(found.values())).all(axis=1)
    there = study.vectors(map(dict, found))[is_known]
    predicted = study.predict(surrogates, there[study.contains(there)])
    measured = (predicted - worst) / front.width

    def gains(outlook: _Outlook, stderrs: float) -> FloatArray:
        """Return the hypervolume that each point may add to the measured; (k,)."""
        hoped = outlook.Y + stderrs * outlook.stderr
        return improvements((hoped - worst) / front.width, measured)

    if len(rounds) % 2:
        box = _outlook(study, surrogates, fixed_sobol(study.box))
        variance = (box.Y / box.width).var(axis=0)
        # Is much of the variance of some task unknown within the bounds?
        if ((box.errors**2).mean(axis=0) > _UNKNOWN * variance).any():
            values = gains(box, _BOX_STDERRS)
            # Every other of these rounds improves surrogates that only guess.
            improves = len(rounds) % 4 == 1 and any(
                s.quality.loo_error > _GUESSES for s in surrogates.values()
            )
            if improves or not (values > _ROUNDING).any():
                values = box.errors.max(axis=1)
            return best(box, values)
    planned = best(front, gains(front, _FRONT_STDERRS))
    if planned or is_trusted:
        return planned
    # All points of the front are close to measured merges, and still uncertain.
    box = _outlook(study, surrogates, fixed_sobol(study.box))
    return best(box, box.errors.max(axis=1))


def expected_gain(study: Study, surrogates: Surrogates) -> float:
    """Return the share by which a better known front may be larger (hypervolume)."""
    front = _outlook_of_front(study, surrogates)
    scaled = (front.Y - front.Y.min(axis=0)) / front.width
    return relative_gain(scaled + front.errors, scaled)


def n_spent(study: Study, rounds: Rounds, known: Sequence[Evaluation]) -> int:
    """Count the searched merges: planned, or found in the log.

    Those of the log lie within the bounds, every task was tried on them, and they were
    not measured to show a front.
    """
    tried = by_merge(e for e in known if e.role != "front")
    whole = [key for key, tasks in tried.items() if tasks.keys() >= study.tasks.keys()]
    is_inside = study.contains(study.vectors(map(dict, whole)))
    planned = {merge_key(c) for candidates in rounds for _, c in candidates}
    return len(planned.union(itertools.compress(whole, is_inside)))


def n_quiet_rounds(rounds: Rounds, known: Sequence[Evaluation]) -> int:
    """Count the latest rounds in a row that came out as predicted."""
    count = 0
    for index in reversed(range(1, len(rounds))):
        keys = {merge_key(c) for _, c in rounds[index]}
        tested = [e for e in known if e.key[0] in keys]
        if not tested or not all(_came_true(e, known) for e in tested):
            break
        count += 1
    return count


def _came_true(tested: Evaluation, known: Sequence[Evaluation]) -> bool:
    if (foretold := tested.foretold) is None or foretold.value is None:
        return False
    values = [e.value for e in known if e.task == tested.task and not e.failed]
    # What is measured on some documents is off by itself.
    stderr = math.hypot(foretold.stderr or 0.0, tested.sampling or 0.0)
    tolerance = max(_STDERRS * stderr, _SHARE * float(np.ptp(values)))
    return abs(tested.value - foretold.value) <= tolerance


def _outlook_of_front(study: Study, surrogates: Surrogates) -> _Outlook:
    predict = partial(study.predict, surrogates)
    return _outlook(study, surrogates, approximate_front(predict, study.box))


def _outlook(study: Study, surrogates: Surrogates, points: FloatArray) -> _Outlook:
    Y = study.predict(surrogates, points)
    box = study.predict(surrogates, fixed_sobol(study.box))
    # A task that hardly varies over the points is scaled by its range over the box.
    width = np.maximum(np.ptp(Y, axis=0), LEAST_RANGE * np.ptp(box, axis=0))
    is_constant = width <= _ROUNDING * np.abs(box).max(axis=0)
    width = np.where(is_constant, np.inf, width)  # so that it counts for nothing
    stderr = np.column_stack([s.stderr(points) for s in surrogates.values()])
    return _Outlook(points, Y, np.nan_to_num(stderr), width)  # 0 where it is unknown


def _best(
    study: Study,
    tried: FloatArray,
    known: Sequence[Evaluation],
    outlook: _Outlook,
    values: FloatArray,
) -> list[Candidate]:
    """Return the best point that is not near a tried merge (n, d), nor may fail."""
    is_new = _distances(study, outlook.points, tried) > _SAME
    is_new &= is_beside_measured(study, outlook.points, known)
    if not is_new.any():
        return []
    chosen = int(np.where(is_new, values, -np.inf).argmax())
    return [("refinement", study.rounded(outlook.points[chosen]))]


def is_beside_measured(
    study: Study, points: FloatArray, known: Sequence[Evaluation]
) -> BoolArray:
    """Mark points (k, d) that are nearer to a measured merge than to a failed one."""
    failed = {e.key[0] for e in known if e.failed}
    measured = {e.key[0] for e in known} - failed
    near, far = (study.vectors(map(dict, keys)) for keys in (measured, failed))
    return _distances(study, points, near) <= _distances(study, points, far)


def _distances(study: Study, points: FloatArray, X: FloatArray) -> FloatArray:
    """Return distances to the nearest row of X, along their largest axis; (k,)."""
    apart = to_unit(points, study.box)[:, None] - to_unit(X, study.box)
    return np.asarray(np.abs(apart).max(axis=2).min(axis=1, initial=np.inf))


def find_border(study: Study, result: StudyResult) -> Iterator[Border]:
    """Find the bounds beyond which the front would be better, as predicted.

    Points at the bounds are moved a little beyond them along one coefficient, where
    predictions are extrapolations. Gains are relative to what is worst on the front and
    the reference points.
    """
    front = study.vectors(result.front)
    fixed = study.vectors(study.fixed.values())
    utilities = partial(study.predict, result.surrogates)
    known = utilities(np.vstack([front, fixed[study.contains(fixed)]]))
    varies = np.isfinite(varying_range(known))  # elsewhere is nothing to gain
    Y, worst = known[: len(front), varies], known[:, varies].min(axis=0)
    scale = (Y - worst).max(axis=0)
    if not (varies.any() and (scale > 0).all()):
        return  # the front has no volume
    for axis, (name, (lower, upper)) in enumerate(study.bounds.items()):
        width = upper - lower
        for end, reach in ((lower, -_BEYOND * width), (upper, _BEYOND * width)):
            is_at_end = np.abs(front[:, axis] - end) <= _NEAR * width
            if not is_at_end.any():
                continue
            moved = np.tile(front[is_at_end], (_STEPS, 1))
            steps = np.linspace(0, reach, _STEPS + 1)[1:]
            moved[:, axis] = end + np.repeat(steps, is_at_end.sum())
            errors = [s.stderr(moved) for s in result.surrogates.values()]
            is_good = np.column_stack(errors)[:, varies] <= _GOOD * scale
            moved = moved[is_good.all(axis=1)]
            both = np.vstack([Y, utilities(moved)[:, varies]])
            gain = relative_gain((both - worst) / scale, (Y - worst) / scale, 0.0)
            if gain >= _LEAST_GAIN:
                yield Border(
                    coefficient=name,
                    end=end,
                    beyond=float(f"{end + reach:.12g}"),
                    gain=float(f"{gain:.3g}"),
                )
