"""The answer of a search: what terminal, report, card and ``--json`` begin with.

One sentence that decides, one table of gains, and the findings behind it, most
important first. Everything that says a number takes it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mergekit_map.results.findings import findings_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.gains import Gains, Rival, gains
from mergekit_map.results.selection import MERGE as MERGE
from mergekit_map.results.selection import advice
from mergekit_map.results.sentences import (
    VERDICTS,
    difference,
    headline,
    perplexities,
    prediction,
    sample,
    share_in_words,
    value,
)
from mergekit_map.utils.text import listed

_SHOWN = 3  # findings on the screen; the others are details


@dataclass(frozen=True)
class GainTable:
    """Headings and rows of text; positive gains are better on every task."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Answer:
    """What a search found, in the order of importance."""

    advice: str  # MERGE, or the label of the reference point to use instead
    headline: str  # the sentence that decides
    table: GainTable
    sample: str  # on which documents the gains were measured
    findings: tuple[str, ...]  # those that change a decision
    details: tuple[str, ...] = ()  # the others, for the report and ``-v``


def answer(front: Front) -> Answer:
    """Compose the answer of a front with its chosen point."""
    found, advised = gains(front), advice(front)
    instead = None if advised == MERGE else advised
    decisive, details = findings_in_words(front)
    return Answer(
        advice=advised,
        headline=headline(front, found, instead),
        table=gain_table(front, found),
        sample=sample(front, found),
        findings=tuple(decisive[:_SHOWN]),
        details=(
            *decisive[_SHOWN:],
            front.reason,
            *_in_search(front, found),
            *perplexities(front, found),
            *details,
        ),
    )


def gain_table(front: Front, found: Gains) -> GainTable:
    """Compare the chosen merge with base, soup and best parent, task by task."""
    rows: list[tuple[str, ...]] = []
    for task in front.tasks:
        known, unit = found.readings[task], front.tasks[task].unit
        predicted = found.sources[task] == "predicted"
        own = prediction(known, unit) if predicted else value(known, unit)
        rows.append((task, "chosen merge", own, "", "", _kept(found, task)))
        rows += [
            _rival_row(found, rival, task)
            for rival in found.rivals
            if task in rival.tasks
        ]
    headings = ("task", "model", "value", "the merge's gain", "", "gain kept")
    return GainTable(headings, tuple(rows))


def _kept(found: Gains, task: str, there: float | None = None) -> str:
    there = found.readings[task].value if there is None else there
    return share_in_words(None if there is None else found.share(task, there))


def _rival_row(found: Gains, rival: Rival, task: str) -> tuple[str, ...]:
    one = rival.tasks[task]
    gained, word = difference(one.amount, one.stderr), VERDICTS[one.verdict]
    kept = _kept(found, task, one.reading.value)
    return ("", one.other, value(one.reading), gained, word, kept)


def _in_search(front: Front, found: Gains) -> Iterator[str]:
    """Write the gains on the documents of the search, where others were held out."""
    if "held-out" not in found.sources.values():
        return
    for rival in gains(front, in_search=True).rivals:
        texts = [
            f"{difference(one.amount, one.stderr)} on {task}"
            for task, one in rival.tasks.items()
        ]
        yield f"In the search, the gain over the {rival.label} was {listed(texts)}."
