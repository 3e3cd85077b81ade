"""Sentences on a front: the headline of its answer, its reason and its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from mergekit_map.errors import ConfigError
from mergekit_map.optimize.selection import TIE
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import (
    BEST_PARENT,
    Gains,
    Verdict,
    anchor_values,
)
from mergekit_map.results.limits import find_limits, lower_limits, unmet_limits
from mergekit_map.types import BASE, NATS, SOUP, perplexity
from mergekit_map.utils.text import listed

VERDICTS: Mapping[Verdict, str] = {
    "better": "better",
    "worse": "worse",
    "noise": "no significant difference",
}
_NAMED = 4  # coefficients and tasks that are named one by one


def headline(front: Front, found: Gains, advice: str | None = None) -> str:
    """Return the sentence that decides: use this merge, or another model instead."""
    if advice is not None:
        instead = {SOUP: "use it (`recipes/soup.yml`)", BASE: "keep it"}
        return f"No merge beats {called(advice)} here: {instead.get(advice, 'use it')}."
    based = [_kept(found), _worse_than_base(found), _against(found, SOUP)]
    if found.rival(BASE) is None:
        based = [_against(found, SOUP), _against(found, BEST_PARENT)]
    clauses = filter(None, [limits_in_words(front), *based])
    first, *others = [*clauses] or ["was chosen; no reference point was measured"]
    text = "; ".join([first, *(f"it {clause}" for clause in others)])
    return f"The {merge_name(front, front.chosen)} {text}."


def reason(front: Front) -> str:
    """Return in a sentence how the point was chosen."""
    select, start = front.select, f"Point {front.selected}"
    if select.index is not None:
        return f"{start}: chosen by its index."
    if unmet := unmet_limits(front):
        return (
            f"{start}: the nearest to its limits that was found: it does not keep "
            f"{unmet}; relax a limit, or allow more evaluations."
        )
    weights = select.preference(front.tasks)
    counted = ", ".join(f"{task}={weight:g}" for task, weight in weights.items())
    how = f"the largest sum of {listed(weights)}"
    if select.prefer is not None:
        how = f"the largest weighted sum ({counted})"
    if len(weights) == 1:
        how = f"the best {listed(weights)}"
    if select.scalarization == "achievement":
        how = f"the smallest weighted distance from the best values ({counted})"
    if select.knee:
        how = "the knee of the front"
    limits = [f"{task}={limit}" for task, limit in (select.require or {}).items()]
    kept = f" that keeps {listed(limits)}" if limits else ""
    worse = f", not worse than {listed(select.rivals)}" if select.rivals else ""
    return f"{start}: {how}{kept}{worse}."


def limits_in_words(front: Front) -> str:
    """Write whether the chosen merge keeps its limits: ``meets its limit on fr``."""
    chosen, metrics, required = front.chosen, front.metrics, front.select.require
    try:
        if unmet := unmet_limits(front):
            return f"misses its limits: {unmet}"
        if not required or not chosen.is_measured(*metrics):
            return ""
        limits = find_limits(front.select, metrics, anchor_values(front))
    except ConfigError:  # chosen when shares were of something else
        return ""
    lower, values = lower_limits(metrics, limits), front.utilities([chosen], "measured")
    short = (lower - values[0] > TIE * abs(values[0])).any()
    text = f"meets its limit{'s' if len(required) > 1 else ''} on {listed(required)}"
    return f"{text} within noise" if short else text


def _tasks(names: Sequence[str]) -> str:
    if not names or len(names) > _NAMED:
        return f"{len(names)} tasks"
    return listed(names)


def called(label: str) -> str:
    """Return the name of a reference point in a sentence."""
    return f"the {label}" if label in {BASE, SOUP} else label


def merge_name(front: Front, merge: Merge) -> str:
    """Return the name of a merge: its few weights, or else its number."""
    if merge.label is not None:
        return called(merge.label)
    if len(merge.coefficients) <= _NAMED:
        short = (f"{n}={round(v, 2) + 0:g}" for n, v in merge.coefficients.items())
        return f"merge {', '.join(short)}"
    for index, point in enumerate(front.points):
        if point is merge:
            return f"merge of point {index}"
    return f"merge {merge.weights}"


def _kept(found: Gains) -> str:
    """Write which shares of the parents' gains the chosen merge keeps."""
    sure = all(source != "predicted" for source in found.sources.values())
    best = found.rival(BEST_PARENT)
    shares = {task: kept for task, kept in found.kept.items() if kept is not None}
    verb = (
        "reach" if any(round(100 * kept) > 100 for kept in shares.values()) else "keep"
    )
    keeps = f"{verb}{'es' if verb == 'reach' else 's'}"
    keeps = keeps if sure else f"is predicted to {verb}"
    if best is None or not shares:
        return _better_than_base(found)
    if len(shares) > _NAMED:
        low, high = (end(shares, key=shares.__getitem__) for end in (min, max))
        ends = (f"{share_in_words(shares[task])} ({task})" for task in (low, high))
        return f"{keeps} {' to '.join(ends)} of the best parents' gains"
    texts: list[str] = []
    for task, share in shares.items():
        parent = best.tasks[task].other if task in best.tasks else "the best parent"
        on = "" if parent == task else f" on {task}"
        amount = "none" if round(100 * share) <= 0 else share_in_words(share)
        if sure and amount != "none" and task in found.where(BASE, "noise"):
            amount = "no significant part"
        texts.append(f"{amount} of the gain of {parent}{on}")
    return f"{keeps} {listed(texts)}"


def _better_than_base(found: Gains) -> str:
    if better := found.where(BASE, "better"):
        return f"is better than the base on {_tasks(better)}"
    return "is not significantly better than the base"


def _worse_than_base(found: Gains) -> str:
    worse = found.where(BASE, "worse")
    return f"is worse than the base on {_tasks(worse)}" if worse else ""


def _against(found: Gains, label: str) -> str:
    better, worse, same = (found.where(label, verdict) for verdict in VERDICTS)
    if not (better or worse or same):
        return ""
    if not better and not worse:
        return f"shows no significant difference from the {label}"
    known = [("better", better), ("worse", worse)]
    parts = [f"{word} on {_tasks(tasks)}" for word, tasks in known if tasks]
    parts[0] = parts[0].replace(" on ", f" than the {label} on ", 1)
    rest = f", with no significant difference on {_tasks(same)}" if same else ""
    return f"is {' and '.join(parts)}{rest}"


def sample(front: Front, found: Gains) -> str:
    """Return on which documents the gains were measured."""
    sources, holdout = set(found.sources.values()), front.holdout
    if "predicted" in sources:
        return "These values are predicted; `mergekit-map merge` measures them."
    searched = "Measured on the documents by which this merge was chosen"
    if holdout is None:
        better = "gains may look better than they are"
        return f"{searched}: {better}. `--holdout 0.3` checks them on others."
    if "held-out" not in sources:
        return f"{searched}; merging it measures the held-out ones."
    tasks = [task for task, source in found.sources.items() if source == "held-out"]
    counts = (f"{holdout.documents.get(task, 0)} of {task}" for task in tasks)
    text = f"Measured on held-out documents ({listed(counts)})."
    if holdout.choices > 1:
        text += (
            f" {holdout.choices} merges were tested on them, so the better ones look a "
            "little too good."
        )
    return text


def share_in_words(share: float | None) -> str:
    """Write ``84 %``; a dash where no parent gains anything."""
    return "-" if share is None else f"{round(100 * share) + 0} %"


def difference(amount: float, stderr: float | None) -> str:
    """Write ``+0.085 ± 0.012``, with two digits of the standard error."""
    if not stderr or not math.isfinite(stderr):
        return f"{amount + 0:+.2g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    # A sum with 0 has no sign where it is 0.
    return f"{round(amount, digits) + 0:+.{digits}f} ± {stderr:.{digits}f}"


def value(reading: Reading, unit: str = "") -> str:
    """Write a measured value without its own standard error.

    Standard errors of differences are smaller, as merges answer the same documents.
    """
    if reading.value is None:
        return "-"
    some = reading.documents
    on = "" if some is None else f" ({some} documents)"
    return f"{reading.value:.4g} {unit}".rstrip() + on


def prediction(reading: Reading, unit: str = "") -> str:
    """Write a prediction, named as such: ``predicted 4.02 ± 0.006 (model)``."""
    if reading.value is None:
        return "-"
    stderr = f" ± {reading.stderr:.1g}" if reading.stderr else ""
    return f"predicted {reading.value:.4g}{stderr} {unit}".rstrip() + " (model)"


def perplexities(front: Front, found: Gains) -> Iterator[str]:
    """Write the losses of the chosen merge as perplexities."""
    texts = [
        f"{perplexity(reading.value)} on {task}"
        for task, reading in found.readings.items()
        if front.tasks[task].unit == NATS and reading.value is not None
    ]
    if texts:
        yield f"As a perplexity the chosen merge has {listed(texts)}."
