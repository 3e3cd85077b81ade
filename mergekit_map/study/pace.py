"""How long a search still takes, by what its measurements took so far."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable

from mergekit_map.results.log import Evaluation

_RECENT = 20  # measurements of a task that tell its pace


class Pace:
    """Times measurements; what is loaded for one of them does not count.

    Where hours or documents are limited, what is left of them is the most it takes.
    """

    def __init__(
        self,
        known: Iterable[Evaluation] = (),
        hours: float | None = None,
        documents: int | None = None,
    ):
        self._seconds: dict[str, deque[float]] = {}
        self._hours, self._documents = hours, documents
        self._spent, self._asked = 0.0, 0
        self._worked = self._waited = 0.0  # on what was measured since
        self._task, self._paused = "", 0.0
        self._began: float | None = None
        known = list(known)
        for e in known:
            self._add(e, e.seconds)
        if known:  # whose first one includes that models were loaded
            self._seconds[known[0].task].popleft()

    def begin(self, task: str) -> None:
        """Start to measure a task."""
        self._task, self._began, self._paused = task, time.monotonic(), 0.0

    def pause(self, seconds: float) -> None:
        """Leave out time in which something was loaded."""
        self._paused += seconds

    def end(self, evaluation: Evaluation) -> None:
        """Take what was measured, here or by somebody else at the same time."""
        elapsed, worked = self._elapsed(), evaluation.seconds - self._paused
        self._waited, self._worked = self._waited + elapsed, self._worked + worked
        self._add(evaluation, max(elapsed, worked))
        self._began = None

    def left(self, measurements: int, share: float = 0.0) -> float | None:
        """Say how many seconds so many measurements take, the begun one among them.

        Of that one a share is done, as far as is known. None before the first one.
        """
        typical = {t: statistics.median(s) for t, s in self._seconds.items() if s}
        if not typical:
            return None
        mean = statistics.fmean(typical.values())
        begun = typical.get(self._task, mean) if not share else self._elapsed() / share
        left = max(0.0, begun - self._elapsed()) + mean * max(0, measurements - 1)
        if self._hours is not None:
            left = min(left, max(0.0, 3600 * self._hours - self._spent))
        if self._documents is not None and self._asked:
            share = max(0.0, self._documents / self._asked - 1)
            left = min(left, share * self._spent)
        return left / self._at_a_time()

    def _at_a_time(self) -> float:
        """Say how many measurements are under way at the same time, on average."""
        return max(1.0, self._worked / self._waited) if self._waited else 1.0

    def _add(self, e: Evaluation, seconds: float) -> None:
        self._seconds.setdefault(e.task, deque(maxlen=_RECENT)).append(seconds)
        self._spent, self._asked = self._spent + e.seconds, self._asked + e.n

    def _elapsed(self) -> float:
        if self._began is None:
            return 0.0
        return time.monotonic() - self._began - self._paused
