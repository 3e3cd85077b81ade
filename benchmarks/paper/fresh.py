"""Table 4 once more, on texts that no method has seen.

What a method gives a preference was chosen by measurements, and table 4 counts these
same ones: of many merges it prefers the lucky. Here the merges that were chosen are
measured on others: the second half of each text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.compare.indicators import best_merges, weighted_sums
from mergekit_map.compare.tables import Column, Table
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.utils.files import write_atomically
from paper.kept import Result
from paper.preferences import ASKED, DEFAULT, ahead, asked
from paper.runs import Runs
from paper.searched import Compared

TOKENS = 1024  # of each text, at most
_OURS = (DEFAULT, ASKED)
_NAMES = {"random": "Direct search", "moead": "MOEA/D"}
_CAPTION = (
    "How much more a default search gives a preference than others that measure many "
    "merges: mean of the differences over 20 preferences ± its standard error over "
    "these, which is not that of measuring, in the units of table 4. *Front* and "
    "*select*: the point of its front that is predicted best, and what `mergekit-map "
    "select --prefer` gives. *Seen*: as in table 4, by what each method itself "
    "measured (of these merges, for MAP). *Fresh*: the same merges, {what}."
)


def fresh(runs: Runs) -> Result:
    """Hold what methods gave the preferences against items that they did not see."""
    rows = [row for n in runs.sizes for row in _rows(runs, n)]
    ahead_of = [sum(row[i].mean > 0 for row in rows) for i in range(2, len(rows[0]))]
    what = f"on {TOKENS} tokens of the other half of each text"
    return Result(
        title="Fresh: the merges of table 4 on items that nobody saw",
        headline=(
            f"A default search is ahead in {ahead_of[0]} of {len(rows)} comparisons by "
            f"what was measured to search, in {ahead_of[1]} {what}; what `select "
            f"--prefer` gives of it in {ahead_of[2]} and {ahead_of[3]} (not in the "
            "paper)."
        ),
        tables=[
            Table(
                name="fresh",
                title="How far MAP is ahead",
                caption=_CAPTION.format(what=what),
                columns=[
                    *(Column("N"), Column("ahead of")),
                    *(Column("front: seen", 4), Column("front: fresh", 4)),
                    *(Column("select: seen", 4), Column("select: fresh", 4)),
                ],
                rows=rows,
            )
        ],
    )


def _rows(runs: Runs, n: int) -> list[list[Any]]:
    models = runs.models[:n]
    compared = runs.compare(runs.plain(models), runs.direct(n))
    chosen = _chosen(runs, models, compared)
    folder = runs.folder / "fresh"
    X = np.vstack([X for X, _ in chosen.values()])
    anew = runs.measured(folder, _content(runs, models, folder), X)
    parts = np.split(-anew, len(chosen))  # of losses
    terms = compared.preferences, compared.scale
    sums = {
        name: [weighted_sums(Y, *terms) for Y in (seen, part)]
        for (name, (_, seen)), part in zip(chosen.items(), parts, strict=True)
    }
    ours = [sums.pop(name) for name in _OURS]
    return [
        [n, name, *map(ahead, ours[0], of), *map(ahead, ours[1], of)]
        for name, of in sums.items()
    ]


def _chosen(
    runs: Runs, models: Sequence[str], compared: Compared
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Give what each preference gets: merges (P, d), and what was measured (P, m)."""
    terms = compared.preferences, compared.scale
    assessed = compared.assessed()
    shown = compared.study.vectors(compared.shown)
    rows = best_merges(assessed.predicted, *terms)
    found = {
        DEFAULT: (shown[rows], assessed.measured[rows]),
        ASKED: asked(runs, models, compared),
    }
    own = compared.study.vectors(compared.own_merges)
    rivals = compared.contest.rivals
    of = {"MAP, own merges": (own, compared.own)}
    of |= {label: (rivals[name].X, rivals[name].Y) for name, label in _NAMES.items()}
    for name, (X, Y) in of.items():
        rows = best_merges(Y, *terms)
        found[name] = (X[rows], Y[rows])
    return found


def _content(runs: Runs, models: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the configuration of some models, on the second half of each text."""
    content = runs.content(models)
    for task in content["map"]["tasks"].values():
        source = Path(task["perplexity"]["file"])
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomically(folder / source.name, "".join(lines[len(lines) // 2 :]))
        task["perplexity"] = {**task["perplexity"], "file": str(folder / source.name)}
        task["max_tokens"] = TOKENS
    return content
