"""A log that a search has open: nobody else writes it meanwhile, or it is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.errors import ArtifactError
from mergekit_map.files import unwritable
from mergekit_map.results.growing_log import GrowingLog
from mergekit_map.results.log import LOCK_NAME, Evaluation, read_log
from mergekit_map.results.log_lines import drop_torn_line


class EvaluationLog:
    """The measurements of a run folder, on disk and in memory; or in memory alone."""

    def __init__(
        self, path: Path, evaluations: list[Evaluation], *, in_memory: bool = False
    ):
        self.path = path
        self._evaluations = evaluations
        self._file = None if in_memory else GrowingLog(path, evaluations)
        self._tell: Callable[[Evaluation], None] | None = None

    def tell(self, listener: Callable[[Evaluation], None]) -> None:
        """Let somebody hear of every measurement, once it is on the disk."""
        self._tell = listener

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._evaluations)

    def append(self, evaluation: Evaluation) -> None:
        """Add a measurement; it is on the disk when this returns."""
        self._evaluations.append(evaluation)
        if self._file is not None:
            self._file.append(evaluation)
        if self._tell is not None:
            self._tell(evaluation)

    def check(self) -> None:
        """Refuse a log that somebody else changed while it is open.

        Raises:
            ArtifactError: it is not as it was left.
        """
        if self._file is not None:
            self._file.check()


@contextmanager
def open_log(path: Path, patience: float = 0) -> Iterator[EvaluationLog]:
    """Open a log for one search at a time; a line cut short by a kill is dropped.

    Whoever only needs it for a moment waits for so many seconds.

    Raises:
        ArtifactError: another search has it open, or a line cannot be read.
    """
    lock = FileLock(path.with_name(LOCK_NAME))
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise ArtifactError(
            f"another search is writing {path}; wait for it, or name another run folder"
        ) from None
    except OSError as error:
        raise unwritable(path.with_name(LOCK_NAME), error) from None
    try:
        drop_torn_line(path)
        yield EvaluationLog(path, list(read_log(path)))
    finally:
        lock.release()
