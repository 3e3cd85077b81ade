"""Tables of the pages whose numbers are counted, or copied from kept results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from pages import ROOT

from mergekit_map.compare.opponents import OPPONENTS
from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.search.budget import forecast
from mergekit_map.search.planning import default_evaluations, design
from mergekit_map.search.study import Study
from mergekit_map.types import Metric

RESULTS = ROOT / "benchmarks" / "results"
KEPT = ROOT / "docs" / "results"
Rows = list[list[str]]
_SUBSETS = ("16", "32", "64")  # documents
_CENT = Decimal("0.01")


def kept_table(result: str, corner: str) -> Rows:
    """Read the table of a kept result whose first heading is ``corner``."""
    text = (RESULTS / result).read_text(encoding="utf-8")
    pattern = rf"^\| ?{re.escape(corner)} ?\|.*?(?=\n\n|\Z)"
    found = re.search(pattern, text, re.M | re.S)
    assert found is not None, f"{result} has no table that begins with {corner!r}"
    lines = [line for line in found[0].splitlines() if not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def contest_fits() -> str:
    """Copy what searches of losses know that may measure 14 merges, or 25."""
    lines = []
    for part in (RESULTS / "contest_fits.md").read_text("utf-8").split("\n## ")[1:]:
        fits, _, _ = part.partition("| measured |")
        rows = re.findall(r"^\| ours \| ((?:14|25) .*) \|$", fits, re.MULTILINE)
        if rows and not part.startswith("acc"):
            _, _, merges, *cells = rows[-1].split(" | ")
            lines.append([part.split()[0], merges, *cells[:3]])
    return _markdown(["family", "merges", "front", "R²", "regret, %"], lines)


def win_rates() -> str:
    """Write the win rates over direct search, and places among all methods."""
    header = ["models of", "N", "merges, MAP", "direct", "win rate", "own merges"]
    header += ["paper", "place: front", "select", "own merges"]
    lines = []
    for folder in sorted(path.parent for path in KEPT.glob("*/table4.json")):
        names = [
            name for name in ("table2", "table3") if (folder / f"{name}.json").exists()
        ]
        rates = [row for name in names for row in _rows(folder / f"{name}.json", 0)]
        places = {row[0]: row[1:4] for row in _rows(folder / "table4.json", 1)}
        lines += [
            [folder.name, str(n), str(ours), str(direct)]
            + [f"{100 * rate['mean']:.1f} %" for rate in (found, own, paper)]
            + [str(place) for place in places[n]]
            for n, direct, _, way, ours, _, found, own, _, _, _, paper, _ in rates
            if way == "default"
        ]
    return _markdown(header, lines)


def _rows(path: Path, table: int) -> list[list[Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    rows: list[list[Any]] = content["tables"][table]["rows"]
    return rows


def contest_matches() -> str:
    """Copy what others pay for as much, but for columns of what was not run."""
    table = kept_table("../../docs/results/contest.md", "models")
    kept = [i for i, _ in enumerate(table[0]) if any(line[i] for line in table[1:])]
    header, *lines = ([line[i] for i in kept] for line in table)
    return _markdown(header, lines)


def default_merges() -> str:
    """Write how many merges a search begins with and measures at most, by default."""
    rows = [
        (str(d), str(len(design(_study(d)))), str(default_evaluations(d)))
        for d in (1, 2, 3, 4, 6, 8)
    ]
    return _markdown(["coefficients", "merges at first", "merges at most"], rows)


def nested_measurements() -> str:
    """Write what nested and plain searches measure, by as many models as tasks."""
    rows = [
        (str(n), str(_expected(n, "map")), str(_expected(n, "nested")))
        for n in (3, 4, 6, 8)
    ]
    return _markdown(["models", "one search, at most", "nested"], rows)


def _expected(n: int, strategy: str) -> int:
    return forecast(_study(n, strategy), checkpoints=False).expected


def _study(n: int, strategy: str = "map") -> Study:
    """Search n models, measured on as many tasks."""
    names = [f"m{i}" for i in range(n)]
    zero = dict.fromkeys(names, 0.0)
    return Study(
        bounds=dict.fromkeys(names, (0.0, 1.0)),
        anchors={
            "base": zero,
            **{name: {**zero, name: 1.0} for name in names},
            "soup": dict.fromkeys(names, 1 / n),
        },
        tasks=dict.fromkeys(names, Metric(True, 0.0, 1.0)),
        definitions=dict.fromkeys(names, ""),
        merge="",
        search=SearchSpec.model_validate({"strategy": strategy}),
        select=SelectSpec(),
    )


def opponents() -> str:
    """List the opponents, in the order of the command's help."""
    return ", ".join(f"`{name}`" for name in OPPONENTS) + "\n"


def scale(corner: str) -> str:
    """Write a table of what a search takes, as it was kept."""
    header, *lines = kept_table("scale.md", corner)
    return _markdown(header, lines)


def workers() -> str:
    """Copy the time of one process, two workers and two threads."""
    header, *lines = kept_table("workers.md", "search")
    return _markdown(header[:3], [line[:3] for line in lines])


def documents_cost() -> str:
    """Write how much hypervolume a front loses by a subset of the documents."""
    rows = kept_table("documents.md", "family")
    fronts = {tuple(row[:2]): Decimal(row[5].split()[0]) for row in rows[1:]}
    families = {"docs2": "128 blocks of text", "acc2_200": "200 questions"}
    lines = [
        [about]
        + [
            f"{(100 * (fronts[name, 'all'] - fronts[name, n])).quantize(_CENT)} %"
            for n in _SUBSETS
        ]
        for name, about in families.items()
    ]
    return _markdown(["of", *(f"{n} documents" for n in _SUBSETS)], lines)


def documents_covered() -> str:
    """Write the least and the largest share of 95 % intervals that held the truth."""
    _, *rows = kept_table("documents_unbiased.md", "documents")
    shares = [round(100 * float(cell)) for row in rows for cell in row[4:6]]
    return f"{min(shares)} to {max(shares)} %"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = [" --- "] + [" ---: "] * (len(header) - 1)
    lines = [header, *rows]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([head, f"|{'|'.join(rule)}|", *body]) + "\n"


FIGURES: dict[str, Callable[[], str]] = {
    "contest-matches": contest_matches,
    "contest-fits": contest_fits,
    "win-rates": win_rates,
    "default-evaluations": default_merges,
    "nested-measurements": nested_measurements,
    "opponents": opponents,
    "scale-parameters": lambda: scale("parameters"),
    "scale-tasks": lambda: scale("tasks"),
    "scale-models": lambda: scale("models"),
    "workers": workers,
    "documents-cost": documents_cost,
    "documents-covered": documents_covered,
    "scale-side": lambda: scale("side by side"),
}
