"""A log that a search has open: nobody else writes it meanwhile, or it is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mergekit_map.errors import ArtifactError
from mergekit_map.files import state_of, unwritable, write_atomically
from mergekit_map.results.log import (
    LOCK_NAME,
    Evaluation,
    append_line,
    encode,
    read_log,
)
from mergekit_map.results.log_lines import drop_torn_line


class EvaluationLog:
    """The measurements of a run folder, on disk and in memory; or in memory alone."""

    def __init__(
        self, path: Path, evaluations: list[Evaluation], *, in_memory: bool = False
    ):
        self.path = path
        self._evaluations = evaluations
        self._on_disk = not in_memory
        self._state = state_of(path)
        self._tell: Callable[[Evaluation], None] | None = None

    def tell(self, listener: Callable[[Evaluation], None]) -> None:
        """Let somebody hear of every measurement, once it is on the disk."""
        self._tell = listener

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self._evaluations)

    def append(self, evaluation: Evaluation) -> None:
        """Add a measurement; it is on the disk when this returns.

        Raises:
            ArtifactError: it cannot be written, or the file is not as it was left.
        """
        self._evaluations.append(evaluation)
        if self._on_disk:
            self.check()
            # Not the state afterwards: somebody may change it while it is written.
            self._state = append_line(self.path, evaluation, self._state)
        if self._tell is not None:
            self._tell(evaluation)

    def check(self) -> None:
        """Refuse a log that somebody else changed while it is open.

        A log that is gone is written anew first.

        Raises:
            ArtifactError: it is not as it was left.
        """
        now = state_of(self.path)
        if not self._on_disk or now == self._state:
            return
        if now is None:
            text = "".join(encode(e) + "\n" for e in self._evaluations)
            write_atomically(self.path, text)
            raise ArtifactError(
                f"{self.path} was removed while it was written, so the search stops; "
                "it is there again, with all that was measured: search again to go on"
            )
        raise ArtifactError(
            f"{self.path} was changed by somebody else while it was written, so the "
            "search stops; restore it, or search again to go on from what it says now"
        )


@contextmanager
def open_log(path: Path) -> Iterator[EvaluationLog]:
    """Open a log for one search at a time; a line cut short by a kill is dropped.

    Raises:
        ArtifactError: another search has it open, or a line cannot be read.
    """
    lock = FileLock(path.with_name(LOCK_NAME))
    try:
        lock.acquire(timeout=0)
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
