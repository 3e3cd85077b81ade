"""How long the answers of a generation task are: tokens of the merged model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mergekit_map.errors import InvalidTask
from mergekit_map.measurement import Metric

ANSWER_TOKENS = "answer_tokens"
METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="tokens")
_KIND = "generate_until"


def check_generation(loaded: Mapping[str, Any]) -> None:
    """Refuse tasks whose documents are not answered by generated text.

    Raises:
        InvalidTask: one is not.
    """
    for name, task in loaded["tasks"].items():
        if task.OUTPUT_TYPE != _KIND:
            raise InvalidTask(
                ("metric",),
                f"{ANSWER_TOKENS!r} is the length of what a model generates, but task "
                f"{name!r} has it choose or scores text ({task.OUTPUT_TYPE}); take a "
                "task that generates, such as gsm8k",
            )


def with_lengths(
    found: Sequence[Mapping[str, Any]], tokenizer: Any
) -> list[dict[str, Any]]:
    """Add to the samples of a task, one for each document, how long its answer is.

    The text is what lm-eval leaves of it, cut at its stop strings; of several answers
    to a document, their mean counts.
    """
    first = found[0]["filter"] if found else None
    return [
        {**sample, ANSWER_TOKENS: _length(sample, tokenizer)}
        for sample in found
        if sample["filter"] == first
    ]


def _length(sample: Mapping[str, Any], tokenizer: Any) -> float:
    texts = [text for answers in sample["resps"] for text in answers]
    counts = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    return sum(counts) / len(counts)
