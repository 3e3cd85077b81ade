"""What the chosen merge gains, in a sentence or two."""

from __future__ import annotations

import math

from mergekit_map.measurement import BASE, NATS, SOUP, perplexity
from mergekit_map.results.front import Front, Reading
from mergekit_map.results.gained import (
    Gained,
    Gains,
    Verdict,
    ahead_of,
    gains,
    labelled,
)
from mergekit_map.words import listed

_LISTED = 4  # tasks that are named one by one
_SOUP: dict[Verdict, str] = {
    "better": "better than the soup on",
    "worse": "worse than the soup on",
    "noise": "as good as the soup, within noise, on",
}


def gains_in_words(front: Front, found: Gains | None = None) -> list[str]:
    """Say what is gained, and first of all on which tasks the base is better.

    What is gained need not be found anew where it is known.
    """
    found = found or gains(front)
    return [*worse_than_base(front, found), *_gained(front, found)]


def worse_than_base(front: Front, found: Gains) -> list[str]:
    """Say on which tasks the base is better than the chosen merge, if on any."""
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
    """Say losses as people compare them, with those of all rivals."""
    told = []
    for task, reading in found.readings.items():
        if front.tasks[task].unit != NATS or reading.value is None:
            continue
        others = [
            f"{there.other} {perplexity(there.reading.value)}"
            for rival in found.rivals
            if (there := rival.tasks.get(task)) and there.reading.value is not None
        ]
        besides = f" ({', '.join(others)})" if others else ""
        told.append(f"{task} {perplexity(reading.value)}{besides}")
    if not told:
        return []
    start = "As a perplexity" if len(told) == 1 else "As perplexities"
    return [f"{start}: {', '.join(told)}."]


def margins_in_words(front: Front, label: str) -> str:
    """Say by how much the chosen merge is not worse than an anchor, task by task."""
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
    told = {task: share for task, share in shares.items() if round(100 * share) >= 0}
    of = "of the best parent's gain over the base"
    if not told:
        return []
    if len(told) <= _LISTED:
        words = [f"{share_in_words(share)} on {task}" for task, share in told.items()]
        first = words[0].replace("%", f"% {of}", 1)
        return [f"The chosen merge keeps {listed([first, *words[1:]])}."]
    low, high = min(told, key=told.__getitem__), max(told, key=told.__getitem__)
    span = (
        f"{share_in_words(told[low])} ({low}) to {share_in_words(told[high])} ({high})"
    )
    return [f"The chosen merge keeps {span} {of}."]


def amount_in_words(gained: Gained) -> str:
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
