"""Several finished searches on one page: their fronts and volumes on shared tasks.

Tasks are shared if they have the same fingerprint in all searches, so that they measure
the same on the same documents. Nothing is measured.

A hypervolume is a share of the box between the reference point and the ideal point of
the joint front. Notation: ``k`` merges of a search, ``m`` tasks, ``n`` items of a task,
``b`` draws; values are larger where better.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from mergekit_map._version import __version__
from mergekit_map.errors import ArtifactError
from mergekit_map.optimize.pareto import volume
from mergekit_map.report.merges import ItemReader, MeasuredMerge, measured_merges
from mergekit_map.report.page import build_page, refuse_foreign
from mergekit_map.results.finished import FinishedSearch, read_finished
from mergekit_map.results.front import Reading
from mergekit_map.results.log import Role
from mergekit_map.results.samples import Item, Items
from mergekit_map.results.search_plan import unfinished_in_words
from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.types import NO_SINGLE_MODEL
from mergekit_map.utils.files import StrPath, plain, write_atomically
from mergekit_map.utils.text import listed

_BELOW_NADIR = -0.1  # where volumes start, between nadir (0) and ideal (1)
_DRAWS = 200


@dataclass(frozen=True, eq=False)
class Scale:
    """The worst and best values of a joint front, by task."""

    nadir: FloatArray  # (m,)
    width: FloatArray  # (m,)

    @classmethod
    def of(cls, fronts: Sequence[FloatArray]) -> Scale:
        """Return the front of the merges and its values; (k, m) each."""
        Y = np.vstack(fronts)
        beaten = np.array([((row <= Y).all(1) & (row < Y).any(1)).any() for row in Y])
        kept = Y[~beaten]
        nadir, width = kept.min(axis=0), np.ptp(kept, axis=0)
        # A task that all the best agree on has no unit there.
        flat = width <= 0
        nadir = np.where(flat, Y.min(axis=0), nadir)
        width = np.where(flat, np.ptp(Y, axis=0), width)
        return cls(nadir, np.where(width > 0, width, 1.0))

    def volume(self, Y: FloatArray) -> float:
        """Return the hypervolume of a front (k, m), as a share of the box."""
        box: float = (1 - _BELOW_NADIR) ** Y.shape[1]
        return volume((Y - self.nadir) / self.width, _BELOW_NADIR) / box

    @property
    def reference(self) -> FloatArray:
        """Return the reference point of volumes, (m,)."""
        reference: FloatArray = self.nadir + _BELOW_NADIR * self.width
        return reference


@dataclass(frozen=True)
class Volume:
    """The hypervolume of a search."""

    value: float
    stderr: float | None
    ahead: float  # of the first search
    ahead_stderr: float | None  # draws are the same for all, so that it is paired


def volumes(
    scale: Scale, fronts: Sequence[FloatArray], drawn: Sequence[FloatArray] | None
) -> list[Volume]:
    """Return the hypervolumes of fronts (k, m), with errors from draws (b, k, m)."""
    values = [scale.volume(Y) for Y in fronts]
    if drawn is None:
        return [Volume(value, None, value - values[0], None) for value in values]
    known = np.array([[scale.volume(Y) for Y in draws] for draws in drawn])
    stderr, ahead = known.std(axis=1), (known - known[0]).std(axis=1)
    return [
        Volume(value, float(one), value - values[0], float(two))
        for value, one, two in zip(values, stderr, ahead, strict=True)
    ]


def draw_items(
    found: Sequence[Sequence[Items]], sign: float, rng: np.random.Generator
) -> list[FloatArray] | None:
    """Resample a task's values from its items, the same for all; (b, k) each.

    None unless all merges of all searches were measured on the same items, two or more.
    """
    items = list(found[0][0].values)
    same = all(one.values.keys() == set(items) for search in found for one in search)
    if len(items) < 2 or not same:
        return None
    times: IntArray = rng.multinomial(len(items), [1 / len(items)] * len(items), _DRAWS)
    return [
        sign * np.column_stack([_means(one, items, times) for one in search])
        for search in found
    ]


def _means(one: Items, items: Sequence[Item], times: IntArray) -> FloatArray:
    weights = np.array([one.weights[item] for item in items])
    values = np.array([one.values[item] for item in items])
    mean: FloatArray = (times @ (weights * values)) / (times @ weights)
    return np.exp(mean) if one.exponential else mean


def draw_each(
    Y: FloatArray, stderr: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw values (k,) that err independently, as measured; (b, k)."""
    drawn: FloatArray = Y + np.nan_to_num(stderr) * rng.normal(size=(_DRAWS, len(Y)))
    return drawn


def draw_together(
    Y: FloatArray, stderr: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw values (k,) that all err alike, as one surrogate predicts them; (b, k)."""
    drawn: FloatArray = Y + np.nan_to_num(stderr) * rng.normal(size=(_DRAWS, 1))
    return drawn


_NOT_OF_IT: frozenset[Role] = frozenset({"opponent", "baseline", "holdout"})
_SEED = 0  # of the draws behind the errors of volumes


def fronts_content(runs: Sequence[FinishedSearch]) -> Mapping[str, object]:
    """Return the content of the page of finished searches, the first one first.

    Raises:
        ArtifactError: they share no task, or one measured no merge on all of them.
    """
    tasks = _shared_tasks(runs)
    found = [_measured(run, tasks) for run in runs]
    first, names = runs[0].front, _names(runs)
    content: dict[str, object] = {
        "name": " and ".join(names),
        "left_out": [*_unfinished(runs, names), *_left_out(runs, tasks, names)],
        "tasks": [
            {
                "name": name,
                "higher": first.tasks[name].metric.higher_is_better,
                "unit": first.tasks[name].unit,
            }
            for name in tasks
        ],
        "runs": [
            {
                "name": name,
                "method": str(run.manifest.identity.get("method")),
                "coefficients": list(run.front.coefficients),
                "selected": run.front.selected,
                "points": [
                    {
                        "coefficients": [
                            point.coefficients[n] for n in run.front.coefficients
                        ],
                        "predicted": _pairs(point.readings("predicted"), tasks),
                        "measured": _pairs(point.measured, tasks),
                    }
                    for point in run.front.points
                ],
                "merges": [_merge(run, merge, tasks) for merge in merges],
            }
            for name, run, merges in zip(names, runs, found, strict=True)
        ],
        **_volumes(runs, tasks, found),
        "page_by": {"mergekit-map": __version__},
    }
    exact: Mapping[str, object] = plain(content)
    return exact


def _shared_tasks(runs: Sequence[FinishedSearch]) -> list[str]:
    first = runs[0]
    tasks = [
        task
        for task in first.front.tasks
        if all(
            task in run.front.tasks
            and run.manifest.definitions[task] == first.manifest.definitions[task]
            for run in runs
        )
    ]
    if not tasks:
        folders = listed([str(run.folder.named) for run in runs])
        raise ArtifactError(
            f"{folders} share no task: fronts are compared on tasks of the same name "
            "that measure the same on the same documents; search one of them again "
            "with the tasks of the other"
        )
    return tasks


def _left_out(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], names: Sequence[str]
) -> list[str]:
    """List the tasks that are not compared, with reasons."""
    every = dict.fromkeys(itertools.chain(*(run.front.tasks for run in runs)))
    said = []
    for task in [task for task in every if task not in tasks]:
        having = [
            n for n, run in zip(names, runs, strict=True) if task in run.front.tasks
        ]
        where = f"only {listed(having)} measured it"
        if len(having) == len(runs):
            where = "it measures something else in each, or on other documents"
        said.append(f"{task} is not compared: {where}.")
    return said


def _unfinished(runs: Sequence[FinishedSearch], names: Sequence[str]) -> list[str]:
    """List the searches that are not finished, and how to continue them."""
    return [
        f"{name} is not finished: {words}"
        for name, run in zip(names, runs, strict=True)
        for words in unfinished_in_words(run.folder, run.front)
    ]


def _names(runs: Sequence[FinishedSearch]) -> list[str]:
    """Name searches by their folders, with enough of the path to differ."""
    parts = [run.folder.named.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, start=1)]


def _measured(run: FinishedSearch, tasks: Iterable[str]) -> list[MeasuredMerge]:
    """List the merges that a search measured on all documents of the tasks."""
    places = [list(run.front.tasks).index(task) for task in tasks]
    found = [
        merge
        for merge in measured_merges(run)
        if all(merge.measured[place].value is not None for place in places)
        and not set(merge.roles) <= _NOT_OF_IT
    ]
    if not found:
        raise ArtifactError(
            f"{run.folder.named} has no merge that was measured on {listed(tasks)}; "
            "continue its search"
        )
    return found


def _merge(
    run: FinishedSearch, merge: MeasuredMerge, tasks: Iterable[str]
) -> dict[str, object]:
    label = merge.label
    kind = label if label in NO_SINGLE_MODEL else "model"
    readings = dict(zip(run.front.tasks, merge.measured, strict=True))
    return {
        "label": label,
        "kind": None if label is None else kind,
        "point": merge.point,
        "coefficients": merge.coefficients,
        "measured": _pairs(readings, tasks),
    }


def _pairs(
    readings: Mapping[str, Reading], tasks: Iterable[str]
) -> list[tuple[float, float | None] | None]:
    found = [readings[task] for task in tasks]
    return [None if r.value is None else (r.value, r.stderr) for r in found]


def _volumes(
    runs: Sequence[FinishedSearch],
    tasks: Sequence[str],
    found: Sequence[Sequence[MeasuredMerge]],
) -> dict[str, object]:
    rng = np.random.default_rng(_SEED)
    signs = [runs[0].front.metrics[task].sign for task in tasks]
    columns = [
        _columns(run, merges, tasks) for run, merges in zip(runs, found, strict=True)
    ]
    measured = [Y * signs for Y, _ in columns]
    errors = [stderr for _, stderr in columns]
    drawn: list[list[FloatArray]] = [[] for _ in runs]
    paired = []
    for t, task in enumerate(tasks):
        items = [
            _items(run, merges, task) for run, merges in zip(runs, found, strict=True)
        ]
        one = draw_items(items, signs[t], rng)
        paired.append(one is not None)
        for r in range(len(runs)):
            own = one[r] if one else draw_each(measured[r][:, t], errors[r][:, t], rng)
            drawn[r].append(own)
    scale = Scale.of(measured)
    predicted, foreseen = _predicted(runs, tasks, rng)
    return {
        "reference": [s * v for s, v in zip(signs, scale.reference, strict=True)],
        "paired": paired,
        "volumes": {
            "measured": [
                asdict(v)
                for v in volumes(scale, measured, [np.stack(d, 2) for d in drawn])
            ],
            "predicted": [asdict(v) for v in volumes(scale, predicted, foreseen)],
        },
    }


def _columns(
    run: FinishedSearch, merges: Sequence[MeasuredMerge], tasks: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    places = [list(run.front.tasks).index(task) for task in tasks]
    rows = [[merge.measured[place] for place in places] for merge in merges]
    values = np.array([[r.value for r in row] for row in rows], np.float64)
    return values, np.array([[r.stderr for r in row] for row in rows], np.float64)


def _items(
    run: FinishedSearch, merges: Sequence[MeasuredMerge], task: str
) -> list[Items]:
    reader, place = ItemReader(run), list(run.front.tasks).index(task)
    found = []
    for merge in merges:
        pairs = zip(run.front.coefficients, merge.coefficients, strict=True)
        known = {name: value for name, value in pairs if value is not None}
        found.append(reader.read_at(known, merge.measured[place].value, task))
    return found


def _predicted(
    runs: Sequence[FinishedSearch], tasks: Sequence[str], rng: np.random.Generator
) -> tuple[list[FloatArray], list[FloatArray]]:
    fronts, drawn = [], []
    for run in runs:
        places = [list(run.front.tasks).index(task) for task in tasks]
        Y = run.front.utilities(run.front.points, "predicted")[:, places]
        stderr = run.front.stderrs(run.front.points, "predicted")[:, places]
        fronts.append(Y)
        draws = [draw_together(Y[:, t], stderr[:, t], rng) for t in range(len(tasks))]
        drawn.append(np.stack(draws, 2))
    return fronts, drawn


# The page's own script, in the order in which its parts build on one another.
_SCRIPTS = (
    "guard.js",
    "choosing.js",
    "drawing.js",
    "in_view.js",
    "tables.js",
    "printing.js",
    "marks.js",
    "preferring.js",
    "fronts_chart.js",
    "fronts.js",
)


def write_fronts_report(runs: Sequence[StrPath], page: StrPath | None = None) -> Path:
    """Write ``fronts.html``, into the folder of the first search if nowhere else.

    Raises:
        ArtifactError: a search is not finished, a file of it is damaged, they share no
            task, or where the page should go is something else.
    """
    if page is not None:
        refuse_foreign(Path(page))
    folders = [Path(run) for run in runs]
    content = fronts_content([read_finished(run) for run in folders])
    written = Path(page or folders[0] / "fronts.html")
    write_atomically(written, fronts_page(content))
    return written


def fronts_page(content: Mapping[str, object]) -> str:
    """Return the page of ``fronts_content``."""
    return build_page("fronts.html", _SCRIPTS, content)
