"""The tables of ``contest_fits.py``, from its records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from contest_table import Reference
from contest_truth import LOSS, REAL, SCENES, scene
from records import Entry, markdown, read

Searches = Mapping[tuple[str, int], Sequence[Entry]]  # by method and budget: the seeds

OURS = "ours"
# By coefficients: merges and hypervolume of the front; merges for R2 and regret.
GOALS = {2: (10, 0.995, 14), 3: (16, 0.98, 25), 4: (20, 0.98, 25)}
GOOD_R2, GOOD_REGRET = 0.95, 0.3
GOAL_COLUMNS = ("family", "front", "R², worst task", "regret, %")
POOR = 0.9  # a true R2 below this is a bad fit
HEAD = """\
# What a search knows after a few merges

    python benchmarks/contest_families.py FAMILIES
    python benchmarks/contest_fits.py run FAMILIES RUNS
    python benchmarks/contest_fits.py table FAMILIES RUNS

Medians over the seeds, and the worst seed in brackets. *Front*: hypervolume of the true
values of the recommended points, as a share of that of the same finder run on the truth
(of accuracies, which have steps: of that of a dense grid). *R²*: of the worst task on
{unseen} unseen merges. *Regret*: what the chosen point lacks of the best even sum of
the tasks, each in units of its range over the true front, in percent. *Covered*: the
share of true values within ± 1.96 standard errors, of the worst task. *Merges*: all
that were measured, those of the front included.
"""


@dataclass(frozen=True)
class Outcome:
    """What the seeds of one method and budget come to; empty where nothing is told."""

    used: float  # merges, on average
    found: list[float]  # hypervolume of what was measured
    front: list[float]  # hypervolume of what is recommended
    r2: list[float]  # of the worst task
    regret: list[float]
    covered: list[float]  # of the worst task

    @classmethod
    def of(cls, entries: Sequence[Entry], reference: Reference) -> Outcome:
        """Look up in truth what was measured and recommended."""
        fronts = [e for e in entries if "front" in e]
        return cls(
            used=float(np.mean([len(e["measured"]) for e in entries])),
            found=[reference.volume(e["measured"]) for e in entries],
            front=[reference.volume(e["front"]) for e in fronts],
            r2=[min(e["r2"]) for e in entries if "r2" in e],
            regret=[reference.regret(e["front"][e["selected"]]) for e in fronts],
            covered=[min(e["covered"]) for e in entries if "covered" in e],
        )


Outcomes = Mapping[tuple[str, int], Outcome]  # by method and budget


def table(families: Path, runs: Sequence[Path], unseen: int) -> str:
    """Write Markdown: what each way of searching comes to, scene by scene."""
    entries = [e for e in read(*runs) if "refused" not in e]
    parts, goals = [], []
    for name, here in {**SCENES, **REAL}.items():
        searches: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry["family"] == name:
                searches[entry["method"], entry["budget"]].append(entry)
        if searches:
            reference = Reference.of(scene(families, name))
            outcomes = {
                key: Outcome.of(found, reference) for key, found in searches.items()
            }
            parts += [f"## {name}", "", *_fits(outcomes), ""]
            parts += [*_measured(searches, outcomes, reference), ""]
            if reference.truth.metric is LOSS and here.d in GOALS:
                goals.append([name, *_goals(outcomes, GOALS[here.d])])
    head = [HEAD.format(unseen=unseen), "## Goals", "", *markdown(GOAL_COLUMNS, goals)]
    return "\n".join([*head, "", *parts, *_warnings(entries)])


def _goals(outcomes: Outcomes, goals: tuple[int, float, int]) -> list[str]:
    """Hold ``ours`` against what it must reach; what it misses is in italics."""
    first, volume, second = goals
    front = outcomes.get((OURS, first))
    fit = outcomes.get((OURS, second))
    return [
        _goal(first, volume, front.front if front else [], at_least=True),
        _goal(second, GOOD_R2, fit.r2 if fit else [], at_least=True),
        _goal(second, GOOD_REGRET, fit.regret if fit else [], at_least=False),
    ]


def _goal(n: int, wanted: float, values: list[float], *, at_least: bool) -> str:
    if not values:
        return ""
    reached = float(np.median(values))
    met = reached >= wanted if at_least else reached <= wanted
    text = f"{reached:.4f}" if met else f"*{reached:.4f}*"
    return f"{text} ({'at least' if at_least else 'at most'} {wanted:g} at {n})"


def _fits(outcomes: Outcomes) -> list[str]:
    """Tell what is predicted and recommended, a row for each method and budget."""
    columns = "method", "budget", "seeds", "merges", "front", "R²", "regret", "covered"
    rows = [
        [
            *(method, str(budget), str(len(outcome.found)), f"{outcome.used:.1f}"),
            _median(outcome.front, min, "{:.4f}"),
            _median(outcome.r2, min, "{:.3f}"),
            _median(outcome.regret, max, "{:.2f}"),
            _median(outcome.covered, min, "{:.2f}"),
        ]
        for (method, budget), outcome in sorted(outcomes.items())
        if outcome.r2
    ]
    return markdown(columns, rows)


def _measured(
    searches: Searches, outcomes: Outcomes, reference: Reference
) -> list[str]:
    """Hold what a search of ours has measured against opponents' as many merges."""
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (method, budget), found in searches.items():
        if not outcomes[method, budget].r2:
            curves[method] += _curve(found, reference)
    rows = []
    for (method, budget), outcome in sorted(outcomes.items()):
        if "said" not in searches[method, budget][0]:
            continue
        theirs = []
        for curve in curves.values():
            merges, reached = np.array(sorted(curve)).T
            theirs.append(float(np.interp(outcome.used, merges, reached)))
        best = "**" if np.median(outcome.found) >= max(theirs, default=0.0) else ""
        ours = best + _median(outcome.found, min, "{:.3f}") + best
        cells = [f"{volume:.3f}" for volume in theirs]
        rows.append([method, str(budget), f"{outcome.used:.1f}", ours, *cells])
    columns = ("method", "budget", "merges", "measured", *curves)
    return markdown(columns, rows)


def _curve(found: Sequence[Entry], reference: Reference) -> list[tuple[float, float]]:
    """Give merges and the median volume of the first so many, for one budget's runs.

    A search by populations is only taken at its whole budget, as that is what it was
    planned for.
    """
    whole = len(found[0]["measured"])
    sizes = range(4, whole + 1, 2) if found[0].get("sequential") else [whole]
    return [
        (n, float(np.median([reference.volume(e["measured"][:n]) for e in found])))
        for n in sizes
    ]


def _warnings(entries: Iterable[Entry]) -> list[str]:
    """Count fits, by method: whether they are bad, and whether that was said."""
    counts: dict[str, dict[tuple[bool, bool], int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for entry in entries:
        if "said" in entry:
            for r2, said in zip(entry["r2"], entry["said"], strict=True):
                counts[entry["method"]][r2 < POOR, said] += 1
    rows = [
        [
            method,
            f"{found[True, True]} of {found[True, True] + found[True, False]}",
            f"{found[False, True]} of {found[False, True] + found[False, False]}",
        ]
        for method, found in counts.items()
    ]
    columns = ("method", f"R² below {POOR}: said", "false alarms")
    return ["## Predictions are poor", "", *markdown(columns, rows)]


def _median(
    values: Sequence[float], worst: Callable[[Sequence[float]], float], form: str
) -> str:
    if not values:
        return ""
    return f"{form} ({form})".format(float(np.median(values)), worst(values))
