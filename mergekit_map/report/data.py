"""The content of a report as plain data, which the script of the page reads.

It begins with the answer of the search. Tasks, coefficients and estimates are lists in
one order. An estimate is a value and its standard error, null where it is unknown, and
its number of documents where these are not all. Numbers that choose are exact; the
grids of the surrogates are rounded.
"""

from __future__ import annotations

import contextlib
import platform
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mergekit_map._version import __version__
from mergekit_map.errors import ConfigError
from mergekit_map.report.merges import (
    ItemReader,
    measured_merges,
    pairs,
    predict_surfaces,
)
from mergekit_map.results.answer import answer, gain_table, sample
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import KINDS, Front, Merge, Task
from mergekit_map.results.gains import anchor_values, gains, task_weights
from mergekit_map.results.limits import find_limits
from mergekit_map.results.search_plan import unfinished_in_words
from mergekit_map.types import NO_SINGLE_MODEL
from mergekit_map.utils.files import plain


def report_content(run: FinishedSearch) -> Mapping[str, object]:
    """Return the content of the page of a finished search.

    Raises:
        ArtifactError: a recipe is missing, or a surrogate predicts no finite numbers.
    """
    front, surfaces = run.front, predict_surfaces(run)
    parents = [anchor.coefficients for anchor in front.anchors]
    # There may be tens of thousands of them, so they are plain from the beginning.
    many = {
        "points": [
            {
                **_readings(front, point),
                "recipe": run.folder.read_recipe(index),
                "recommended": index in front.recommended
                and point.coefficients not in parents,
                **_gains(front, index),
            }
            for index, point in enumerate(front.points)
        ],
        "merges": measured_merges(run),
    }
    content: dict[str, object] = {
        "name": _name(run.folder.named),
        "run": shlex.quote(str(run.folder.named)),
        "facts": _facts(run),
        "answer": asdict(answer(front)),
        "unfinished": unfinished_in_words(run.folder, front),
        "coefficients": [
            {"name": name, "bounds": bounds}
            for name, bounds in front.coefficients.items()
        ],
        "order": front.order,
        "tasks": [task_content(name, about) for name, about in front.tasks.items()],
        "anchors": [
            {"label": a.label, "kind": kind_of(a.label), **_readings(front, a)}
            for a in front.anchors
        ],
        "selected": front.selected,
        "start": _start(front),
        "items": list(_items(run)),
        "surfaces": {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in vars(surfaces).items()
        },
    }
    return {**plain(content), **many}


def kind_of(label: str | None) -> str | None:
    """Return the kind of a reference point: base, soup or model."""
    return label if label is None or label in NO_SINGLE_MODEL else "model"


def _gains(front: Front, index: int) -> dict[str, object]:
    """Return rows and documents of the table of gains as if a point were chosen."""
    chosen = front.model_copy(update={"selected": index})
    found = gains(chosen)
    rows = [[*row] for row in gain_table(chosen, found).rows]
    return {"gains": rows, "sample": sample(chosen, found)}


def _items(run: FinishedSearch) -> Iterator[dict[str, object]]:
    """Yield the points with records, and their items won against each anchor."""
    front, read = run.front, ItemReader(run)
    for index, point in enumerate(front.points):
        against = [
            [read.compare(point, anchor, task) for task in front.tasks]
            for anchor in front.anchors
        ]
        if any(found is not None for row in against for found in row):
            yield {"point": index, "against": against}


def _name(path: Path) -> str:
    """Return the user's name of a run, unless that is no name."""
    named = path.is_absolute() or path.name in {"", ".."}
    return path.resolve().name if named else str(path)


def _facts(run: FinishedSearch) -> dict[str, object]:
    manifest = run.manifest
    return {
        "method": manifest.identity.get("method"),
        "seed": manifest.seed,
        "searched_with": {
            "mergekit-map": manifest.mergekit_map,
            **manifest.packages,
            "Python": manifest.python,
        },
        "page_by": {"mergekit-map": __version__, "Python": platform.python_version()},
    }


def task_content(name: str, task: Task) -> dict[str, object]:
    """Return a task with its unit and the quality of its surrogate."""
    return {
        "name": name,
        "higher": task.metric.higher_is_better,
        "unit": task.unit,
        "facts": ", ".join(task.facts),
        "fit": task.fit.model_dump(),
    }


def _readings(front: Front, merge: Merge) -> dict[str, object]:
    return {
        "coefficients": [merge.coefficients.get(name) for name in front.coefficients],
        **{
            kind: pairs(merge.readings(kind)[task] for task in front.tasks)
            for kind in KINDS
        },
    }


def _start(front: Front) -> dict[str, object] | None:
    """Return the preference and limits that chose the point; None for an index."""
    select = front.select
    if select.index is not None:
        return None
    prefer = task_weights(select, front.metrics, anchor_values(front))
    limits = {}
    with contextlib.suppress(ConfigError):  # chosen when shares were of something else
        limits = find_limits(select, front.metrics, anchor_values(front))
    texts = {task: f"{limit.value:.5g}" for task, limit in limits.items()}
    texts |= {task: str(limit) for task, limit in (select.require or {}).items()}
    return {
        "weights": [round(prefer.get(task, 0.0), 3) for task in front.tasks],
        "limits": [texts.get(task, "") for task in front.tasks],
    }
