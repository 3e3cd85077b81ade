"""An evaluator that measures its share, and reads the rest in the logs of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from mergekit_map.errors import EvaluationError
from mergekit_map.measurement import Answers, Measurement, Part, Wanted
from mergekit_map.results.company import Company
from mergekit_map.results.early import Waiting
from mergekit_map.results.log import Evaluation, Key, evaluation_key
from mergekit_map.results.shard_logs import ShardLogs
from mergekit_map.study.sharing import Sharing

_Failure = EvaluationError | RuntimeError | ArithmeticError | MemoryError


class Measures(Protocol):
    """An evaluator with records, which measures by itself."""

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Measure, or give what is on record."""
        ...

    def expect(self, ahead: Sequence[Wanted]) -> None:
        """Hear what will be asked next."""
        ...

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Give what documents answered before."""
        ...

    def forget(self, coefficients: Mapping[str, float], task: str) -> None:
        """Read records anew that somebody else may have written."""
        ...


@dataclass(frozen=True, eq=False)
class Shared:
    """What the evaluators of one shard have in common."""

    logs: ShardLogs
    sharing: Sharing
    company: Company
    merge: str  # fingerprint
    # Says what is waited for, as long as that lasts.
    stage: Callable[[str], AbstractContextManager[None]]


class SharedEvaluator:
    """Measures what falls to one shard before it asks for what others measure."""

    def __init__(self, inner: Measures, shared: Shared, definitions: Mapping[str, str]):
        self._inner, self._shared, self._definitions = inner, shared, definitions
        self._waiting = Waiting(shared.logs, shared.merge, definitions)
        self._own: list[Wanted] = []
        # What was measured and has no line yet, since only its turn says which.
        self._held: dict[Key, Measurement | _Failure] = {}

    def expect(self, ahead: Sequence[Wanted]) -> None:
        """Hear what will be asked next, and take a share of it."""
        mine = self._shared.sharing.assign(ahead)
        self._own = [one for one in mine if not self._is_known(one)]
        self._inner.expect(self._own)

    def __call__(
        self, coefficients: Mapping[str, float], task: str, part: Part | None = None
    ) -> Measurement:
        """Measure the share of this shard, or wait for the others."""
        wanted = Wanted(coefficients, task, part)
        while self._own:
            one = self._own.pop(0)
            if not self._is_known(one):
                self._measure(one)
        if not self._is_known(wanted) and not self._arrived(wanted):
            self._measure(wanted)
        return self._take(wanted)

    def answers(self, coefficients: Mapping[str, float], task: str) -> Answers | None:
        """Give what documents answered before."""
        return self._inner.answers(coefficients, task)

    def logged(self, evaluation: Evaluation) -> None:
        """Write the line of what this shard measured, if its turn has only come now."""
        if self._held.pop(evaluation.key, None) is not None:
            self._shared.logs.keep(evaluation)

    def _arrived(self, wanted: Wanted) -> bool:
        """Wait for what others measure; false where it falls to this shard."""
        sharing, waited = self._shared.sharing, 0.0
        if sharing.is_own(wanted):
            return False
        company = self._shared.company
        names = ", ".join(map(str, company.others))
        with self._shared.stage(f"waiting for shard {names}"), company.waiting():
            while not self._is_known(wanted):
                if sharing.is_own(wanted):
                    return False
                waited = sharing.wait(waited)
        return True

    def _measure(self, wanted: Wanted) -> None:
        """Measure, and write it down at once where the line needs nothing else."""
        coefficients, task = wanted.coefficients, wanted.task
        started = time.perf_counter()
        found: Measurement | _Failure
        try:
            found = self._inner(coefficients, task, wanted.part)
            if found.seconds is None:
                found = replace(found, seconds=time.perf_counter() - started)
        except (EvaluationError, RuntimeError, ArithmeticError, MemoryError) as error:
            found = error
        if isinstance(found, Measurement) and wanted.part is None:
            if not self._waiting.has(coefficients, task):
                self._waiting.keep(coefficients, task, found)
            return
        self._held[evaluation_key(coefficients, task)] = found

    def _take(self, wanted: Wanted) -> Measurement:
        """Give what is known.

        Raises:
            EvaluationError: or others, where measuring failed, here or elsewhere.
        """
        coefficients, task = wanted.coefficients, wanted.task
        held = self._held.get(evaluation_key(coefficients, task))
        if isinstance(held, Measurement):
            return held
        if held is not None:
            raise held
        if wanted.part is None and (found := self._waiting.take(coefficients, task)):
            return found
        line = self._line(wanted)
        assert line is not None
        if line.error is not None:
            raise EvaluationError(line.error)
        # The answers of the other shard are on record: nothing is asked again.
        self._inner.forget(coefficients, task)
        found = self._inner(coefficients, task, wanted.part)
        return replace(found, seconds=line.seconds)

    def _is_known(self, wanted: Wanted) -> bool:
        key = evaluation_key(wanted.coefficients, wanted.task)
        return key in self._held or self._line(wanted) is not None

    def _line(self, wanted: Wanted) -> Evaluation | None:
        """Find what shards have written of it, if anything; what failed last."""
        ids = None if wanted.part is None else wanted.part.ids
        key = evaluation_key(wanted.coefficients, wanted.task)
        lines = [
            e
            for e in self._shared.logs.all_of(
                key, self._shared.merge, self._definitions[wanted.task]
            )
            if e.error is not None or e.documents == ids
        ]
        return min(lines, key=lambda e: e.error is not None, default=None)
