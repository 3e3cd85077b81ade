"""Held-out documents of tasks, which a search never sees and which check its choice.

The best of many merges looks better than it is on the documents of the search. On
held-out documents it does not.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import SearchSpec
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import Documents, PreparedTask
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.types import Measure, Measurement
from mergekit_map.utils.files import digest

_LEAST = 2  # documents on either side: of one, no standard error is known


@dataclass(frozen=True, eq=False)
class HoldoutSplit:
    """A task on the documents of the search and, separately, on the held-out ones."""

    name: str
    measure: Measure
    apart: HeldOut
    fingerprint: str

    @property
    def size(self) -> int | None:
        """Return how many documents the search has; None where that is unknown yet."""
        size = self._size
        return None if size is None else len(self._ids(size)[0])

    def __call__(self, documents: Documents = None) -> Measurement:
        """Evaluate the model on all documents of the search, or some of them."""
        return self._measure_part(0, documents)

    @property
    def held_out(self) -> PreparedTask:
        """Return the task on the documents that the search never sees."""
        return PreparedTask(functools.partial(self._measure_part, 1), None)

    def _measure_part(self, number: int, documents: Documents) -> Measurement:
        """Evaluate the model on a part, or on the documents at these places in it.

        Answers are counted by these places; records name documents as the task does.
        """
        size = self._learn_size() if self._size is None else self._size
        ids = self._ids(size)[number]
        places = range(len(ids)) if documents is None else documents
        measured = self.measure([ids[place] for place in places])
        if measured.answers is None:
            return measured
        return replace(measured, answers=replace(measured.answers, ids=tuple(places)))

    @property
    def _size(self) -> int | None:
        known = self.apart.sizes.get(self.name)
        return known if self.measure.size is None else self.measure.size

    def _learn_size(self) -> int:
        answers = self.measure().answers
        if answers is None:
            raise EvaluationError(
                f"task {self.name!r} gave one number and no list with a number for "
                "each document, so that none can be held out; return a list, or leave "
                "'holdout' out"
            )
        return self.apart.sizes.setdefault(self.name, len(answers.ids))

    def _ids(self, size: int) -> tuple[list[int], list[int]]:
        try:
            return self.apart.divide(self.fingerprint, size)
        except EvaluationError as error:
            raise EvaluationError(f"task {self.name!r}: {error}") from None


class HeldOut:
    """A share of the documents of every task, the same for every merge."""

    def __init__(self, share: float, seed: int):
        self.share, self._seed = share, seed
        self.sizes: dict[str, int] = {}  # of tasks that do not say before

    def parts(
        self, measures: Mapping[str, Measure], tasks: Mapping[str, LoadedTask]
    ) -> dict[str, Measure]:
        """Split the documents of prepared tasks."""
        return {
            name: HoldoutSplit(name, measure, self, tasks[name].fingerprint)
            for name, measure in measures.items()
        }

    def divide(self, fingerprint: str, size: int) -> tuple[list[int], list[int]]:
        """Draw the held-out documents; the others come first.

        Raises:
            EvaluationError: there are too few of them.
        """
        count = max(_LEAST, round(self.share * size))
        if size - count < _LEAST:
            raise EvaluationError(
                f"of {size} documents 'holdout: {self.share:g}' keeps {count} apart, "
                f"and at least {_LEAST} must be left to search with; give the task "
                "more documents, or hold out fewer"
            )
        rng = np.random.default_rng(int(digest([fingerprint, self._seed]), 16))
        order = rng.permutation(size).tolist()
        return sorted(order[count:]), sorted(order[:count])

    def definitions(self, definition: str) -> tuple[str, str]:
        """Return the digests of a task's documents in the search and held out."""
        drawn = {"holdout": self.share, "seed": self._seed}
        searched, rest = (
            digest([definition, {**drawn, "part": part}])
            for part in ("searched", "held out")
        )
        return searched, rest


def held_out_problems(search: SearchSpec, *, nests_checkpoints: bool) -> list[Problem]:
    """List the reasons against holding documents out."""
    if search.holdout is None or not nests_checkpoints:
        return []
    text = (
        "where nested search merges checkpoints, each pair is a search of its own, and "
        "none of them can confirm the whole; remove 'holdout', or use 'strategy: map'"
    )
    return [Problem(("map", "search", "holdout"), text)]
