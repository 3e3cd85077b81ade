"""The answer of a search: what terminal, report, card and ``--json`` begin with.

One sentence that decides, one table of gains, and the findings behind it, most
important first. Everything that says a number takes it from here.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.results.front import Ending, Front, Reading
from mergekit_map.results.gains import BEST_PARENT, Gains, Improvement, Verdict, gains
from mergekit_map.results.limits import MISSED, Request, keep_limits, limits_in_words
from mergekit_map.results.paired import PairedMerges
from mergekit_map.results.selection import MERGE, advice, beats_somewhere
from mergekit_map.types import BASE, NATS, SIGNIFICANT, SOUP
from mergekit_map.utils.text import listed, percent

VERDICTS: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "noise": "no significant difference",
    "unknown": "no known standard error",
}
_DECISIVE = 3  # findings that are shown first
_NAMED = 4  # tasks, or coefficients, that are named one by one
HEADINGS = ("task", "model", "value", "gain kept", "chosen merge vs this model")
_WORTH_MORE = 0.005  # share of the hypervolume that is worth another search
_LEAST_MERGES = 2  # for each parameter of a plane
_DECIMALS = 6  # the most that are written
# Predictions are good if R² over the bounds is 0.9. What is known of it are two
# estimates, by their own standard errors and from merges left out one by one: both are
# below this where it is not, in 9 of 10 cases, and in few others
# (benchmarks/contest_fits.py).
_GOOD_R2 = 0.93
# On the front, predictions may miss by a tenth of its range. Their standard errors are
# not to be believed where both estimates are below 0.75: the fit has the wrong shape.
_GOOD_SHARE, _SHAPELESS_R2 = 0.1, 0.75


@dataclass(frozen=True)
class Answer:
    """The findings of a search, in the order of importance."""

    advice: str  # MERGE, or the label of the reference point to use instead
    headline: str  # the sentence that decides
    table: Sequence[tuple[str, ...]]  # rows below ``headings``
    sample: str  # on which documents the gains were measured
    findings: tuple[str, ...]  # those that change a decision
    details: tuple[str, ...] = ()  # the others, for the report and ``-v``
    wider_bounds: str = ""  # of another search, as ``--bounds`` takes them
    headings: tuple[str, ...] = HEADINGS  # of the table


def answer(front: Front) -> Answer:
    """Compose the answer of a front with its chosen point."""
    gained, advised = gains(front), advice(front)
    findings = [*_find(front, gained)]
    decisive = [text for text, decides in findings if decides]
    others = [text for text, decides in findings if not decides]
    return Answer(
        advice=advised,
        headline=headline(front, gained, advised),
        table=gain_table(front, gained),
        sample=sample(front, gained),
        findings=tuple(decisive[:_DECISIVE]),
        details=(front.reason, *decisive[_DECISIVE:], *others),
        wider_bounds=wider_bounds(front),
    )


def gain_table(front: Front, gained: Gains) -> list[tuple[str, ...]]:
    """Compare the chosen merge with base, soup and best parent, task by task."""
    rows: list[tuple[str, ...]] = []
    for task, description in front.tasks.items():
        rivals = [tasks[task] for tasks in gained.rivals.values() if task in tasks]
        predicted = "predicted " if gained.sources[task] == "predicted" else ""
        value = predicted + value_in_words(gained.readings[task])
        name = f"{task} ({', '.join(description.facts)})"
        kept = share_in_words(gained.kept[task])
        rows.append((name, "chosen merge", value, kept, ""))
        for rival in rivals:
            value = value_in_words(rival.reading)
            kept = share_in_words(gained.share(task, rival.reading.value))
            compared = comparison(rival).replace("merge ", f"merge {predicted}", 1)
            rows.append(("", rival.other, value, kept, compared))
    return rows


def comparison(rival: Improvement) -> str:
    """Write how the chosen merge compares: ``merge better by 0.085 ± 0.012``."""
    if rival.amount == 0:
        return f"the same ± {rival.stderr:.2g}" if rival.stderr else "the same"
    amount = difference(rival.amount, rival.stderr)
    text = f"merge {'better' if rival.amount > 0 else 'worse'} by {amount[1:]}"
    doubts = {"noise": ", not significant", "unknown": ", standard error not known"}
    return text + doubts.get(rival.verdict, "")


def headline(front: Front, gained: Gains, advised: str) -> str:
    """Return the sentence that decides: use this merge, or another model instead."""
    if advised != MERGE:
        name = called(advised) if advised in {BASE, SOUP} else f"the model {advised}"
        verb = "keep" if advised == BASE else "use"
        return f"{_not_beaten(front, advised, name)}: {verb} {name}."
    limits = limits_in_words(front)
    clauses = [
        _kept(gained) or _against(gained, BASE),
        _against(gained, SOUP),
        "" if BASE in gained.rivals else _against(gained, BEST_PARENT),
    ]
    clauses.insert(0 if limits.startswith(MISSED) else len(clauses), limits)
    said = [*filter(None, clauses)] or ["was chosen; no reference point was measured"]
    return f"{_chosen_name(front)} {'; it '.join(said)}."


def _not_beaten(front: Front, advised: str, name: str) -> str:
    if front.select.index is not None:
        chosen = _chosen_name(front)
        if chosen.removeprefix("The ") == advised:
            return f"The chosen merge is {name} itself"
        return f"{chosen} is not better than {name}"
    weights, select = Request.of(front).task_weights(), front.select
    counted = [task for task, weight in weights.items() if weight > 0]
    within = " within the limits" if select.require else ""
    if not keep_limits(front, front.measured_points).all() and not within:
        rivals = listed(map(called, select.rivals or [BASE]))
        within = f" that is nowhere worse than {rivals}"
    verb = "beats"
    on_one, by_sum = beats_somewhere(front, advised, counted)
    if len(other := by_sum if len(counted) > 1 else on_one):
        chosen = _chosen_name(front)
        return f"{chosen}, unlike point {other[0]}, is not better than {name}"
    if len(on_one):
        total = "weighted sum" if select.prefer else "sum"
        verb = f"has a significantly larger {total} of gains than"
    text = f"no merge{within} {verb} {name}"
    if len(counted) == len(front.tasks):
        return f"N{text[1:]} here"
    alone = "which alone counts" if len(counted) == 1 else "which alone count"
    if not (select.prefer or select.require):
        alone = "where alone a gain over the base exceeds its standard error"
    return f"On {listed(counted)}, {alone}, {text}"


def _tasks(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= _NAMED else f"{len(names)} tasks"


def _kept(gained: Gains) -> str:
    """Write which shares of the parents' gains the chosen merge keeps."""
    best, worse = gained.over(BEST_PARENT), gained.where(BASE, "worse")
    shares = {t: k for t, k in gained.kept.items() if k is not None and t not in worse}
    if not shares:
        return ""
    is_, keeps, unsure = "is", "keeps", gained.where(BASE, "noise")
    if "predicted" in gained.sources.values():
        is_, keeps = "is predicted to be", "is predicted to keep"
    parts = {t: share_in_words(k) for t, k in shares.items()}
    parts |= {t: "no significant part" for t in unsure if t in shares}
    texts: list[str] = []
    for task, part in parts.items():
        parent = best[task].other
        gain = "the gain" if parent == task else f"{parent}'s gain"
        texts.append(f"{part} of {gain} on {task}")
    kept = f"{keeps} {listed(texts)}"
    if len(shares) > _NAMED:
        extremes = (pick(shares, key=shares.__getitem__) for pick in (min, max))
        ends = (f"{parts[task]} ({task})" for task in extremes)
        kept = f"{keeps} {' to '.join(ends)} of the best parents' gains"
    return f"{is_} worse than the base on {_tasks(worse)}; it {kept}" if worse else kept


def _against(gained: Gains, label: str) -> str:
    if all(one.amount == one.stderr == 0 for one in gained.over(label).values()):
        return ""  # it was not measured, or is the chosen merge itself
    tasks = {verdict: gained.where(label, verdict) for verdict in VERDICTS}
    on = {verdict: _tasks(names) for verdict, names in tasks.items() if names}
    sure = [f"{v} than the {label} on {on[v]}" for v in ("better", "worse") if v in on]
    unsure = [f"{VERDICTS[v]} on {on[v]}" for v in ("noise", "unknown") if v in on]
    predicted = "predicted" in gained.sources.values()
    if sure:
        text = f"is {'predicted to be ' if predicted else ''}{' and '.join(sure)}"
    elif predicted:
        return f"must be measured to see whether it is better than the {label}"
    elif "unknown" not in on:
        return f"shows {VERDICTS['noise']} from the {label}"
    else:
        text = f"may differ from the {label}"
    return f"{text}, with {' and '.join(unsure)}" if unsure else text


def sample(front: Front, gained: Gains) -> str:
    """Return on which data the gains were measured."""
    sources, holdout = gained.sources, front.holdout
    if predicted := [task for task, source in sources.items() if source == "predicted"]:
        where = " on the data of the search, not on held-out data" if holdout else ""
        some = "" if len(predicted) == len(sources) else f" on {listed(predicted)}"
        return f"The values of this merge{some} are predicted{where}."
    searched = "Measured on the data that the search used"
    if holdout is None:
        if front.differences:
            counts = {task: d.items for task, d in front.differences.items()}
            searched = f"{searched} ({_counted(front, counts)})"
        return f"{searched}: gains may look larger than they are."
    tasks = [task for task, source in sources.items() if source == "held-out"]
    if not tasks:
        return f"{searched}, not on held-out data."
    counts = {task: holdout.documents.get(task, 0) for task in tasks}
    text = f"Measured on held-out data ({_counted(front, counts)})."
    if others := [task for task in sources if task not in tasks]:
        text += f" Values of {listed(others)} are from the data of the search."
    if holdout.choices > 1:
        text += (
            f" {holdout.choices} merges have been measured on the held-out data: "
            "if you take the best of them, its gains look a little too good."
        )
    return text


def advice_on_sample(front: Front) -> str:
    """Return how to check gains on other data; "" if they are, or cannot be."""
    without_documents = {*front.tasks} - {*front.differences}
    measured = front.chosen.is_measured(*front.tasks)
    if front.holdout or front.unfinished or without_documents or not measured:
        return ""
    return "To check them on other data, search with `--holdout 0.3`."


def _counted(front: Front, counts: Mapping[str, int]) -> str:
    """Write how many documents tasks have: ``fr: 20 blocks of text``."""
    items = {NATS: "blocks of text"}  # by the unit of a task
    return ", ".join(
        f"{task}: {count} {items.get(front.tasks[task].unit, 'documents')}"
        for task, count in counts.items()
    )


def share_in_words(share: float | None) -> str:
    """Write ``84 %``; a dash where no parent gains anything."""
    return "-" if share is None else f"{100 * share:z.0f} %"


def value_in_words(reading: Reading) -> str:
    """Write a value with four digits, without its standard error."""
    return "-" if reading.value is None else f"{reading.value:#.4g}".rstrip(".")


def _find(front: Front, gained: Gains) -> Iterator[tuple[str, bool]]:
    """Yield the findings, most important first, and whether they may decide."""
    if unconfirmed := [*_unconfirmed(front, gained)]:
        yield f"Not confirmed on held-out data: {listed(unconfirmed)}.", True
    if (search := front.unfinished) is not None:
        yield search.in_words, True
    n = min(task.fit.n for task in front.tasks.values())
    if n < _LEAST_MERGES * (len(front.axes) + 1):
        text = f"Only {n} merges were measured for {len(front.axes)} coefficients"
        remedy = "" if search else " Allow more evaluations."
        yield f"{text}: predictions are a guess.{remedy}", True
    if _within_noise(front):
        text = "The points of the front differ by less than the noise on every task"
        yield f"{text}: measure more documents.", True
    elif (quality := prediction_quality(front)) is not None:
        yield quality
    if border := border_in_words(front):
        yield border, _gain_beyond(front) >= _WORTH_MORE
    if front.ending is not None:
        yield _ending(front.ending, len(front.points)), False


def _within_noise(front: Front) -> bool:
    """Whether points differ by no more than noise on any task, predicted and measured.

    The errors of a poor fit are not the noise of the documents.
    """
    Y = front.utilities(front.points, "predicted")
    stderr = front.stderrs(front.points, "predicted")
    best = Y.argmax(axis=0), np.arange(len(front.tasks))
    # As if independent: the front does not carry the covariance of predictions.
    noise = SIGNIFICANT * np.nan_to_num(np.hypot(stderr[best], stderr))
    first, second = np.meshgrid(front.measured_points, front.measured_points)
    paired = PairedMerges.of(front, first.ravel(), second.ravel())
    return len(Y) > 1 and not ((Y[best] - Y > noise).any() or paired.better.any())


def _unconfirmed(front: Front, gained: Gains) -> Iterator[str]:
    """Write which gains of the search held-out documents do not show."""
    searched = gains(front, in_search=True)
    held_out = [t for t, source in gained.sources.items() if source == "held-out"]
    for label, task in itertools.product(gained.rivals, held_out):
        new, old = gained.over(label).get(task), searched.over(label).get(task)
        if new and old and old.verdict == "better" and new.verdict != "better":
            now, before = (difference(x.amount, x.stderr) for x in (new, old))
            over = f"on {task} over {called(new.other)}"
            yield f"{now} {over} (in the search {before})"


def poor_tasks(front: Front, min_r2: float = _GOOD_R2) -> list[str]:
    """List the tasks that are predicted worse than this R², by both estimates of it."""
    fits = {name: task.fit for name, task in front.tasks.items()}
    best = {t: max(f.expected_r2 or -1, f.loo_r2 or -1) for t, f in fits.items()}
    return [task for task, r2 in best.items() if r2 < min_r2]


def prediction_quality(front: Front) -> tuple[str, bool] | None:
    """Write how good predictions are on the front, where the choice is made.

    With it comes whether they are not reliable. None without an error or poor task.
    """
    fits = {name: task.fit for name, task in front.tasks.items()}
    worst = max(fits, key=lambda task: fits[task].front_error or 0.0)
    error = fits[worst].front_error
    poor, shapeless = poor_tasks(front), poor_tasks(front, _SHAPELESS_R2)
    if error is None and not poor:
        return None
    if error is None or shapeless:
        text = f"Predictions of {listed(shapeless or poor)} are not reliable"
    else:
        share = f"{percent(error)} of a task's range (worst task: {worst})"
        if error <= _GOOD_SHARE:
            others = f" Elsewhere they are poorer ({listed(poor)})." if poor else ""
            return f"Predictions on the front are good to ± {share}.{others}", False
        text = f"Predictions on the front are good only to ± {share}"
    remedy = ", or allow more evaluations"
    ending = front.ending
    if ending is not None and ending.evaluations < ending.allowed:  # it uses no more
        remedy = ""
    elif ending is not None and ending.evaluations > ending.allowed:
        remedy = f", or allow more than {ending.evaluations} evaluations"
    elif front.unfinished:
        remedy = ", or let the search finish"
    return f"{text}: trust measured merges{remedy}.", True


def border_in_words(front: Front) -> str:
    """Write, for whoever searches, that points lie at a bound; "" if none do yet."""
    gain = _gain_beyond(front)
    if front.unfinished is not None or not gain:
        return ""
    reached = " or ".join(f"{one.coefficient}={one.end:g}" for one in front.border)
    bounds = wider_bounds(front)
    command = f": search again with `--bounds {shlex.quote(bounds)}`" if bounds else ""
    return (
        f"Some merges of the front have a weight at its bound ({reached}). Wider "
        f"bounds may improve the front (hypervolume +{percent(gain)}){command}."
    )


def _gain_beyond(front: Front) -> float:
    """Return the share that wider bounds add to the hypervolume, as far as known."""
    quality = prediction_quality(front)
    known = () if quality is not None and quality[1] else front.border
    return max((border.gain for border in known), default=0.0)


def wider_bounds(front: Front) -> str:
    """Write the bounds of another search as ``--bounds`` takes them, if it is worth it.

    Those that are and stay 0 and 1 are left out.
    """
    # Those of groups, in folders of earlier versions, are no coefficients.
    if front.groups or front.unfinished or _gain_beyond(front) < _WORTH_MORE:
        return ""
    values = {name: [*bounds] for name, bounds in front.coefficients.items()}
    for border in front.border:
        values[border.coefficient].append(border.beyond)
    return ",".join(
        f"{name}={min(bounds):.12g}:{max(bounds):.12g}"
        for name, bounds in values.items()
        if {*bounds} != {0, 1}
    )


def _ending(ending: Ending, n_points: int) -> str:
    n = ending.evaluations  # more than allowed, if as many were there
    if ending.trusted:
        return f"The search ended after {n} merges: it found no other worth measuring."
    text = f"The search used its budget: {n} merges, those of the front apart."
    if n_points == 1 or ending.hope > 1:  # the front is smaller than its noise
        return text
    return (
        f"{text} If others turned out better than predicted by one standard error, the "
        f"hypervolume would grow by {percent(ending.hope)}."
    )


def called(label: str) -> str:
    """Return the name of a reference point in a sentence."""
    return f"the {label}" if label in {BASE, SOUP} else label


def _chosen_name(front: Front) -> str:
    """Return the name of the chosen merge, at the start of a sentence.

    That of a reference point with the same coefficients, its few weights, or else its
    number. One that is rounded has two decimals: ``1.00``.
    """
    weights = front.chosen.coefficients
    same = (a.label for a in front.anchors if a.coefficients == weights)
    if (label := front.chosen.label or next(same, None)) is not None:
        return f"The {label}" if label in {BASE, SOUP} else label
    if len(weights) > _NAMED:
        return f"The merge of point {front.selected}"
    texts = []
    for name, weight in weights.items():
        rounded = round(weight, 2) + 0  # no sign where it is 0
        texts.append(f"{name}={rounded:{'g' if rounded == weight else '.2f'}}")
    return f"The merge {', '.join(texts)}"


def difference(amount: float, stderr: float | None) -> str:
    """Write ``+0.085 ± 0.012``, with two digits of the standard error."""
    if not stderr or not math.isfinite(stderr):
        return f"{amount + 0:+.2g}"  # minus 0 has no sign
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    if digits > _DECIMALS:
        return f"{amount:+.1e} ± {stderr:.1e}"
    return f"{round(amount, digits) + 0:+.{digits}f} ± {stderr:.{digits}f}"
