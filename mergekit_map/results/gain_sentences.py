"""Sentences on gains over reference points, held-out results and dominance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mergekit_map.results.dominance import Dominance
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import (
    Gains,
    Improvement,
    Verdict,
    ahead_of,
    gains,
    labelled,
)
from mergekit_map.results.holdout import Amount, Gain, HoldoutEvaluation
from mergekit_map.types import BASE, NATS, SOUP, perplexity
from mergekit_map.utils.text import listed, number_in_words

_LISTED = 4  # tasks that are named one by one
_SOUP: dict[Verdict, str] = {
    "better": "better than the soup on",
    "worse": "worse than the soup on",
    "noise": "as good as the soup, within noise, on",
}


def gains_in_words(front: Front, found: Gains | None = None) -> list[str]:
    """Describe the gains; tasks on which the base is better come first.

    ``gains`` saves computing them again.
    """
    found = found or gains(front)
    return [*worse_than_base(front, found), *_gained(front, found)]


def worse_than_base(front: Front, found: Gains) -> list[str]:
    """Write sentences on the tasks where the base is better than the chosen merge."""
    base = found.rival(BASE)
    sentences = []
    for task, gained in base.tasks.items() if base is not None else ():
        if gained.amount >= 0:
            continue
        source, unit = found.sources[task], front.tasks[task].unit
        how = "" if source == "measured" else f", as {source}"
        values = f"{found.readings[task]} against {gained.reading} {unit}".rstrip()
        by = f" ({-ahead:.1f} standard errors)" if (ahead := gained.errors) else ""
        noise = ", within noise" if gained.verdict == "noise" else ""
        sentences.append(f"Worse than the base on {task}{how}: {values}{by}{noise}.")
    return sentences


def _gained(front: Front, found: Gains) -> list[str]:
    sentences = _kept_in_words(found)
    against = [
        f"{words} {listed(tasks)}"
        for verdict, words in _SOUP.items()
        if (tasks := found.where(SOUP, verdict))
    ]
    if against:
        sentences.append(f"It is {listed(against)}.")
    return [*sentences, *_perplexities(front, found)]


def _perplexities(front: Front, found: Gains) -> list[str]:
    """Write losses as perplexities, with those of all rivals."""
    values = []
    for task, reading in found.readings.items():
        if front.tasks[task].unit != NATS or reading.value is None:
            continue
        others = [
            f"{there.other} {perplexity(there.reading.value)}"
            for rival in found.rivals
            if (there := rival.tasks.get(task)) and there.reading.value is not None
        ]
        besides = f" ({', '.join(others)})" if others else ""
        values.append(f"{task} {perplexity(reading.value)}{besides}")
    if not values:
        return []
    start = "As a perplexity" if len(values) == 1 else "As perplexities"
    return [f"{start}: {', '.join(values)}."]


def margins_in_words(front: Front, label: str) -> str:
    """Write by how much the chosen merge is better than a reference point, per task."""
    rival = labelled(front, label)
    if rival is None:
        return f"not worse than {label}"
    margins = (
        f"on {task} by {_margin(ahead_of(front, rival, task))}" for task in front.tasks
    )
    return f"not worse than {label} ({listed(margins)})"


def _margin(ahead: Reading) -> str:
    if ahead.value is None:
        return "an unknown margin"
    if not ahead.stderr:
        return f"{ahead.value:.2g}"
    return f"{ahead.value / ahead.stderr:.1f} standard errors"


def _kept_in_words(found: Gains) -> list[str]:
    shares = {t: share for t, share in found.kept.items() if share is not None}
    kept = {task: share for task, share in shares.items() if round(100 * share) >= 0}
    of = "of the best parent's gain over the base"
    if not kept:
        return []
    if len(kept) <= _LISTED:
        words = [f"{share_in_words(share)} on {task}" for task, share in kept.items()]
        first = words[0].replace("%", f"% {of}", 1)
        return [f"The chosen merge keeps {listed([first, *words[1:]])}."]
    low, high = min(kept, key=kept.__getitem__), max(kept, key=kept.__getitem__)
    span = (
        f"{share_in_words(kept[low])} ({low}) to {share_in_words(kept[high])} ({high})"
    )
    return [f"The chosen merge keeps {span} {of}."]


def amount_in_words(gained: Improvement) -> str:
    """Write ``+0.085 ± 0.012``, with two digits of the standard error."""
    amount, stderr = gained.amount, gained.stderr
    if not stderr:
        return f"{amount:+.2g}"
    digits = max(0, 1 - math.floor(math.log10(stderr)))
    # A sum with 0 has no sign where it is 0.
    return f"{round(amount, digits) + 0:+.{digits}f} ± {stderr:.{digits}f}"


def share_in_words(share: float | None) -> str:
    """Write ``84 %``; a dash where no parent gains anything."""
    return "-" if share is None else f"{round(100 * share)} %"


_KINDS = ("better", "worse", "noise")


def confirmed_in_words(front: Front) -> tuple[str, ...]:
    """Describe the gains on held-out documents; nothing without such documents."""
    return () if front.holdout is None else tuple(_sentences(front, front.holdout))


def _sentences(front: Front, holdout: HoldoutEvaluation) -> Iterator[str]:
    place = holdout.place(front.chosen.coefficients)
    known = {} if place is None else holdout.merges[place].measured
    if not known:
        yield (
            "The chosen merge was not measured yet on "
            f"{_documents(front, holdout)}: merging it does so, or a search that is "
            "told to choose it."
        )
        return
    start = f"On {_documents(front, holdout)}, the chosen merge"
    for other, rows in _by_other(holdout):
        yield f"{start} is {_compared(front, other, rows)}."
        start = "It"
    if missing := [task for task in front.tasks if task not in known]:
        yield f"{listed(missing)} could not be measured there."
    if broken := [gain for gain in holdout.gains if gain.kept is False]:
        yield _broken(broken)
    if holdout.choices > 1:
        yield (
            f"{holdout.choices} choices were confirmed on these documents: the more "
            "there are, the less the best of them is confirmed."
        )


def _documents(front: Front, holdout: HoldoutEvaluation) -> str:
    counts = {task: holdout.documents.get(task, 0) for task in front.tasks}
    if len({*counts.values()}) > 1:
        each = listed(f"{count} of {task}" for task, count in counts.items())
        return f"documents that the search never saw ({each})"
    of = " of each task" if len(counts) > 1 else ""
    return f"{min(counts.values())} documents{of} that the search never saw"


def _by_other(holdout: HoldoutEvaluation) -> Iterator[tuple[str, list[Gain]]]:
    """Group gains by reference: the base, the best single models, and the soup."""
    single = [g for g in holdout.gains if g.other not in {BASE, SOUP}]
    of_base, of_soup = (
        [g for g in holdout.gains if g.other == label] for label in (BASE, SOUP)
    )
    name = "the best single model"
    for other, rows in ((BASE, of_base), (name, single), (SOUP, of_soup)):
        if rows:
            yield other, rows


def _compared(front: Front, other: str, gains: Sequence[Gain]) -> str:
    texts: list[str] = []
    for kind in _KINDS:
        of_kind = [gain for gain in gains if gain.verdict == kind]
        if not of_kind:
            continue
        on = listed(_gain_with_promise(front, other, gain) for gain in of_kind)
        first = "" if texts else f" {'of' if kind == 'noise' else 'than'} {other}"
        word = "within noise" if kind == "noise" else kind
        texts.append(f"{word}{first} on {on}")
    return ", ".join(texts)


def _gain_with_promise(front: Front, other: str, gain: Gain) -> str:
    """Describe the gain or loss of the chosen merge, and the promised one."""
    metric = front.tasks[gain.task].metric
    name = gain.task if gain.other == other else f"{gain.task} ({gain.other})"
    unit = f" {metric.unit}" if metric.unit else ""
    promise = gain.measured or gain.predicted
    ahead = metric.sign * gain.held_out.value
    size = f"{_size(gain.held_out)}{unit}"
    if gain.verdict == "noise":
        size = f"{_direction(ahead)} by {size}"
        promised = "" if promise is None else f", {_promised(metric.sign, promise, 0)}"
        return f"{name} ({size}{promised})"
    promised = "" if promise is None else f" ({_promised(metric.sign, promise, ahead)})"
    return f"{name} by {size}{promised}"


def _promised(sign: int, promise: Amount, ahead: float) -> str:
    """Write a promised gain; its direction only where it differs."""
    value = sign * promise.value
    if value * ahead > 0:
        return f"promised {_size(promise)}"
    return f"promised {_direction(value)} by {_size(promise)}"


def _direction(ahead: float) -> str:
    return "better" if ahead >= 0 else "worse"


def _size(amount: Amount) -> str:
    """Write as many digits as the standard error supports."""
    value, stderr = abs(amount.value), amount.stderr
    if not stderr:
        return f"{value:.2g}"
    digits = max(0, -math.floor(math.log10(stderr)))
    return f"{value:.{digits}f} ± {stderr:.{digits}f}"


def _broken(gains: Sequence[Gain]) -> str:
    which = listed(f"{gain.task} against {gain.other}" for gain in gains)
    was = "promise was" if len(gains) == 1 else "promises were"
    return f"The {was} off by more than chance for {which}: believe these documents."


def dominates_in_words(front: Front, found: Dominance) -> str:
    """State that one merge dominates another."""
    one, other = name_of(front, found.merge), name_of(front, found.other)
    return f"As measured, {one} dominates {other}: {_better(front, found)}."


def nearly_in_words(front: Front, found: Dominance) -> str:
    """Name the merge nearest to dominating another, and how near it comes."""
    one, other = name_of(front, found.merge), name_of(front, found.other)
    return (
        f"No measured merge dominates {other} beyond doubt. Nearest to it is {one}: "
        f"{_better(front, found)}; among {found.comparisons} comparisons, chance alone "
        f"gives as much in up to {100 * found.chance:.2g} % of searches."
    )


def _better(front: Front, found: Dominance) -> str:
    texts = []
    for task, errors in found.tasks.items():
        metric = front.tasks[task].metric
        values = found.merge.measured[task], found.other.measured[task]
        text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
        lower = "" if metric.higher_is_better else ", lower is better"
        noise = "; standard errors unknown" if errors is None else ""
        by = f" by {_errors(errors)}" if errors is not None else ""
        texts.append(f"{task}{by} ({text}{lower}{noise})")
    rest = [f"better on {listed(texts)}"]
    if found.within:
        rest.append(f"within noise on {_others(front, found.within, found)}")
    if found.level:
        rest.append(f"level on {_others(front, found.level, found)}")
    return ", ".join(rest)


def _errors(errors: float) -> str:
    if math.isinf(errors):
        return "more than noise"
    return f"{errors:.{0 if errors >= 10 else 1}f} standard errors"


def _others(front: Front, tasks: Sequence[str], found: Dominance) -> str:
    """Name tasks; count them where they are many and all the others."""
    if len(tasks) < 3 or len(tasks) + len(found.tasks) < len(front.tasks):
        return listed(tasks)
    return f"the other {number_in_words(len(tasks))}"


def name_of(front: Front, merge: Merge) -> str:
    """Return the name of a merge: its label, its point or its weights."""
    if merge.label is not None:
        return merge.label
    for index, point in enumerate(front.points):
        if point is merge:
            chosen = index == front.selected
            name = f"point {index}"
            return f"the chosen {name}" if chosen else f"{name} ({merge.weights})"
    return f"the merge with {merge.weights}"
