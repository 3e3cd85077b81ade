"""What a crew knows of the measurements under way, and of its members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mergekit_map.measurement import Measurement
from mergekit_map.results.log import MergeKey
from mergekit_map.steps.serving import Request
from mergekit_map.steps.worker import Arrived, Work


@dataclass(eq=False)
class Job:
    """A measurement under way."""

    work: Work
    arrived: Arrived | None = None  # None where somebody waits for it
    count: int | None = None  # of its pieces, once that is known
    undealt: list[tuple[int, int]] = field(default_factory=list)  # first and end
    found: dict[int, Any] = field(default_factory=dict)  # by piece
    busy: int = 0  # workers that are at it
    seconds: float = 0.0
    deaths: int = 0
    result: Measurement | None = None
    error: BaseException | None = None

    @property
    def over(self) -> bool:
        """Tell whether it came to an end, good or bad."""
        return self.result is not None or self.error is not None

    @property
    def left(self) -> int:
        """Count the pieces that nobody is at; 1 where that is not known."""
        if self.count is None:
            return 0 if self.busy else 1
        return sum(end - first for first, end in self.undealt)

    @property
    def waits_for_joining(self) -> bool:
        """Tell whether all pieces are found, and not put together yet."""
        found_all = self.count is not None and len(self.found) == self.count
        return found_all and not self.busy and not self.over

    def divide(self, count: int) -> None:
        """Hear how many pieces there are."""
        self.count, self.undealt = count, [(0, count)]

    def take(self, most: int) -> tuple[int, int]:
        """Take pieces that follow each other, so many at most."""
        first, end = self.undealt.pop(0)
        if first + most < end:
            self.undealt.insert(0, (first + most, end))
        return first, min(end, first + most)

    def fail(self, error: BaseException) -> None:
        """Give up; the first error counts."""
        self.error, self.undealt = self.error or error, []


@dataclass(eq=False)
class Member:
    """One of the workers, as far as is known."""

    free: bool = False
    is_open: bool = False  # with the models of the project
    merge: MergeKey | None = None  # that it has made
    request: Request | None = None  # that it is at
    job: Job | None = None  # that this is for
    wrote: bool = False  # whether it made a merge for what it is at
    deaths: int = 0  # before it had opened the models
