"""Tasks of lm-eval that have the model write, in pieces that are lm-eval's batches.

How answers are batched moves them by their rounding. So a piece is what lm-eval itself
would answer at once, in its order, and is handed to it as one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import Collator

from mergekit_map.measurement import Measurement
from mergekit_map.pulse import unheard
from mergekit_map.tasks.harness import HarnessTask
from mergekit_map.tasks.harness_answers import divide
from mergekit_map.tasks.harness_measuring import judge
from mergekit_map.tasks.harness_requests import Answered, requests_of
from mergekit_map.tasks.lm_eval_patches import asking
from mergekit_map.tasks.prepared_task import Documents
from mergekit_map.tasks.surroundings import interruptible, quiet, separate_randomness

_KIND = "generate_until"


@dataclass(frozen=True, eq=False)
class GeneratedTask:
    """A task whose answers are all written, the likeliest ones, by ``generate``."""

    task: HarnessTask
    lm: HFLM

    def pieces(self, documents: Documents) -> int:
        """Count the batches."""
        return len(self._plan(documents).batches)

    def piece(self, documents: Documents, index: int) -> list[str]:
        """Have one of them written."""
        plan = self._plan(documents)
        requests = [plan.requests[place] for place in plan.batches[index]]
        with quiet(), separate_randomness(), unheard(), interruptible(self.lm):
            return list(self.lm.generate_until(requests))

    def whole(
        self, documents: Documents, found: Sequence[Sequence[str]]
    ) -> Measurement:
        """Let lm-eval judge what was written."""
        plan = self._plan(documents)
        answers = [""] * len(plan.requests)
        for places, texts in zip(plan.batches, found, strict=True):
            for place, text in zip(places, texts, strict=True):
                answers[place] = text
        return judge(self.task, self.lm, documents, Answered({_KIND: answers}))

    def _plan(self, documents: Documents) -> _Plan:
        if documents is None:
            return self._of_all
        with asking(self.task.loaded, divide(self.task, documents)) as loaded:
            return _plan(self.lm, requests_of(loaded)[_KIND])

    @cached_property
    def _of_all(self) -> _Plan:
        return _plan(self.lm, requests_of(self.task.loaded)[_KIND])


@dataclass(frozen=True, eq=False)
class _Plan:
    requests: Sequence[Any]
    batches: Sequence[Sequence[int]]  # places of requests, as lm-eval batches them


def _plan(lm: HFLM, requests: Sequence[Any]) -> _Plan:
    """Sort as ``generate_until`` of lm-eval does: by options, the longest first."""

    def order(place: int) -> tuple[int, str]:
        prompt = requests[place].args[0]
        return -len(lm.tok_encode(prompt)), prompt

    sorter = Collator(
        range(len(requests)),
        sort_fn=order,
        group_by="gen_kwargs",
        group_fn=lambda place: requests[place].args[1],
    )
    return _Plan(requests, [list(b) for b in sorter.get_batched(n=lm.batch_size)])
