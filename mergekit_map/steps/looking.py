"""Looking at a search that is not finished: what is found so far, as a folder.

What its log says is written to ``RUN/so-far``, which is a run folder of its own, log
included. The search itself never reads it, so that it goes on as if nobody had looked;
the folder goes when the search is finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.errors import ArtifactError
from mergekit_map.files import StrPath, unwritable
from mergekit_map.results.run_folder import RunFolder, open_run
from mergekit_map.steps.changing import mended

_LOCK = ".so-far.lock"
_PATIENCE = 60  # seconds, for somebody else who is looking


def look_at(run: StrPath) -> Path:
    """Give the folder that a search is read from, finished or not.

    That of a finished one is its own. What an unfinished one has found so far, whether
    it was stopped, was killed or is running, is put into ``RUN/so-far`` first, which
    ``select_point``, ``merge_point`` and ``write_report`` take for a finished search.

    Raises:
        ArtifactError: there is nothing to look at yet, or a file is damaged.
    """
    run = Path(run)
    folder = RunFolder(run)
    if folder.manifest.exists() or not folder.plan.exists():
        return mended(run).path
    # It fits surrogates, which a finished search has.
    from mergekit_map.steps.finding_so_far import write_so_far

    open_run(run)
    with _alone(folder):
        write_so_far(folder)
    return folder.so_far.path


def forget_so_far(folder: RunFolder) -> None:
    """Remove what was found before a search was finished, and what it set out to do."""
    folder.plan.unlink(missing_ok=True)
    if folder.so_far.path.exists():
        with _alone(folder):
            shutil.rmtree(folder.so_far.path, ignore_errors=True)
    (folder.path / _LOCK).unlink(missing_ok=True)


@contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """Let one process at a time write what is found so far."""
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
