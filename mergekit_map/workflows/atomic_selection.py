"""Atomic changes of the choice: one process at a time, and all files or none.

``front.json`` holds the choice; table, picture and ``recipe.yml`` follow from it. While
they are written a mark is in the folder. The next process that finds the mark writes
the files again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mergekit_map.report.plots import save_front
from mergekit_map.results.front import Front
from mergekit_map.results.log import locked
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import StrPath, write_atomically

_PATIENCE = 60  # seconds, for another process


@contextmanager
def selection_lock(folder: RunFolder) -> Iterator[None]:
    """Lock the choice for one process, and first repair an interrupted change."""
    busy = (
        f"another command has been writing {folder.path} for {_PATIENCE} seconds; wait "
        "for it, and try again"
    )
    with locked(folder.choosing_lock, folder.path, busy, _PATIENCE):
        if not folder.unfinished:  # else all of it is written anew
            _mend(folder)
        yield


def look_at(run: StrPath) -> Path:
    """Return the folder of a search, finished or not, with a front that can be read.

    If the search was stopped, was killed or is running, that is the partial front, of
    what is measured so far. A change that was interrupted is repaired.

    Raises:
        ArtifactError: there is nothing to look at yet, or a file is damaged.
    """
    folder = open_run(Path(run))
    if folder.unfinished or folder.choosing.exists():
        with selection_lock(folder):
            if folder.unfinished:  # still
                # It fits surrogates with SciPy, of no use for a finished search.
                from mergekit_map.workflows.partial_front import write_partial_front

                write_partial_front(folder)
    return folder.path


def save_choice(front: Front, folder: RunFolder, texts: Mapping[int, str]) -> str:
    """Write a front, recipes of points, the chosen one with them, and what follows.

    Returns the chosen recipe, with the reason of the choice.
    """
    write_atomically(folder.choosing, "")
    for index, text in texts.items():
        write_atomically(folder.recipe(index), text)
    folder.remove_recipes(len(front.points))
    chosen = f"# {front.reason}\n{texts[front.selected]}"
    save_front(front, folder)
    write_atomically(folder.chosen_recipe, chosen)
    folder.choosing.unlink()
    return chosen


def _mend(folder: RunFolder) -> None:
    if folder.choosing.exists() and folder.manifest.exists():
        front = folder.read_front()
        chosen = front.selected
        save_choice(front, folder, {chosen: folder.read_recipe(chosen)})
    folder.choosing.unlink(missing_ok=True)  # else a search writes all of it
