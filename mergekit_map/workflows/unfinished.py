"""A search that is not finished, looked at: its partial front as a folder.

The log is fitted and written to ``RUN/.state/so-far``, a run folder of its own. The
search never reads it, and removes it when it is finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.errors import ArtifactError
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.utils.files import StrPath, unwritable
from mergekit_map.workflows.atomic_selection import repaired_folder

_PATIENCE = 60  # seconds, for somebody else who is looking


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
    with _alone(folder):
        write_partial_front(folder)
    return folder.so_far.path


def remove_partial_front(folder: RunFolder) -> None:
    """Remove the partial front and the plan of a search that is finished."""
    folder.plan.unlink(missing_ok=True)
    if folder.so_far.path.exists():
        with _alone(folder):
            shutil.rmtree(folder.so_far.path, ignore_errors=True)
    folder.so_far_lock.unlink(missing_ok=True)


@contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """Lock the partial front for one process."""
    try:
        with FileLock(folder.so_far_lock, timeout=_PATIENCE):
            yield
    except Timeout:
        raise ArtifactError(
            f"somebody else has been writing {folder.so_far.path} for {_PATIENCE} "
            "seconds; try again"
        ) from None
    except PermissionError as error:
        raise unwritable(folder.path, error) from None
