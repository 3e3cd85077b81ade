"""Held-out documents of tasks, which a search never sees and which check its choice.

The best of many merges looks better than it is on the documents of the search. On
held-out documents it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from mergekit_map.errors import EvaluationError
from mergekit_map.results.front import UNKNOWN, Front, HoldoutEvaluation, Merge
from mergekit_map.results.log import Evaluation, EvaluationLog, by_merge, merge_key
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import (
    Itemised,
    SampleStore,
    agree,
    differences_of,
    itemise,
)
from mergekit_map.search.measure import matching, measure
from mergekit_map.search.study import Candidate, Evaluator, Study
from mergekit_map.tasks.base import PreparedTask
from mergekit_map.types import Documents, Measurement
from mergekit_map.utils.files import digest
from mergekit_map.utils.progress import warn

_LEAST = 2  # documents on either side: of one, no standard error is known


@dataclass(frozen=True, eq=False)
class HoldoutSplit:
    """A task on the documents of the search and, separately, on the held-out ones."""

    name: str
    measure: PreparedTask
    apart: HeldOut

    def __call__(self, documents: Documents) -> Measurement:
        """Evaluate the model on all documents of the search, or some of them."""
        return self._measure_part(self._divide()[0], documents)

    def held_out(self, documents: Documents) -> Measurement:
        """Evaluate the model on the documents that the search never sees."""
        return self._measure_part(self._divide()[1], documents)

    def _measure_part(self, ids: Sequence[int], documents: Documents) -> Measurement:
        """Evaluate the model on a part, or on the documents at these places in it.

        Answers are counted by these places; records name documents as the task does.
        """
        places = range(len(ids)) if documents is None else documents
        measured = self.measure([ids[place] for place in places])
        if measured.answers is None:
            return measured
        return replace(measured, answers=replace(measured.answers, ids=tuple(places)))

    def _divide(self) -> tuple[list[int], list[int]]:
        if (size := self.measure.size or self.apart.sizes.get(self.name)) is None:
            if (answers := self.measure(None).answers) is None:
                raise EvaluationError(
                    f"task {self.name!r} gave one number and no list with a number for "
                    "each document, so that none can be held out; return a list, or "
                    "leave 'holdout' out"
                )
            size = self.apart.sizes[self.name] = len(answers.ids)
        return self.apart.divide(size)


class HeldOut:
    """A share of the documents of every task, the same for every merge."""

    def __init__(self, share: float, seed: int):
        self.share = share
        self._seed = seed
        self.sizes: dict[str, int] = {}  # of tasks that know theirs once measured

    def divide(self, size: int) -> tuple[list[int], list[int]]:
        """Draw the held-out documents, and return the others and them.

        They are at the same places of all tasks with as many documents, and nearly so
        of others: two tasks may be metrics of one benchmark, and a document that judges
        the search by one of them must not be seen by the other.
        """
        count = max(_LEAST, round(self.share * size))
        if size - count < _LEAST:
            raise EvaluationError(
                f"of {size} documents 'holdout: {self.share:g}' keeps {count} apart, "
                f"and at least {_LEAST} must be left to search with; give the task "
                "more documents, or hold out fewer"
            )
        # A longer task has the same numbers at first.
        order = np.random.default_rng(self._seed).random(size).argsort().tolist()
        return sorted(order[count:]), sorted(order[:count])

    def definition(self, whole: str, part: Literal["searched", "held out"]) -> str:
        """Return the digest of a part of a task, from that of the whole task."""
        division = {"holdout": self.share, "seed": self._seed, "places": part}
        return digest([whole, division])


def measure_held_out(
    study: Study,
    merges: Iterable[Mapping[str, float]],
    on_held_out: Callable[[Path, Mapping[str, str]], Evaluator],
    log: EvaluationLog,
) -> bool:
    """Measure merges on the held-out documents, if they can be, unless the log has it.

    The tasks of the ``study`` are the held-out documents. ``on_held_out`` returns their
    evaluator, from its folder of samples and the definitions of the tasks.
    """
    samples = log.folder.held_out_samples(study.merge)
    candidates: list[Candidate] = [("holdout", merge) for merge in merges]
    try:
        measure(study, candidates, on_held_out(samples, study.definitions), log)
    except EvaluationError as error:
        warn(f"held-out documents: {error}")
        return False
    return True


def with_confirmation(
    study: Study, front: Front, run: RunFolder, log: Iterable[Evaluation]
) -> Front:
    """Add the measurements on held-out documents to a front."""
    anchors = {
        (a.linear.merge if a.linear else study.merge, merge_key(a.logged)): a
        for a in front.anchors
    }
    held_out = [e for e in log if e.role == "holdout" and not e.failed]
    known = {part.merge: matching(part, held_out) for part in study.parts}
    merges: list[Merge] = []
    items: dict[str, list[Itemised | None]] = {task: [] for task in study.tasks}
    for fingerprint, evaluations in known.items():
        store = SampleStore(run.held_out_samples(fingerprint), study.definitions)
        for key, by_task in by_merge(evaluations).items():
            coefficients = dict(next(iter(by_task.values())).coefficients)
            measured = {task: e.reading for task, e in by_task.items()}
            own = coefficients if fingerprint == study.merge else {}  # else on disk
            merge = Merge(coefficients=own, measured=measured)
            if anchor := anchors.get((fingerprint, key)):
                names = {"label": anchor.label, "linear": anchor.linear}
                merge = merge.model_copy(update=names)
            merges.append(merge)
            for task, of_merges in items.items():
                answers = store.answers(coefficients, task)
                reading = measured.get(task, UNKNOWN)
                of_merges.append(itemise(answers) if agree(answers, reading) else None)
    # The chosen merge may be a reference point, too.
    chosen = study.merge, merge_key(front.chosen.coefficients)
    choices = {(study.merge, k) for k in by_merge(known[study.merge])} - anchors.keys()
    current = {*study.definitions.values()}  # the same documents judged other searches
    known_recipes = {e.recipe for part in known.values() for e in part} - {None}
    earlier = {  # of other searches, but for models that were renamed
        (e.merge, e.key[0])
        for e in held_out
        if e.definition in current and e.recipe not in known_recipes
        if e.merge not in known
    }
    others = earlier - {(e.merge, e.key[0]) for e in log if e.role == "anchor"}
    # A search that measured reference points alone there has chosen one.
    searches = {e.merge for e in log if e.role == "front"} & {m for m, _ in earlier}
    n_others = len(others) + len(searches - {merge for merge, _ in others})
    confirmation = HoldoutEvaluation(
        documents={e.task: e.n for e in known[study.merge]},
        choices=len(choices) + (chosen in anchors) + n_others,
        merges=tuple(merges),
        differences=differences_of(items),
    )
    return front.model_copy(update={"holdout": confirmation})
