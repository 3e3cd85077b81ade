"""The answer of a search: what terminal, report, card and ``--json`` begin with.

One sentence that decides, one table of gains, and the findings behind it, most
important first. Everything that says a number takes it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mergekit_map.results.front import Front
from mergekit_map.results.gain_sentences import amount_in_words, share_in_words
from mergekit_map.results.gains import BEST_PARENT, Gains, gains
from mergekit_map.results.narrative import choice_in_words
from mergekit_map.types import BASE

MERGE = "merge"
_WORDS = {"better": "better", "worse": "worse", "noise": "no significant difference"}


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
    found = gains(front)
    return Answer(
        advice=MERGE,
        headline=front.reason,
        table=gain_table(front, found),
        sample="Measured on the documents that chose it; `holdout: 0.3` confirms.",
        findings=choice_in_words(front),
        details=front.verdicts,
    )


def gain_table(front: Front, found: Gains) -> GainTable:
    """Compare the chosen merge with base, soup and best parent, task by task."""
    rows: list[tuple[str, ...]] = []
    for task in front.tasks:
        known, unit = found.readings[task], front.tasks[task].unit
        rows.append((task, "chosen merge", f"{known} {unit}".rstrip(), "", ""))
        for rival in found.rivals:
            if (one := rival.tasks.get(task)) is None:
                continue
            name = one.other if rival.label in {BASE, BEST_PARENT} else rival.label
            kept = found.kept[task] if rival.label == BEST_PARENT else None
            text = "" if kept is None else f"{share_in_words(kept)} of its gain kept"
            verdict = _WORDS[one.verdict]
            rows.append(("", name, str(one.reading), amount_in_words(one), verdict))
            if text:
                rows.append(("", "", "", text, ""))
    headings: Sequence[str] = ("task", "compared with", "value", "gain", "")
    return GainTable(tuple(headings), tuple(rows))
