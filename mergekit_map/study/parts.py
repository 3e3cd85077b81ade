"""Which documents of a task a merge is asked, and what follows for all of them.

Not in the paper. Merges of the same parents answer most documents alike, so that what
earlier merges answered foretells what a further one will, and only what it answers
otherwise has to be measured: a survey (``search/sampling.py`` has the theory).

Notation: ``D`` documents, ``n`` of them asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mergekit_map.files import digest
from mergekit_map.measurement import Answers, Part
from mergekit_map.results.log import Evaluation, merge_key
from mergekit_map.search.arrays import FloatArray, to_unit
from mergekit_map.search.foresight import Foresight, Seen, foresee
from mergekit_map.search.sampling import (
    PartValue,
    chances,
    drawn,
    estimate,
    grown,
    wanted_count,
)
from mergekit_map.study.study import Evaluator, Study

# The standard error that a part is drawn for, as a share of the range of what was
# measured, or of the standard error that all documents have.
_OF_RANGE, _OF_STDERR = 0.02, 0.4
# The fewest documents, also as a share; the share from which all are asked.
_FEWEST, _LEAST, _MOST = 8, 1 / 32, 0.7


@dataclass(frozen=True, eq=False)
class Drawing:
    """Documents that were drawn, and what is foreseen of all."""

    part: Part
    chances: FloatArray  # (D,) of each document
    foresight: Foresight
    weights: FloatArray  # (D,)
    exponential: bool

    def estimate(self, answers: Answers | None) -> PartValue:
        """Estimate the value on all documents from what those drawn answered.

        NaN where one of them answered NaN or infinity.
        """
        assert answers is not None  # who gives none refuses to be asked in part
        if not all(map(math.isfinite, answers.values)):
            return PartValue(math.nan, math.nan, math.nan, len(answers.ids))
        return estimate(
            np.array(answers.ids, np.int_),
            np.array(answers.values, np.float64),
            self.chances,
            self.foresight,
            self.weights,
            exponential=self.exponential,
        )


@dataclass(frozen=True, eq=False)
class History:
    """What merges answered on one task, the first one measured first."""

    study: Study
    task: str
    known: Sequence[tuple[Evaluation, Answers]]

    @classmethod
    def of(
        cls,
        study: Study,
        task: str,
        evaluations: Iterable[Evaluation],
        evaluate: Evaluator,
    ) -> History:
        """Gather the answers on record of all merges that were measured."""
        latest = {e.key: e for e in evaluations if e.task == task and not e.failed}
        known = [*_answered(latest.values(), evaluate)]
        size = next((len(a.ids) for e, a in known if e.whole), 0)
        return cls(
            study, task, [(e, a) for e, a in known if (e.of or len(a.ids)) == size]
        )

    @cached_property
    def whole(self) -> Answers | None:
        """Give the answers of a merge that was asked all documents, if there is one."""
        return next((a for e, a in self.known if e.whole), None)

    def foresee(self, coefficients: Mapping[str, float], size: int) -> Foresight:
        """Foresee what documents answer at a merge, from all others."""
        key, box = merge_key(coefficients), self.study.box
        place = to_unit(self.study.vectors([coefficients]), box)[0]
        others = [(e, a) for e, a in self.known if e.key[0] != key]
        places = to_unit(self.study.vectors(e.coefficients for e, _ in others), box)
        seen = [
            Seen(
                there,
                np.array(a.ids, np.int_),
                np.array(a.values),
                None if a.margins is None else np.array(a.margins),
            )
            for there, (_, a) in zip(places, others, strict=True)
        ]
        return foresee(place, seen, size)

    def count(self, foresight: Foresight, weights: FloatArray) -> float:
        """Say how many documents to ask of a merge, on average."""
        wish = self.study.documents[self.task]
        if isinstance(wish, int):
            return wish
        values = np.array([e.value for e, _ in self.known])
        errors = np.array([e.stderr or 0.0 for e, _ in self.known if e.whole])
        if self.whole is not None and self.whole.exponential:
            values, errors = np.log(values), errors / values.mean()
        target = max(_OF_RANGE * np.ptp(values), _OF_STDERR * np.median(errors))
        wanted = wanted_count(foresight, weights, float(target))
        return max(wanted, _FEWEST, _LEAST * len(weights))


def draw_part(
    history: History, coefficients: Mapping[str, float], *, doubled: bool = False
) -> Drawing | None:
    """Draw the documents to ask of a merge; None where all are to be asked.

    A function of its arguments alone. With ``doubled`` twice as many are drawn as
    before, or as of others; those of before are among them.
    """
    whole = history.whole
    if whole is None:
        return None
    weights = np.array(whole.weights)
    foresight = history.foresee(coefficients, len(weights))
    count = history.count(foresight, weights) * (1 + doubled)
    key, before = merge_key(coefficients), np.zeros(len(weights))
    for evaluation, answers in history.known:
        if evaluation.key[0] == key and answers.probabilities is not None:
            before[list(answers.ids)] = answers.probabilities
            if doubled and answers.expected is not None:
                count = 2 * answers.expected
    if count > _MOST * len(weights):
        return None
    pi = grown(chances(count, weights, foresight), before)
    study = history.study
    identity = [study.search.seed, study.definitions[history.task], key]
    rng = np.random.default_rng(int(digest(identity), 16))
    ids = drawn(pi, rng.random(len(weights)))
    part = Part(tuple(ids.tolist()), tuple(pi[ids].tolist()), count)
    return Drawing(part, pi, foresight, weights, whole.exponential)


def _answered(
    evaluations: Iterable[Evaluation], evaluate: Evaluator
) -> Iterator[tuple[Evaluation, Answers]]:
    for evaluation in evaluations:
        answers = evaluate.answers(evaluation.coefficients, evaluation.task)
        found = None if answers is None else _of_line(evaluation, answers)
        if found is not None:
            yield evaluation, found


def _of_line(evaluation: Evaluation, answers: Answers) -> Answers | None:
    """Leave out what was answered after a line was written; None if some is missing."""
    if evaluation.documents is None:
        return answers if answers.ids == tuple(range(len(answers.ids))) else None
    places = {document: place for place, document in enumerate(answers.ids)}
    if not places.keys() >= set(evaluation.documents):
        return None
    kept = [places[document] for document in evaluation.documents]

    def of_kept(column: Sequence[float] | None) -> tuple[float, ...] | None:
        return None if column is None else tuple(column[place] for place in kept)

    found = replace(
        answers,
        ids=evaluation.documents,
        values=tuple(answers.values[place] for place in kept),
        weights=tuple(answers.weights[place] for place in kept),
        margins=of_kept(answers.margins),
        probabilities=of_kept(answers.probabilities),
    )
    before = answers.before
    if before is None or found.ids == answers.ids or found.ids != before.ids:
        return found
    return replace(found, probabilities=before.probabilities, expected=before.expected)
