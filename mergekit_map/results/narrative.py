"""Sentences on a front: its diagnostics, its bounds, and the choice of the point.

Why a point was chosen, and which limits it keeps, as sentences.

The ends of the searched box, in sentences.
"""

from __future__ import annotations

from collections.abc import Iterator

from mergekit_map.errors import ConfigError
from mergekit_map.optimize.degenerate_front import NOISE_FACTOR, TradeOff
from mergekit_map.results.diagnostics import (
    NOMINAL,
    STDERRS,
    AnchorCompared,
    AtBound,
    FewMerges,
    PoorFit,
    PredictionCheck,
    PredictionError,
    PriorPredictionChecks,
    SearchEnd,
    Verdict,
    diagnose,
    diagnose_each_point,
    foretold,
)
from mergekit_map.results.dominance import Dominance
from mergekit_map.results.front import Border, Ending, Front, Merge, Unfinished, n_safe
from mergekit_map.results.gain_sentences import (
    dominates_in_words,
    margins_in_words,
    name_of,
    nearly_in_words,
)
from mergekit_map.results.gains import anchor_values
from mergekit_map.results.limits import (
    limit_in_words,
    required_limits,
    unmet_limits,
)
from mergekit_map.utils.text import listed, number_in_words, percent


def border_in_words(front: Front, border: Border) -> str:
    """Describe how many points lie at the bounds, and what may lie beyond."""
    name = border.coefficient
    lie = "lies" if border.points == 1 else "lie"
    return (
        f"{border.points} of {len(front.points)} points {lie} at weight "
        f"{border.end:.4g} for {name}: searching to {border.beyond:.4g} would gain "
        f"about {percent(border.gain)} of the hypervolume, as the surrogates go on."
    )


# Share of the hypervolume that is worth asking for more evaluations.
_WORTH_MORE = 0.005


def verdicts_in_words(front: Front) -> tuple[str, ...]:
    """Write the diagnostics of a front, a sentence or two each."""
    return tuple(line for found in diagnose(front) for line in _in_words(front, found))


def verdicts_of_points(front: Front) -> list[tuple[str, ...]]:
    """Write the diagnostics with each point in turn as the chosen one."""
    # What points share is written once.
    lines: dict[int, tuple[Verdict, list[str]]] = {}
    points = []
    for chosen, verdicts in diagnose_each_point(front):
        for found in verdicts:
            if id(found) not in lines:
                lines[id(found)] = found, [*_in_words(chosen, found)]
        points.append(tuple(line for found in verdicts for line in lines[id(found)][1]))
    return points


def choice_in_words(front: Front) -> tuple[str, ...]:
    """Write the diagnostics that depend on the chosen point or the search's end."""
    lines: list[str] = []
    for found in diagnose(front):
        match found:
            case Unfinished() | PredictionCheck() | Dominance():
                lines += _in_words(front, found)
            case AnchorCompared(anchor, dominates_chosen=Dominance() as worse):
                lines.append(_better_choice(front, anchor, worse))
    return tuple(lines)


def warnings_in_words(front: Front) -> tuple[str, ...]:
    """Describe where predictions are not reliable."""
    kinds = (FewMerges, PoorFit)
    found = (verdict for verdict in diagnose(front) if isinstance(verdict, kinds))
    return tuple(line for verdict in found for line in _in_words(front, verdict))


def _in_words(front: Front, verdict: Verdict) -> Iterator[str]:
    match verdict:
        case Unfinished():
            yield from _unfinished(verdict)
        case TradeOff(kind="trade-off"):
            yield from _trading(front, verdict)
        case TradeOff():
            yield f"There is no trade-off: {_no_tradeoff(front, verdict)}."
        case SearchEnd(ending):
            yield _ended(ending)
        case FewMerges():
            yield _few_merges(verdict)
        case PoorFit():
            yield _poor_fit(front, verdict)
        case PriorPredictionChecks():
            yield prior_predictions_in_words(verdict.held, verdict.count)
        case AtBound(border):
            yield border_in_words(front, border)
        case AnchorCompared():
            yield from _reference_point(front, verdict)
        case PredictionCheck():
            yield from _prediction_check(front, verdict)
        case Dominance():
            more = ["", " So does 1 more.", f" So do {verdict.others} more."]
            yield dominates_in_words(front, verdict) + more[min(verdict.others, 2)]


def _unfinished(found: Unfinished) -> Iterator[str]:
    yield (
        f"Not finished: {found.measured} of at most {_counted(found.most, 'merge')} "
        "measured when this was found."
    )
    if not found.fitted:
        yield (
            "These are too few to predict others, so that the front is of measured "
            "merges alone, and what is called predicted is what was measured."
        )


def _no_tradeoff(front: Front, found: TradeOff) -> str:
    best = f"point {found.best}"
    if found.kind == "one point":
        tasks = "all tasks" if len(front.tasks) > 1 else listed(front.tasks)
        return f"one merge is best on {tasks}: {best}"
    text = f"{best} is within noise of the best on every task"
    if found.kind == "within noise":
        text = "the whole front differs by less than the noise on every task"
    return f"as predicted, {text}; take {best}"


def _trading(front: Front, found: TradeOff) -> list[str]:
    Y = front.utilities(front.points, "predicted")
    names, ranges, still = [], [], []
    for column, (task, metric) in enumerate(front.metrics.items()):
        best = int(Y[:, column].argmax())
        worst = int(Y[:, column].argmin())
        start, end = (metric.utility(Y[row, column]) for row in (worst, best))
        if found.trades[column]:
            names.append(task)
            text = f"{task} goes from {start:.4g} to {end:.4g} {metric.unit}"
            ranges.append(f"{text.rstrip()} (best at point {best})")
        else:
            still.append(
                f"{task} stays out of it: it differs by {found.spread[column]:.2g}, "
                f"and noise explains {found.noise[column]:.2g}."
            )
    return [f"{listed(names)} trade off, as predicted: {', '.join(ranges)}.", *still]


def _ended(ending: Ending) -> str:
    merges = f"{ending.evaluations} of {ending.allowed} merges"
    if ending.trusted:
        why = "what else the front has to teach was measured"
        if ending.quiet:
            last = (
                "last one"
                if ending.quiet == 1
                else f"last {number_in_words(ending.quiet)}"
            )
            why = f"the {last} came out as predicted"
        known = f"the front is known to {percent(ending.error)} of a task's range"
        return f"Stopped after {merges}: {why}, and {known}."
    used, more = f"All {ending.allowed} merges are used", "evaluations"
    if ending.spent:
        merges = _counted(ending.evaluations, "merge")
        used, more = f"The budget is used after {merges}", "hours"
    text = (
        f"{used}; the front is known to "
        f"{percent(ending.error)} of the range of {ending.task} at worst"
    )
    if ending.hope < _WORTH_MORE:
        return f"{text}."
    return (
        f"{text}, and a front one standard error better would have "
        f"{percent(ending.hope)} more hypervolume: allow more {more}."
    )


def _few_merges(found: FewMerges) -> str:
    return (
        f"Only {_counted(found.fitted, 'merge')} were measured for "
        f"{_counted(found.coefficients, 'coefficient')}: below "
        f"{n_safe(found.coefficients)} a front is a guess; measure more."
    )


def prior_predictions_in_words(held: int, count: int) -> str:
    """Write the share of predictions made before measuring that came true."""
    return (
        f"{held} of {_counted(count, 'prediction')} held: measured afterwards, they "
        f"were off by at most {STDERRS:g} standard errors, as {percent(NOMINAL)} "
        "should be."
    )


def _poor_fit(front: Front, found: PoorFit) -> str:
    where, r2 = [], []
    if found.expected_r2 is not None:
        r2.append(f"{found.expected_r2:.2f} by their own standard errors")
    if found.loo_r2 is not None:
        off = "" if found.error is None else f", off by {percent(found.error)}"
        of = "" if found.error is None else " of its range"
        r2.append(f"{found.loo_r2:.2f} left out one by one{off}{of}")
    if found.box and not r2:
        text = f"The fit of {found.task} cannot be checked"
        return f"{text}: no merge can be spared for that; evaluate a few more."
    if found.box:
        where.append(f"over the whole box R² {', '.join(r2)}")
    if found.front_error is not None:
        off = percent(found.front_error)
        where.append(f"near the front off by {off} of the range there")
    return (
        f"Predictions of {found.task} are poor ({'; '.join(where)}){_why(front, found)}"
    )


def _why(front: Front, found: PoorFit) -> str:
    if found.noisy:
        return ", but no worse than its noise: measure it on more items."
    kinds = {front.surrogate, front.tasks[found.task].fit.kind}
    flexible = bool(kinds & {"residual_gp", "auto"})
    advice = "allow more evaluations" if flexible else "set 'surrogate: auto'"
    cause = "its noise may be the cause, or its shape"
    if found.noisy is False:
        cause = "a quadratic has the wrong shape for it"
        if flexible:
            cause = "its shape is not known well enough yet"
    return f": {cause}. Trust what was measured; {advice}, or search a smaller box."


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _reference_point(front: Front, found: AnchorCompared) -> Iterator[str]:
    name = name_of(front, found.anchor)
    if found.missing:
        yield f"No comparison with {name}: no value of {listed(found.missing)}."
    elif found.dominated is not None:
        yield dominates_in_words(front, found.dominated)
    elif found.nearly is not None:
        yield nearly_in_words(front, found.nearly)
    else:
        yield f"No measured merge dominates {name}."
    if found.dominates_chosen is not None:
        yield _better_choice(front, found.anchor, found.dominates_chosen)


def _better_choice(front: Front, anchor: Merge, found: Dominance) -> str:
    better = name_of(front, anchor)
    return f"{dominates_in_words(front, found)} So {better} is the better choice."


def _prediction_check(front: Front, found: PredictionCheck) -> Iterator[str]:
    chosen, name = front.chosen, name_of(front, front.chosen)
    for task, miss in found.misses.items():
        yield (
            f"At {name} {task} was predicted as {foretold(chosen)[task]} and measured "
            f"as {chosen.measured[task]}, {_difference(miss)}: trust the measurement."
        )
    if found.agreeing:
        all_of_them = len(found.agreeing) == len(front.tasks)
        tasks = "every task" if all_of_them else listed(found.agreeing)
        yield (
            f"At {name} predicted and measured agree within {NOISE_FACTOR:g} standard "
            f"errors on {tasks}."
        )
    if found.missing:
        missing = listed(found.missing)
        yield f"Not measured at {name} yet: {missing}; merging it does so."


def _difference(miss: PredictionError) -> str:
    if not miss.noise:
        return f"{miss.apart:.2g} apart"
    text = f"{miss.apart / miss.noise:.1f} standard errors"
    if miss.share is not None and miss.apart <= NOISE_FACTOR * miss.noise:
        text += f", but {percent(miss.share)} of its range"
    return f"{text} apart"


def reason(front: Front) -> str:
    """Explain in a sentence how the point was chosen."""
    start, select = f"Point {front.selected} of {len(front.points)}", front.select
    if select.index is not None:
        return f"{start}, chosen by its index."
    if unmet := unmet_limits(front):
        return (
            f"{start}, the nearest to its limits that was found: it does not keep "
            f"{unmet}; relax a limit, or allow more evaluations."
        )
    how = "the knee of the front" if select.knee else _preferred(front)
    kept = "" if select.require is None else f" with {_kept_limits(front)}"
    rivals = "".join(f", {margins_in_words(front, label)}" for label in select.rivals)
    return f"{start}, {how}{kept}{rivals}.{_unsure(front)}"


def missed_as_measured(front: Front) -> list[str]:
    """Name the limits that the chosen point misses as measured, by more than noise."""
    if not front.chosen.is_measured(*front.metrics):
        return []
    try:
        missed = unmet_limits(front)
    except ConfigError:  # chosen when shares were of something else
        return []
    if not missed:
        return []
    return [
        f"As measured, point {front.selected} does not keep {missed}; require a little "
        "more than is needed, or choose another point."
    ]


def _preferred(front: Front) -> str:
    select = front.select
    weights = select.preference(front.tasks)
    how = " (achievement)" if select.scalarization == "achievement" else ""
    if select.require and not select.prefer:
        alike = " alike" if len(weights) > 1 else ""
        return f"the best {listed(weights)}{alike}{how}"
    listing = ", ".join(f"{task}={weight:g}" for task, weight in weights.items())
    return f"chosen by the preference {listing}{how}"


def _kept_limits(front: Front) -> str:
    predicted = front.chosen.readings("predicted")
    limits = required_limits(front.select, front.metrics, anchor_values(front))
    return listed(
        f"{limit_in_words(task, front.metrics[task], limit)} (predicted "
        f"{predicted[task]})"
        for task, limit in limits.items()
    )


def _unsure(front: Front) -> str:
    """Name the limits kept by less than the uncertainty of the predictions."""
    predicted = front.chosen.readings("predicted")
    limits = required_limits(front.select, front.metrics, anchor_values(front))
    unsure = [
        task
        for task, limit in limits.items()
        for reading in [predicted[task]]
        if abs((reading.value or 0.0) - limit.value) < (reading.stderr or 0.0)
    ]
    if not unsure:
        return ""
    verb = "keeps its limit" if len(unsure) == 1 else "keep their limits"
    return f" {listed(unsure)} {verb} by less than one standard error."
