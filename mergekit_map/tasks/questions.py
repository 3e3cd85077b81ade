"""Questions with given answers, as tokens, for whoever needs more than their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from transformers import PreTrainedModel

from mergekit_map.tasks.harness import HarnessTask
from mergekit_map.tasks.harness_model import make_harness_model
from mergekit_map.tasks.harness_requests import tokenised
from mergekit_map.tasks.surroundings import quiet, separate_randomness
from mergekit_map.tasks.token_trees import Request

Questions: TypeAlias = Sequence[Sequence[Request]]  # for each question, its answers


def has_questions(task: object) -> bool:
    """Tell whether a task is questions with given answers, in no chat."""
    return (
        isinstance(task, HarnessTask)
        and not task.chat
        and {leaf.OUTPUT_TYPE for leaf in task.loaded["tasks"].values()}
        == {"multiple_choice"}
    )


def read_questions(
    task: HarnessTask, model: PreTrainedModel, tokenizer: Any
) -> Questions:
    """Tokenise every answer of every question, as lm-eval does for this model."""
    lm = make_harness_model(model, tokenizer, 1, None)
    answers: dict[tuple[str, Any], dict[int, Request]] = {}
    with quiet(), separate_randomness():
        for name, leaf in task.loaded["tasks"].items():
            for request in leaf.instances:
                of_one = answers.setdefault((name, request.doc_id), {})
                [of_one[request.idx]] = tokenised(lm, request)
    return [[of_one[i] for i in sorted(of_one)] for of_one in answers.values()]
