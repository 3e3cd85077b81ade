"""The report of a finished search: one self-contained HTML page, and its content.

The page holds its data, its own script and plotly.js. A content security policy allows
only these two scripts, by their hashes, and no requests. No text of the user is part of
the markup: all of it is data, which the script shows as text.

The content begins with the answer of the search. Tasks, coefficients and estimates are
lists in one order. An estimate is a value and its standard error, null where it is
unknown, and its number of documents where these are not all. The text
of items is left out, so that a report may be shared.

Notation: ``d`` axes of the surrogates, ``n`` points of the front, ``g`` nodes, ``m``
tasks.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from platform import python_version
from string import Template

import numpy as np
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from mergekit_map._version import __version__
from mergekit_map.errors import ArtifactError
from mergekit_map.models.references import short_paths
from mergekit_map.report.plots import plot_front
from mergekit_map.results.answer import answer, gain_table, sample
from mergekit_map.results.front import KINDS, UNKNOWN, Front, Kind, Merge, Reading, Task
from mergekit_map.results.gains import gains
from mergekit_map.results.limits import limit_variances
from mergekit_map.results.log import RIVALS, Evaluation, by_merge, merge_key
from mergekit_map.results.surrogates import (
    FinishedSearch,
    is_fitted,
    locate_in,
    predict,
    read_finished,
)
from mergekit_map.types import NO_SINGLE_MODEL
from mergekit_map.utils.files import StrPath, plain, write_atomically

# Where plotly.js would take a chart that is shared: see guard.js.
_SHARING = "https://cloud.plotly.com/newchart"
_N_NODES = {"curve": 101, "contour": 41, "slices": 25}  # along an axis
# The page's own script, in the order in which its parts build on one another.
SCRIPTS = (
    *("guard.js", "choosing.js", "drawing.js", "tables.js", "marks.js"),
    *("front_chart.js", "parallel_chart.js", "surrogate_charts.js", "panels.js"),
    "report.js",
)


def write_report(run: StrPath, page: StrPath | None = None) -> Path:
    """Write the page of a finished search, into its folder if nowhere else.

    Raises ArtifactError if the search is not finished, a file cannot be read or
    written, or the page has the name of another file.
    """
    path = page_path(page or Path(run) / "report.html")
    finished = read_finished(Path(run))
    picture = finished.folder.picture
    page = build_page("report.html", SCRIPTS, report_content(finished))
    write_atomically(path, page)
    if not picture.exists():
        plot_front(finished.front, picture)
    return path


def build_page(main: str, scripts: Iterable[str], content: Mapping[str, object]) -> str:
    """Return a page with its data; later scripts may use what earlier ones define."""
    plotly = get_plotlyjs().replace(_SHARING, "")
    script = "\n".join(map(_page_file, scripts))
    data = {**content, "plotlyjs": get_plotlyjs_version()}
    return Template(_page_file("page.html")).substitute(
        main=_page_file(main),
        policy=_policy(plotly, script),
        style=_page_file("report.css"),
        plotly=plotly,
        script=script,
        # Without "<", no text in the data can end its element or open a comment.
        content=json.dumps(plain(data), allow_nan=False).replace("<", "\\u003c"),
    )


def page_path(page: StrPath) -> Path:
    """Return the path of a page; raise ArtifactError if its name is of another file."""
    path = Path(page)
    if path.suffix != ".html":
        raise ArtifactError(f"{path} is no name of a page; end it in .html")
    is_file = path.is_file() and not path.is_symlink()  # a link is replaced
    if is_file and b"<title>mergekit-map" not in path.read_bytes():
        raise ArtifactError(f"{path} is there, and no page of ours; name another file")
    return path


def _page_file(name: str) -> str:
    folder = importlib.resources.files(__package__) / "pages"
    return (folder / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Allow these scripts, styles that plotly sets, and pictures made on the page."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; connect-src 'none'; frame-src 'none'; object-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def report_content(run: FinishedSearch) -> Mapping[str, object]:
    """Return the content of the page of a search."""
    front, manifest = run.front, run.manifest
    variances = limit_variances(front, np.arange(len(front.points)))
    references = [anchor.coefficients for anchor in front.anchors]
    searched_with = {"mergekit-map": manifest.mergekit_map, **manifest.packages}
    return {
        "name": run_name(run.folder.path),
        "run": shlex.quote(str(run.folder.path)),
        "facts": {
            "method": manifest.identity.method,
            "seed": manifest.seed,
            "searched_with": {**searched_with, "Python": manifest.python},
            "page_by": {"mergekit-map": __version__, "Python": python_version()},
        },
        "answer": asdict(answer(front)),
        "coefficients": [
            {"name": n, "bounds": b} for n, b in front.coefficients.items()
        ],
        "order": front.order,
        "tasks": [task_content(name, about) for name, about in front.tasks.items()],
        "anchors": [
            {"label": a.label, "kind": reference_kind(a.label), **values(front, a)}
            for a in front.anchors
        ],
        "points": [
            {
                **values(front, point),
                "failed": point.has_failed,
                "variances": variances[:, index].T.tolist(),
                "recipe": run.folder.read_recipe(index),
                "recommended": index in front.recommended
                and point.coefficients not in references,
                **_gains_of_point(front, index),
            }
            for index, point in enumerate(front.points)
        ],
        "merges": _measured_merges(run),
        "selected": front.selected,
        "surfaces": predict_surfaces(run),
    }


def reference_kind(label: str | None) -> str | None:
    """Return the kind of a reference point: base, soup or model."""
    return label if label is None or label in NO_SINGLE_MODEL else "model"


def _gains_of_point(front: Front, index: int) -> dict[str, object]:
    if_chosen = front.model_copy(update={"selected": index})
    gained = gains(if_chosen)
    return {"gains": gain_table(if_chosen, gained), "sample": sample(if_chosen, gained)}


def run_name(path: Path) -> str:
    """Return the user's name of a run, unless that is no name."""
    is_no_name = path.is_absolute() or path.name in {"", ".."}
    return path.resolve().name if is_no_name else str(path)


def run_names(paths: Sequence[Path]) -> list[str]:
    """Return names of runs that differ, with as few folders as that takes."""
    names = [run_name(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    full_paths = [str(path.resolve()) for path in paths]
    short = short_paths(full_paths)
    return [short[path] for path in full_paths]


def task_content(name: str, task: Task) -> dict[str, object]:
    """Return a task with its unit and the quality of its surrogate."""
    return {
        "name": name,
        "higher": task.metric.higher_is_better,
        "unit": task.unit,
        "facts": ", ".join(task.facts),
        "fit": task.fit.model_dump(),
    }


def values(
    front: Front, merge: Merge, tasks: Sequence[str] = (), kinds: Sequence[Kind] = KINDS
) -> dict[str, object]:
    """Return coefficients in the order of the front, and estimates on the tasks."""
    names = tasks or front.tasks
    return {
        "coefficients": [merge.coefficients.get(name) for name in front.coefficients],
        **{k: estimates(merge.readings(k)[task] for task in names) for k in kinds},
    }


def _measured_merges(run: FinishedSearch) -> list[dict[str, object]]:
    """List the merges in the order in which they were measured, as plain data.

    Reference points that are no merges of the search come first.
    """
    front = run.front
    content = [_reference_row(front, a) for a in front.anchors if not a.coefficients]
    named = (*front.merges, *reversed(front.anchors))  # the first of equal ones counts
    labels = {merge_key(merge.coefficients): merge.label for merge in named}
    points = {merge_key(p.coefficients): i for i, p in enumerate(front.points)}
    merges = by_merge(e for e in run.evaluations if e.role not in RIVALS)
    X = locate_in(front, map(dict, merges))
    unknown = dict.fromkeys(front.tasks, UNKNOWN)
    predictions = predict(run.surrogates, X) if run.surrogates else [unknown] * len(X)
    rows = zip(merges.items(), X.tolist(), predictions, strict=True)
    for (key, evaluated), x, predicted in rows:
        row = _merge_row(run, evaluated, x, predicted)
        content.append({"label": labels.get(key), "point": points.get(key), **row})
    return content


def _reference_row(front: Front, anchor: Merge) -> dict[str, object]:
    unknown = [None] * len(front.tasks)
    return {
        "label": anchor.label,
        "roles": ["anchor"],
        **values(front, anchor, kinds=["measured"]),
        "fitted": [False] * len(unknown),
        **dict.fromkeys(("errors", "predicted", "foretold"), unknown),
        **dict.fromkeys(("point", "seconds", "at")),
    }


def _merge_row(
    run: FinishedSearch,
    evaluated: Mapping[str, Evaluation],
    x: list[float],
    predicted: Mapping[str, Reading],
) -> dict[str, object]:
    """Return the measurements of a merge, and its point ``x`` (d,) if that is known."""
    tasks = run.front.tasks
    coefficients = next(iter(evaluated.values())).coefficients  # all have the same
    is_located = bool(np.isfinite(x).all())
    is_predicted = bool(run.surrogates) and is_located
    evaluations = [evaluated.get(task) for task in tasks]
    return {
        "roles": list(dict.fromkeys(e.role for e in evaluated.values())),
        "coefficients": [coefficients[name] for name in run.front.coefficients],
        "measured": estimates(e.reading if e else UNKNOWN for e in evaluations),
        "errors": [
            (e.error or "no finite number") if e and e.failed else None
            for e in evaluations
        ],
        "fitted": [  # by the surrogate of the task
            is_predicted and e is not None and is_fitted(e) for e in evaluations
        ],
        "seconds": sum(e.seconds for e in evaluated.values()),
        "at": x if is_located else None,
        "predicted": estimates(predicted[task] for task in tasks),
        "foretold": estimates((e and e.foretold) or UNKNOWN for e in evaluations),
    }


def estimates(readings: Iterable[Reading]) -> list[list[float | None] | None]:
    """List values with their standard errors, and with documents where not on all."""
    return [
        None if r.value is None else [r.value, r.stderr, *filter(None, [r.documents])]
        for r in readings
    ]


def predict_surfaces(run: FinishedSearch) -> dict[str, object]:
    """Predict every task on a grid, or on slices where there are more than two axes.

    Of a task, a curve is (g,), a contour (g, g) with the second axis first, and slices
    are (d, g): through the chosen point, along each axis. A search without surrogates
    has no predictions.
    """
    axes = run.front.axes
    if not run.surrogates:
        return {"kind": "none", "axes": axes}
    d = len(axes)
    kind = {1: "curve", 2: "contour"}.get(d, "slices")
    lower, upper = run.front.axis_bounds.T
    nodes = np.linspace(lower, upper, _N_NODES[kind], axis=1)  # (d, g)
    points = locate_in(run.front, (p.coefficients for p in run.front.points))
    if kind == "slices":
        # Every slice is the chosen point, with the nodes of one axis put into it.
        grid = np.tile(points[run.front.selected], (*nodes.shape, 1))  # (d, g, d)
        grid[np.arange(d), :, np.arange(d)] = nodes
    else:
        grid = np.stack(np.meshgrid(*nodes), axis=-1)
    X = grid.reshape(-1, d)
    surrogates = [run.surrogates[task] for task in run.front.tasks]
    shape = (len(surrogates), *grid.shape[:-1])
    return {
        "kind": kind,
        "axes": axes,
        "nodes": nodes.tolist(),
        "points": points.tolist(),
        "value": np.array([s.predict(X) for s in surrogates]).reshape(shape).tolist(),
        "stderr": np.array([s.stderr(X) for s in surrogates]).reshape(shape).tolist(),
    }
