"""A search that is not finished, looked at: its partial front as a folder.

The log is fitted and written to ``RUN/.state/so-far``, a run folder of its own. The
search never reads it, and removes it when it is finished.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import StrPath
from mergekit_map.workflows.atomic_selection import locked, repaired_folder


def look_at(run: StrPath) -> Path:
    """Return the folder to read a search from, finished or not.

    A finished search is read from its own folder. The partial front of an unfinished
    one, be it stopped, killed or running, is first written to a folder of its own,
    which ``select_point``, ``merge_point`` and ``write_report`` treat as a finished
    search.

    Raises:
        ArtifactError: there is nothing to look at yet, or a file is damaged.
    """
    run = Path(run)
    folder = RunFolder(run)
    if not folder.unfinished:
        return repaired_folder(run).path
    # It fits surrogates, which a finished search has.
    from mergekit_map.workflows.partial_front import write_partial_front

    open_run(run)
    with locked(folder.so_far_lock, folder.so_far.path):
        write_partial_front(folder)
    return folder.so_far.path


def remove_partial_front(folder: RunFolder) -> None:
    """Remove the partial front and the plan of a search that is finished."""
    folder.plan.unlink(missing_ok=True)
    if folder.so_far.path.exists():
        with locked(folder.so_far_lock, folder.so_far.path):
            shutil.rmtree(folder.so_far.path, ignore_errors=True)
    folder.so_far_lock.unlink(missing_ok=True)
