"""The tables of ``fewer_evaluations.py``, from its records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.compare.indicators import hypervolume
from mergekit_map.search.dense import non_dominated

REFERENCE = "everything known"
MEAN_R2, WORST_R2, VOLUME = 0.95, 0.90, 0.99
CURVE = (10, 20, 30, 40, 60, 80, 100, 150, 200)
Array = np.ndarray[Any, np.dtype[np.float64]]


def table(runs: Path) -> str:
    """Write Markdown: what each method needs, and how it gets there."""
    parts = []
    needs: dict[str, dict[int, str]] = defaultdict(dict)
    sizes = sorted(int(p.stem.split("-")[1]) for p in runs.glob("runs-*.jsonl"))
    for size in sizes:
        lines = (runs / f"runs-{size}.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        volumes = _Volumes(entries)
        ours, theirs = _ours(entries, volumes), _theirs(entries, volumes)
        for method, rows in ours.items():
            needs[f"{method}: R²"][size] = _first(rows, _fits)
            needs[f"{method}: hypervolume"][size] = _first(rows, _is_whole)
        for method, rows in theirs.items():
            needs[f"{method}: hypervolume"][size] = _first(rows, _is_whole)
        parts += [f"## N = {size}", "", _our_table(ours), "", _their_table(theirs), ""]
        parts += [f"Reference fronts scatter by {volumes.scatter:.1%}.", ""]
    return "\n".join(
        ["# Evaluations needed", "", _need_table(needs, sizes), "", *parts]
    )


class _Volumes:
    """Hypervolumes in units of that of a front of everything that was measured.

    That is the front of surrogates fitted to the measurements of all methods together,
    with as many points as ours, and measured like ours. Volumes reach from the worst to
    the best of these reference fronts, task by task.
    """

    def __init__(self, entries: Sequence[dict[str, Any]]):
        fronts = [np.array(e["front"]) for e in entries if e["method"] == REFERENCE]
        union = np.vstack(fronts)
        union = union[non_dominated(union)]
        self._frame = np.vstack([union.min(axis=0), union.max(axis=0)])
        volumes = [hypervolume(Y, self._frame) for Y in fronts]
        self._reference = float(np.median(volumes))
        self.scatter = float(np.std(volumes)) / self._reference

    def share(self, Y: Array) -> float:
        return hypervolume(Y, self._frame) / self._reference


def _ours(
    entries: Iterable[dict[str, Any]], volumes: _Volumes
) -> dict[str, list[dict[str, Any]]]:
    """Median over the seeds, per method and budget."""
    grouped: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in entries:
        if "front" in entry and entry["method"] != REFERENCE:
            grouped[entry["method"]][entry["budget"]].append(entry)
    return {
        method: [_summary(found, volumes) for _, found in sorted(budgets.items())]
        for method, budgets in grouped.items()
    }


def _summary(found: Sequence[dict[str, Any]], volumes: _Volumes) -> dict[str, Any]:
    r2 = np.array([e["r2"] for e in found]) if found[0]["r2"] else None
    return {
        "evaluations": float(np.median([e["evaluations"] for e in found])),
        "mean": None if r2 is None else float(np.median(r2.mean(axis=1))),
        "worst": None if r2 is None else float(np.median(r2.min(axis=1))),
        "volume": float(
            np.median([volumes.share(np.array(e["front"])) for e in found])
        ),
        "seeds": len(found),
    }


def _theirs(
    entries: Iterable[dict[str, Any]], volumes: _Volumes
) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[Array]] = defaultdict(list)
    for entry in entries:
        if "measured" in entry:
            grouped[entry["method"]].append(np.array(entry["measured"]))
    return {
        method: [
            {
                "evaluations": n,
                "volume": float(np.median([volumes.share(Y[:n]) for Y in found])),
                "seeds": len(found),
            }
            for n in CURVE
            if n <= min(map(len, found))
        ]
        for method, found in grouped.items()
    }


def _fits(row: dict[str, Any]) -> bool:
    return (
        row["mean"] is not None and row["mean"] >= MEAN_R2 and row["worst"] >= WORST_R2
    )


def _is_whole(row: dict[str, Any]) -> bool:
    return bool(row["volume"] >= VOLUME)


def _first(rows: Sequence[dict[str, Any]], reached: Any) -> str:
    """Name the fewest evaluations from which on the mark is held."""
    held = None
    for row in reversed(rows):
        if not reached(row):
            break
        held = row["evaluations"]
    return f"{held:.3g}" if held is not None else f"> {rows[-1]['evaluations']:.3g}"


def _need_table(needs: dict[str, dict[int, str]], sizes: Sequence[int]) -> str:
    rows = [
        [name, *(found.get(size, "") for size in sizes)]
        for name, found in needs.items()
    ]
    return _markdown(["", *(f"N = {size}" for size in sizes)], rows)


def _our_table(ours: dict[str, list[dict[str, Any]]]) -> str:
    rows = [
        [
            method,
            f"{row['evaluations']:.3g}",
            "" if row["mean"] is None else f"{row['mean']:.3f}",
            "" if row["worst"] is None else f"{row['worst']:.3f}",
            f"{row['volume']:.3f}",
            str(row["seeds"]),
        ]
        for method, found in ours.items()
        for row in found
    ]
    head = ["ours", "evaluations", "R², mean", "R², worst task", "hypervolume", "seeds"]
    return _markdown(head, rows)


def _their_table(theirs: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for method, found in theirs.items():
        at = {row["evaluations"]: f"{row['volume']:.3f}" for row in found}
        rows.append([method, *(at.get(n, "") for n in CURVE), str(found[0]["seeds"])])
    return _markdown(["hypervolume after", *map(str, CURVE), "seeds"], rows)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
