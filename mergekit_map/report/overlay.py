"""Several finished searches on one page: their fronts and volumes on shared tasks.

Tasks are shared if they have the same fingerprint in all searches, so that they measure
the same on the same documents. Nothing is measured.

A hypervolume is a share of the box between the reference point and the ideal point of
the joint front. Notation: ``k`` merges of a search, ``m`` tasks; values are larger
where better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mergekit_map._version import __version__
from mergekit_map.errors import ArtifactError
from mergekit_map.optimize.front_filling import hypervolume, non_dominated
from mergekit_map.report.page import (
    build_page,
    estimates,
    page_path,
    reference_kind,
    run_names,
    task_content,
    values,
)
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import merge_key
from mergekit_map.results.surrogates import FinishedSearch, read_finished
from mergekit_map.surrogates.arrays import FloatArray, is_constant, ranges
from mergekit_map.utils.files import StrPath, write_atomically
from mergekit_map.utils.text import listed

_BELOW_NADIR = -0.1  # where volumes start, between nadir (0) and ideal (1)
_ROUNDING = 2e-3  # relative, between measurements of one model in two searches
# The page's own script, in the order in which its parts build on one another.
_SCRIPTS = ("guard.js", "drawing.js", "tables.js", "marks.js", "fronts.js")


def write_fronts_report(runs: Sequence[StrPath], page: StrPath | None = None) -> Path:
    """Write ``fronts.html``, into the folder of the first search if nowhere else.

    Raises ArtifactError if a search is not finished, a file of it is damaged, they
    share no task, or the page has the name of another file.
    """
    path = page_path(page or Path(runs[0]) / "fronts.html")
    content = fronts_content([read_finished(Path(run)) for run in runs])
    write_atomically(path, build_page("fronts.html", _SCRIPTS, content))
    return path


def fronts_content(runs: Sequence[FinishedSearch]) -> Mapping[str, object]:
    """Return the content of the page of several searches, the first one first."""
    names = run_names([run.folder.path for run in runs])
    tasks = _shared_tasks(runs)
    measured = [_measured_merges(run, tasks) for run in runs]
    return {
        "name": " and ".join(names),
        "notes": list(_notes(runs, tasks, names)),
        "tasks": [task_content(name, runs[0].front.tasks[name]) for name in tasks],
        "runs": [
            {
                "name": name,
                "method": run.manifest.identity.method,
                "answer": asdict(answer(run.front)),
                "coefficients": list(run.front.coefficients),
                "points": [
                    values(run.front, point, tasks, ["predicted"])
                    for point in run.front.points
                ],
                "merges": [_merge(run.front, merge, tasks) for merge in merges],
                "chosen": _merge(run.front, run.front.chosen, tasks),
            }
            for name, run, merges in zip(names, runs, measured, strict=True)
        ],
        "references": list(_references(runs, tasks, names)),
        "volumes": _hypervolumes(runs, tasks, measured),
        "page_by": {"mergekit-map": __version__},
    }


def _shared_tasks(runs: Sequence[FinishedSearch]) -> list[str]:
    definitions = [run.manifest.definitions for run in runs]
    tasks = [
        task
        for task in runs[0].front.tasks
        if len({known.get(task) for known in definitions}) == 1
    ]
    if not tasks:
        folders = listed([str(run.folder.path) for run in runs])
        raise ArtifactError(
            f"{folders} share no task: fronts are compared on tasks of the same name "
            "that measure the same on the same documents; search one of them again "
            "with the tasks of the other"
        )
    return tasks


def _notes(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    for name, run in zip(names, runs, strict=True):
        if run.front.unfinished is not None:
            yield f"{name}: {run.front.unfinished.in_words}"
    for task in dict.fromkeys(task for run in runs for task in run.front.tasks):
        if task not in tasks:
            yield f"{task} is not compared: not every search measured the same."


def _measured_merges(run: FinishedSearch, tasks: Sequence[str]) -> list[Merge]:
    """List the merges that a search measured on all documents of the tasks, once."""
    front = run.front
    measured = [
        merge
        for merge in (*front.points, *front.merges, *front.anchors)
        if merge.is_measured(*tasks)
        and all(merge.measured[task].documents is None for task in tasks)
    ]
    if not measured:
        raise ArtifactError(
            f"{run.folder.path} has no merge that was measured on {listed(tasks)}; "
            "continue its search"
        )
    # A point that is a reference point is listed as that one.
    found = {merge_key(merge.coefficients) or merge.label: merge for merge in measured}
    return list(found.values())


def _merge(front: Front, merge: Merge, tasks: Sequence[str]) -> dict[str, object]:
    return {
        "label": merge.label,
        "reference": merge in front.anchors,
        "point": next((i for i, p in enumerate(front.points) if p is merge), None),
        **values(front, merge, tasks, ["measured"]),
    }


def _references(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], names: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield base, parents and soup of all searches, each model once.

    A model with other values than the first one of its name is another model. It is
    listed with the name of its search.
    """
    first_values: dict[str, list[float]] = {}  # by label
    for name, run in zip(names, runs, strict=True):
        for anchor in run.front.anchors:
            if not anchor.is_measured(*tasks):
                continue
            label = anchor.label or ""
            values = [anchor.measured[task].value or 0.0 for task in tasks]
            first = first_values.setdefault(label, values)
            is_other = not np.allclose(values, first, rtol=_ROUNDING, atol=0)
            if values is first or is_other:
                yield {
                    "label": f"{label} ({name})" if is_other else label,
                    "kind": reference_kind(anchor.label),
                    "coefficients": [],
                    "measured": estimates(anchor.measured[task] for task in tasks),
                }


def _hypervolumes(
    runs: Sequence[FinishedSearch],
    tasks: Sequence[str],
    measured: Sequence[Sequence[Merge]],
) -> list[dict[str, float]]:
    fronts: list[FloatArray] = []  # (k, m) each
    for run, merges in zip(runs, measured, strict=True):
        columns = [[*run.front.tasks].index(task) for task in tasks]
        fronts.append(run.front.utilities(merges, "measured")[:, columns])
    nadir, width = joint_box(fronts)
    # After scaling, the box goes from _BELOW_NADIR to 1 on each task.
    box: float = (1 - _BELOW_NADIR) ** len(tasks)
    volumes = [hypervolume((Y - nadir) / width, _BELOW_NADIR) / box for Y in fronts]
    return [{"value": value, "ahead": value - volumes[0]} for value in volumes]


def joint_box(fronts: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return nadir and widths (m,) of the joint front of merges (k, m)."""
    Y = np.vstack(fronts)
    front = Y[non_dominated(Y)]
    # Where all points of the front have the same value, the range is of all merges.
    is_flat = is_constant(front)
    nadir = np.where(is_flat, Y.min(axis=0), front.min(axis=0))
    return nadir, np.where(is_flat, ranges(Y), ranges(front))
