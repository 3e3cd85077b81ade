"""A worker, which opens the models of a project once and measures merges of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from mergekit_map.results.log import MergeKey
from mergekit_map.tasks.holdout_split import HoldoutSplit
from mergekit_map.types import Measure, Measurement


@dataclass(frozen=True)
class Work:
    """A measurement to make, as a value that can be sent to another process."""

    merge: MergeKey
    task: str
    documents: tuple[int, ...] | None = None  # counted from 0; None: all of them
    held_out: bool = False  # of the documents that a search never sees

    @property
    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of the merge."""
        return dict(self.merge)


# Hears what was measured before it was asked for.
Arrived: TypeAlias = Callable[[Work, Measurement], None]


class Merges(Protocol):
    """The merges of a project, one at a time."""

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge, and return the measures of the tasks, valid until the next merge."""
        ...


class Workers(Protocol):
    """The interface of one worker or a pool of workers."""

    def expect(self, ahead: Sequence[Work], arrived: Arrived) -> None:
        """Announce the next measurements in order; they replace those before.

        A pool works ahead: it passes a measurement to ``arrived`` if it finishes before
        its request.
        """
        ...

    def measure(self, work: Work) -> Measurement:
        """Return a measurement; wait for it where it is running already."""
        ...

    def close(self) -> None:
        """Release the models."""
        ...


class Worker:
    """Measures merges one after the other; opens the models with the first one."""

    def __init__(self, merges: AbstractContextManager[Merges]):
        self._unopened = merges
        self._stack = ExitStack()
        self._merges: Merges | None = None
        self._coefficients: Mapping[str, float] | None = None
        self._measures: Mapping[str, Measure] = {}

    def open(self) -> Merges:
        """Open the models, unless they are open.

        Raises:
            MapError: they cannot be merged, or not measured.
        """
        if self._merges is None:
            self._merges = self._stack.enter_context(self._unopened)
        return self._merges

    def close(self) -> None:
        """Release the models."""
        self._stack.close()

    def expect(self, ahead: Sequence[Work], arrived: Arrived) -> None:
        """Do nothing: one worker does not work ahead."""

    def measure(self, work: Work) -> Measurement:
        """Merge, unless these coefficients are merged already, and measure a task."""
        measure = self.at(work.coefficients)[work.task]
        if work.held_out:
            assert isinstance(measure, HoldoutSplit)
            measure = measure.held_out
        try:
            return measure() if work.documents is None else measure(work.documents)
        except BaseException:
            self._coefficients = None  # code may have changed the merge
            raise

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        """Merge, unless these coefficients are merged already."""
        merges = self.open()
        if self._coefficients != coefficients:
            # If the merge fails, it is of no coefficients; and what measured the last
            # one may hold a model that the next one needs the memory of.
            self._coefficients, self._measures = None, {}
            self._measures = merges.at(coefficients)
            self._coefficients = dict(coefficients)
        return self._measures
