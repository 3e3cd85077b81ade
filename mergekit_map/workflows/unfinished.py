"""A search that is not finished, looked at: its partial front as a folder.

The log is fitted and written to ``RUN/so-far``, a run folder of its own. The search
never reads it, so that it goes on as if nobody had looked; the folder goes when the
search is finished.
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

_LOCK = ".so-far.lock"


_PATIENCE = 60  # seconds, for somebody else who is looking


def look_at(run: StrPath) -> Path:
    """Return the folder to read a search from, finished or not.

    A finished search is read from its own folder. The partial front of an unfinished
    one, be it stopped, killed or running, is first written to ``RUN/so-far``, which
    ``select_point``, ``merge_point`` and ``write_report`` treat as a finished search.

    Raises:
        ArtifactError: there is nothing to look at yet, or a file is damaged.
    """
    run = Path(run)
    folder = RunFolder(run)
    if folder.manifest.exists() or not folder.plan.exists():
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
    (folder.path / _LOCK).unlink(missing_ok=True)


@contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """Lock the partial front for one process."""
    try:
        with FileLock(folder.path / _LOCK, timeout=_PATIENCE):
            yield
    except Timeout:
        raise ArtifactError(
            f"somebody else has been writing {folder.so_far.path} for {_PATIENCE} "
            "seconds; try again"
        ) from None
    except PermissionError as error:
        raise unwritable(folder.path, error) from None
