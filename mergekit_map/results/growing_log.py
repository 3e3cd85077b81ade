"""A log that one process lets grow; what others do to it meanwhile is noticed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mergekit_map.errors import ArtifactError
from mergekit_map.files import state_of, write_atomically
from mergekit_map.results.log import Evaluation, append_line, encode


class GrowingLog:
    """A log on disk, with what stands in it already."""

    def __init__(self, path: Path, evaluations: Iterable[Evaluation]) -> None:
        self.path = path
        self._evaluations = list(evaluations)
        self._state = state_of(path)

    def append(self, evaluation: Evaluation) -> None:
        """Add a measurement; it is on the disk when this returns.

        Raises:
            ArtifactError: it cannot be written, or is not as it was left.
        """
        self._evaluations.append(evaluation)
        self.check()
        # Not what the file is like afterwards: it may be changed while it is written.
        self._state = append_line(self.path, evaluation, self._state)

    def check(self) -> None:
        """Refuse a log that somebody else changed while it is open.

        Where it is gone, it is written anew first.

        Raises:
            ArtifactError: it is not as it was left.
        """
        now = state_of(self.path)
        if now == self._state:
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
