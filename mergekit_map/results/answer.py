"""The answer of a search: what terminal, report, card and ``--json`` begin with.

One sentence that decides, one table of gains, and the findings behind it, most
important first. Everything that says a number takes it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mergekit_map.optimize.degenerate_front import TradeOff
from mergekit_map.results.diagnostics import FewMerges, PoorFit, diagnose
from mergekit_map.results.dominance import Dominance
from mergekit_map.results.front import Front, Unfinished
from mergekit_map.results.gain_sentences import confirmed_in_words
from mergekit_map.results.gains import BEST_PARENT, Gains, gains
from mergekit_map.results.narrative import missed_as_measured
from mergekit_map.results.selection import MERGE as MERGE
from mergekit_map.results.selection import advice
from mergekit_map.results.sentences import (
    VERDICTS,
    called,
    difference,
    headline,
    larger_box,
    merge_name,
    perplexities,
    prediction,
    sample,
    share_in_words,
    value,
)
from mergekit_map.types import BASE
from mergekit_map.utils.text import listed, percent

_SHOWN = 3  # findings on the screen; the others are details
_UNRELIABLE = 0.1  # share of the front's range that predictions on it may miss by


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
    findings = list(_findings(front))
    details = [
        *findings[_SHOWN:],
        front.reason,
        *perplexities(front, found),
        *confirmed_in_words(front),
        *front.verdicts,
    ]
    return Answer(
        advice=advised,
        headline=headline(front, found, None if advised == MERGE else advised),
        table=gain_table(front, found),
        sample=sample(front, found),
        findings=tuple(findings[:_SHOWN]),
        details=tuple(details),
    )


def _findings(front: Front) -> Iterator[str]:
    """Write the findings that change a decision, the most important first."""
    verdicts = diagnose(front)
    yield from missed_as_measured(front)
    for one in verdicts:
        if isinstance(one, Dominance) and one.merge.label is None:
            name, tasks = merge_name(front, one.merge), listed(one.tasks)
            yield f"The {name} is better on {tasks} and worse on no task: choose it."
    for one in verdicts:
        if isinstance(one, Unfinished):
            done = f"{one.measured} of at most {one.most} merges are measured"
            yield f"The search is not finished: {done}."
    for one in verdicts:
        if isinstance(one, FewMerges):
            yield (
                f"Only {one.fitted} merges were measured for {one.coefficients} "
                "coefficients: predictions are a guess; allow more evaluations."
            )
    yield from _on_predictions(front, [v for v in verdicts if isinstance(v, PoorFit)])
    for one in verdicts:
        if isinstance(one, TradeOff) and one.kind == "within noise":
            yield (
                "The points of the front differ by less than the noise on every task: "
                "measure more documents."
            )
    if front.border:
        yield larger_box(front, front.border)


def _on_predictions(front: Front, poor: list[PoorFit]) -> Iterator[str]:
    errors = {task: about.fit.front_error for task, about in front.tasks.items()}
    known = {task: error for task, error in errors.items() if error is not None}
    worst = max(known, key=known.__getitem__, default=None)
    if worst is not None and known[worst] > _UNRELIABLE:
        yield (
            f"Predictions on the front are good only to ± {percent(known[worst])} of "
            f"its range ({worst}): trust measured points, or allow more evaluations."
        )
    elif unknown := [one.task for one in poor if one.box and one.task not in known]:
        yield (
            f"Predictions of {listed(unknown)} are unreliable: trust measured points, "
            "or allow more evaluations."
        )


def gain_table(front: Front, found: Gains) -> GainTable:
    """Compare the chosen merge with base, soup and best parent, task by task."""
    rows: list[tuple[str, ...]] = []
    for task in front.tasks:
        known, unit = found.readings[task], front.tasks[task].unit
        predicted = found.sources[task] == "predicted"
        own = prediction(known, unit) if predicted else value(known, unit)
        kept = found.kept[task]
        rows.append((task, "chosen merge", own, "", "", share_in_words(kept)))
        for rival in found.rivals:
            if (one := rival.tasks.get(task)) is None:
                continue
            share = {BASE: 0.0, BEST_PARENT: 1.0}.get(rival.label)
            if rival.label not in {BASE, BEST_PARENT}:
                share = _share(found, task, one.reading.value)
            gained = difference(one.amount, one.stderr)
            cells = called(one.other).removeprefix("the "), value(one.reading)
            shown = "-" if kept is None else share_in_words(share)
            rows.append(("", *cells, gained, VERDICTS[one.verdict], shown))
    headings = ("task", "model", "value", "the merge's gain", "", "gain kept")
    return GainTable(headings, tuple(rows))


def _share(found: Gains, task: str, there: float | None) -> float | None:
    """Return the share of the best parent's gain over the base that a value keeps."""
    rows = [found.rival(label) for label in (BASE, BEST_PARENT)]
    values = [
        row.tasks[task].reading.value for row in rows if row and task in row.tasks
    ]
    if there is None or len(values) < len(rows) or None in values:
        return None
    base, best = (known or 0.0 for known in values)
    return (there - base) / (best - base) if best != base else None
