"""Callbacks: whoever wants to hear how a search goes, from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mergekit_map.results.front import Front
from mergekit_map.results.log import ASSESSING, Evaluation
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Progress, Reporter, Study
from mergekit_map.types import Metric
from mergekit_map.utils.progress import heard_by


@dataclass(frozen=True)
class Started:
    """A search that begins, or goes on."""

    run: Path  # its folder
    config: Mapping[str, Any]  # the configuration, as it was read
    coefficients: Mapping[str, tuple[float, float]]  # what is searched, between bounds
    tasks: Mapping[str, Metric]  # what is measured
    total: int  # measurements, of a task at a merge, at most
    known: Sequence[Evaluation]  # what was measured before


class Callback:
    """Hears how a search goes; a subclass overrides what it wants to hear of.

    What is heard of happens in the thread of the search, which waits for it. A callback
    that fails is left out from then on; the search says so and goes on.
    """

    def on_start(self, started: Started) -> None:
        """Hear once what is searched, before anything is measured."""

    def on_stage(self, text: str, seconds: float | None) -> None:
        """Hear that something takes long; with the seconds it took, that it is over."""

    def on_progress(self, progress: Progress) -> None:
        """Hear that a measurement begins; ``done`` of ``total`` are there."""

    def on_step(self, done: int, total: int) -> None:
        """Hear how far the measurement is: of requests, blocks or documents."""

    def on_measured(self, evaluation: Evaluation) -> None:
        """Hear what was measured, once it is in the log."""

    def on_notice(self, text: str) -> None:
        """Hear of something that the user should know."""

    def on_finish(self, front: Front) -> None:
        """Hear what was found, once all of it is in the run folder."""

    def on_stop(self, error: BaseException) -> None:
        """Hear that the search ends early: by Ctrl-C, or by an error."""


class Told:
    """Tells a reporter and callbacks how a search goes, pairs of it included.

    Counts what is measured by itself, so that there is one count for the whole search.
    """

    def __init__(self, reporter: Reporter, callbacks: Iterable[Callback] = ()):
        self._reporter = reporter
        own = [reporter] if isinstance(reporter, Callback) else []
        self._callbacks: list[Callback] = [*own, *callbacks]
        self._done: set[object] = set()
        self._total: int | None = None

    def start(self, started: Started, study: Study) -> None:
        """Tell once what is searched; pairs of it are parts of that."""
        known = [
            e
            for e in matching(study, started.known)
            if e.role in {"front", "holdout"} or e.role not in ASSESSING
        ]
        self._done |= set(map(_counted, known))
        if self._total is None:
            self._total = started.total
            self._tell(lambda one: one.on_start(replace(started, known=known)))

    def progress(self, progress: Progress) -> None:
        """Tell that a measurement is about to start."""
        if self._total is not None:
            done = len(self._done)
            total = max(self._total, done + 1)
            progress = replace(progress, done=done, total=total)
        self._reporter.progress(progress)
        self._tell(lambda one: one.on_progress(progress))

    def measured(self, evaluation: Evaluation) -> None:
        """Tell what was measured."""
        self._done.add(_counted(evaluation))
        self._tell(lambda one: one.on_measured(evaluation))

    def notice(self, text: str) -> None:
        """Tell something that the user should know."""
        self._reporter.notice(text)
        self._tell(lambda one: one.on_notice(text))

    def staged(self, text: str, seconds: float | None) -> None:
        """Tell that a stage begins or is over."""
        self._tell(lambda one: one.on_stage(text, seconds))

    def stepped(self, done: int, total: int) -> None:
        """Tell how far a measurement is."""
        self._tell(lambda one: one.on_step(done, total))

    def finish(self, front: Front) -> None:
        """Tell what was found."""
        self._tell(lambda one: one.on_finish(front))

    def stop(self, error: BaseException) -> None:
        """Tell that it ends early."""
        self._tell(lambda one: one.on_stop(error))

    def _tell(self, what: Callable[[Callback], None]) -> None:
        for one in list(self._callbacks):
            try:
                what(one)
            except Exception as error:  # noqa: BLE001 - of others; hours are at stake
                self._callbacks.remove(one)
                name = type(one).__name__
                self._reporter.notice(
                    f"the callback {name} failed ({type(error).__name__}: {error}) and "
                    "is left out from now on; the search goes on"
                )


@contextmanager
def telling(reporter: Reporter, callbacks: Iterable[Callback] = ()) -> Iterator[Told]:
    """Give what tells a reporter and callbacks how long work goes, and if it stops."""
    told = Told(reporter, callbacks)
    with heard_by(told):
        try:
            yield told
        except BaseException as error:
            told.stop(error)
            raise


def _counted(e: Evaluation) -> object:
    """Tell measurements apart: another part of the documents is the same one again."""
    return e.merge, e.key, e.role == "holdout"
