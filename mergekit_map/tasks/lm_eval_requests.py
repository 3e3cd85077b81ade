"""Requests of lm-eval tasks, answered here instead of in lm-eval's loop.

lm-eval builds and tokenises the requests, and judges the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM

from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import Documents
from mergekit_map.tasks.isolation import quiet, separate_randomness
from mergekit_map.tasks.lm_eval_answers import divide
from mergekit_map.tasks.lm_eval_evaluation import judge
from mergekit_map.tasks.lm_eval_patches import asking, tokens_of
from mergekit_map.tasks.lm_eval_tasks import HarnessTask
from mergekit_map.tasks.loglikelihood import Likelihood, Likelihoods, checked, fitted
from mergekit_map.tasks.prefix_tree import Request, Tree
from mergekit_map.types import Measurement
from mergekit_map.utils.progress import step

_Asked = Mapping[str, Sequence[Any]]  # requests of lm-eval, by their type
_Windows = tuple[Request, ...]  # of one request of lm-eval


@dataclass(frozen=True, eq=False)
class ScoredTask:
    """A task whose answers are log-likelihoods."""

    task: HarnessTask
    lm: HFLM
    scores: Likelihoods

    def arrange(self) -> None:
        """Tokenise all requests, and arrange the batches."""
        self._plan(None)

    def measure(self, documents: Documents) -> Measurement:
        """Score all windows, and have lm-eval judge the answers."""
        plan, known = self._plan(documents), dict[int, Likelihood]()
        for number, batch in enumerate(plan.batches, start=1):
            known |= plan.scores.score(batch, plan.windows)
            step(number, len(plan.batches))
        return judge(self.task, self.lm, documents, Answered(plan.answers(known)))

    def _plan(self, documents: Documents) -> _Plan:
        if documents is None:
            return self._of_all
        with asking(self.task.loaded, divide(self.task, documents)) as loaded:
            return _plan(loaded, self._windows, self._of_all.scores)

    @cached_property
    def _windows(self) -> dict[Any, _Windows]:
        """Tokenise every distinct request once."""
        windows: dict[Any, _Windows] = {}
        with quiet(), separate_randomness():
            for requests in requests_of(self.task.loaded).values():
                for request in requests:
                    key = _key(request)
                    if key not in windows:
                        windows[key] = tokenised(self.lm, request)
        return windows

    @cached_property
    def _of_all(self) -> _Plan:
        known = self._windows
        requests = [window for windows in known.values() for window in windows]
        scores = checked(fitted(self.scores, requests), requests, self.task.name)
        return _plan(self.task.loaded, known, scores)


@dataclass(frozen=True, eq=False)
class _Plan:
    """All windows of some requests, and the batches they are scored in."""

    scores: Likelihoods
    windows: Sequence[Request]
    # For each request its windows, by their numbers; by type.
    asked: Mapping[str, Sequence[Sequence[int]]]
    batches: Sequence[Sequence[Tree]]

    def answers(self, known: Mapping[int, Likelihood]) -> dict[str, list[Any]]:
        """Return the responses that lm-eval expects, by type."""
        return {
            kind: [
                sum(known[i][0] for i in numbers)
                if kind == "loglikelihood_rolling"
                else known[numbers[0]]
                for numbers in requests
            ]
            for kind, requests in self.asked.items()
        }


class Answered(LM):  # type: ignore[misc]
    """A model of lm-eval that returns known answers."""

    def __init__(self, answers: Mapping[str, list[Any]]):
        super().__init__()
        self._answers = answers

    def loglikelihood(self, requests: Any) -> list[Any]:
        """Return the answers of choices and continuations."""
        return self._take("loglikelihood", requests)

    def loglikelihood_rolling(self, requests: Any) -> list[Any]:
        """Return the answers of whole texts."""
        return self._take("loglikelihood_rolling", requests)

    def generate_until(self, requests: Any) -> list[Any]:
        """Return the generated texts."""
        return self._take("generate_until", requests)

    def _take(self, kind: str, requests: Sequence[Any]) -> list[Any]:
        answers = self._answers[kind]
        assert len(answers) == len(requests)
        return answers


def requests_of(loaded: Mapping[str, Any]) -> _Asked:
    """List requests as lm-eval's ``evaluate`` hands them over."""
    asked: dict[str, list[Any]] = {}
    for task in loaded["tasks"].values():
        for request in task.instances:
            asked.setdefault(request.request_type, []).extend(
                [request] * request.repeats
            )
    return asked


def _plan(
    loaded: Mapping[str, Any], known: Mapping[Any, _Windows], scores: Likelihoods
) -> _Plan:
    numbers: dict[Request, int] = {}  # the same is scored once
    asked = {
        kind: [
            [numbers.setdefault(w, len(numbers)) for w in known[_key(request)]]
            for request in requests
        ]
        for kind, requests in requests_of(loaded).items()
    }
    windows = list(numbers)
    return _Plan(scores, windows, asked, scores.batches(windows))


def _key(request: Any) -> Any:
    return request.request_type, *request.args


def tokenised(lm: HFLM, request: Any) -> _Windows:
    """Turn a request into tokens, cut from the left as lm-eval does where it is long.

    Raises:
        EvaluationError: a continuation has no token of its own.
    """
    windows = []
    for context, continuation in tokens_of(lm, request):
        if not continuation:
            raise EvaluationError(
                f"a continuation has no token of its own: {request.args!r:.200}; "
                "mend the choices of the task"
            )
        tokens = [*context, *continuation][-(lm.max_length + 1) :]
        windows.append(Request(tuple(tokens[:-1]), tuple(continuation)))
    return tuple(windows)
