"""The choice of a point of a front; no model is loaded.

``front.json`` holds the choice; table, picture and ``recipe.yml`` follow from it. While
they are written a mark is in the folder, and the next process that finds the mark
writes them again. One process at a time writes them.

All recipes of a front are one configuration with different numbers in the places of the
coefficients, which the manifest lists. The recipe of each point is made from that of
the first, without the models.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.config.problems import parse_select
from mergekit_map.config.schema import SelectSpec
from mergekit_map.config.yaml_file import (
    DAMAGES,
    filled,
    map_references,
    parse_recipe,
    yaml_text,
)
from mergekit_map.errors import ArtifactError
from mergekit_map.report.plots import front_table, plot_front
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import locked
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import RunFolder, open_run, recipe_comments
from mergekit_map.results.selection import choose_point
from mergekit_map.utils.files import StrPath, write_atomically
from mergekit_map.workflows.results import Selection

_PATIENCE = 60  # seconds, for another process
# Nothing else that a stranger has written there is copied.
_COMMAND = r"^# Merge it with: mergekit-yaml .*?000\.yml'? ([\w .:#-]*)$"


def select_point(
    run: StrPath,
    *,
    prefer: Mapping[str, float] | None = None,
    scalarization: str | None = None,
    knee: bool = False,
    require: Mapping[str, float | str] | None = None,
    not_worse_than: str | Sequence[str] | None = None,
    index: int | None = None,
    limits: bool = True,
) -> Selection:
    """Choose a point of a front and write ``recipe.yml``.

    The arguments are the keys of ``map.select``. Without any, what was chosen last
    stays chosen. Where none of them is a limit, the limits of the last choice still
    hold, at first those of the configuration. Where the surrogates predict a better
    merge than all points, it joins the front as its last point and gets a recipe.

    Args:
        run: The folder of a finished search; ``look_at`` finds the front of another.
        prefer: How much each task counts, scaled by its best and worst on the front.
        scalarization: ``sum`` of the weighted tasks, or ``achievement``: the weighted
            distance to the best, on the task where it is largest.
        knee: Take the point that every other one loses more against than it gains.
        require: Limits that predictions must keep: numbers in the tasks' own units, or
            shares of the best parent's gain over the base, such as ``"95%"``.
        not_worse_than: ``base``, ``soup``, a model by its name, or several of these:
            on no task may the point be significantly worse than they measured.
        index: The number of the point.
        limits: Whether the limits of the last choice hold where none is given; False
            alone makes that choice again without them.

    Raises:
        ArtifactError: the search is not finished, or a file of it is damaged.
        ConfigError: there is no such task, or the arguments do not go together.
        DesignError: there is no such point, or no merge within the limits.
    """
    rivals = not_worse_than
    asked = {
        "prefer": prefer,
        "scalarization": scalarization,
        "knee": knee or None,
        "require": require and {task: _item(limit) for task, limit in require.items()},
        "not_worse_than": rivals if isinstance(rivals, str | None) else list(rivals),
        "index": _item(index),
    }
    select = parse_select({k: v for k, v in asked.items() if v is not None})
    folder = open_run(Path(run))
    folder.read_manifest()
    with selection_lock(folder):
        front = folder.read_front()
        if limits:
            select = front.select.limits_in(select)
        elif not select.model_fields_set:
            select = front.select.without_limits()
        if select.model_fields_set:
            front = _choose(front, select, folder)
        recipe = recipe_of(folder, front, front.selected)
        return Selection(front, save_choice(front, folder, {front.selected: recipe}))


def _choose(front: Front, select: SelectSpec, folder: RunFolder) -> Front:
    if select.index is not None:
        return choose_point(front, select)
    # It brings SciPy, which takes longer than all else for an index.
    from mergekit_map.results.surrogates import fit_again, read_evaluations

    surrogates = fit_again(front, read_evaluations(folder, front))
    return choose_point(front, select, surrogates)


def _item(value: Any) -> Any:
    """Return a number of NumPy, as ``to_pandas`` has them, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def refuse_other_front(run: RunFolder, index: int, point: Merge) -> None:
    """Refuse a point that the front does not have where it was seen."""
    of = attrgetter("coefficients", "predicted")  # not what was measured meanwhile
    if [*map(of, run.read_front().points[index:][:1])] != [of(point)]:
        raise ArtifactError(
            f"{run.path} has another front since the point was chosen; choose again"
        )


@contextmanager
def selection_lock(folder: RunFolder) -> Iterator[None]:
    """Lock the choice for one process, and first repair an interrupted change."""
    busy = (
        f"another command has been writing {folder.path} for {_PATIENCE} seconds; wait "
        f"for it, and try again; if there is none, remove {folder.choosing_lock}"
    )
    with locked(folder.choosing_lock, folder.path, busy, _PATIENCE):
        if not folder.unfinished:  # else all of it is written anew
            if folder.choosing.exists() and folder.manifest.exists():
                front = folder.read_front()
                recipe = folder.read_recipe(front.selected)
                save_choice(front, folder, {front.selected: recipe})
            folder.choosing.unlink(missing_ok=True)  # else a search writes all of it
        yield


def look_at(run: StrPath) -> Path:
    """Return the folder of a search, finished or not, with a front that can be read.

    If the search was stopped, was killed or is running, that is the partial front, of
    what is measured so far. A change that was interrupted is repaired.

    Raises ArtifactError if there is nothing to look at yet, or a file is damaged.
    """
    folder = open_run(Path(run))
    folder.read_manifest()  # raises where nothing was planned
    if folder.unfinished or folder.choosing.exists():
        with selection_lock(folder):
            if folder.unfinished:  # still
                # It fits surrogates with SciPy, of no use for a finished search.
                from mergekit_map.search.finish import read_partial_front

                if (front := read_partial_front(folder)) is not None:
                    points = range(len(front.points))
                    recipes = {i: recipe_of(folder, front, i) for i in points}
                    save_choice(front, folder, recipes)
    return folder.path


def save_choice(front: Front, folder: RunFolder, texts: Mapping[int, str]) -> str:
    """Write a front, recipes of points, the chosen one with them, and what follows.

    Returns the chosen recipe, with the reason of the choice.
    """
    write_atomically(folder.choosing, "")
    for index, text in texts.items():
        write_atomically(folder.recipe(index), text)
    for stale in folder.path.glob("recipes/*.yml"):
        if stale.stem.isdecimal() and int(stale.stem) >= len(front.points):
            stale.unlink()
    chosen = f"# {front.reason}\n{texts[front.selected]}"
    write_record(folder.front, front)
    write_atomically(folder.table, front_table(front))
    plot_front(front, folder.picture)
    write_atomically(folder.chosen_recipe, chosen)
    folder.choosing.unlink()
    return chosen


def recipe_of(folder: RunFolder, front: Front, index: int) -> str:
    """Write the recipe of a point from that of the first; its models may have moved."""
    identity = folder.read_manifest().identity
    if folder.unfinished:
        source, text = folder.plan, folder.read_plan().recipe
    else:
        source, text = folder.recipe(0), folder.read_recipe(0)
    weights = front.points[index].coefficients
    try:
        config = parse_recipe(text)
        dtypes = {"dtype": identity.dtype, "out_dtype": identity.out_dtype}
        searched = {**identity.configuration, "merge_method": identity.method}
        searched |= {k: name for k, name in dtypes.items() if name or k in config}
        config, known = (
            filled(one, identity.coefficients, identity.remainder, weights)
            for one in (config, searched)
        )
        here, there = (map_references(one, lambda _: "") for one in (config, known))
        if here != there:
            raise ValueError("its settings are others")
    except DAMAGES as error:
        raise ArtifactError(
            f"{source} holds no recipe of this search ({error}), so point "
            f"{index} cannot be written like it; restore the file, or search again"
        ) from None
    lines = recipe_comments(front, index)
    if command := re.search(_COMMAND, text, re.MULTILINE):
        own = shlex.quote(str(folder.recipe(index)))
        trust = "--trust-remote-code"  # to be written by who trusts, not by a stranger
        words = command[1].partition("  # add ")[0].split(" ")
        if trust in command[1]:
            words = [*(word for word in words if word != trust), f" # add {trust}"]
        lines.append(f"Merge it with: mergekit-yaml {own} {' '.join(words)}")
    return yaml_text(config, lines)
