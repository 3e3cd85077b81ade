"""Common benchmarks by name, with the metric, filter and examples usually reported.

The limits are ours: enough documents to distinguish merges (the standard error of an
accuracy is about 0.03 with 200), since a search measures dozens of merges. For a group,
such as mmlu, the limit applies to each of its subjects.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from mergekit_map.config.tasks import (
    Documents,
    Engine,
    Float,
    Int,
    LmEvalTask,
    Strict,
    TaskSpec,
    whole_or_share,
)
from mergekit_map.errors import nearest

_RUN_CODE = ("humaneval", "mbpp")
_CHOICE = {"limit": 400}
PRESETS: dict[str, dict[str, Any]] = {
    "gsm8k": {
        "metric": "exact_match",
        "filter": "flexible-extract",
        "num_fewshot": 5,
        "limit": 200,
    },
    "mmlu": {"metric": "acc", "num_fewshot": 5, "limit": 8},
    "mmlu_pro": {
        "metric": "exact_match",
        "filter": "custom-extract",
        "num_fewshot": 5,
        "limit": 15,
    },
    "bbh": {
        "metric": "exact_match",
        "filter": "get-answer",
        "num_fewshot": 3,
        "limit": 8,
    },
    "ifeval": {"metric": "prompt_level_strict_acc", "num_fewshot": 0, "limit": 200},
    "arc_challenge": {"metric": "acc_norm", "num_fewshot": 25, **_CHOICE},
    "arc_easy": {"metric": "acc_norm", "num_fewshot": 0, **_CHOICE},
    "hellaswag": {"metric": "acc_norm", "num_fewshot": 10, **_CHOICE},
    "winogrande": {"metric": "acc", "num_fewshot": 5, **_CHOICE},
    "truthfulqa_mc2": {"metric": "acc", "num_fewshot": 0, **_CHOICE},
    "piqa": {"metric": "acc_norm", "num_fewshot": 0, **_CHOICE},
    "boolq": {"metric": "acc", "num_fewshot": 0, **_CHOICE},
    "openbookqa": {"metric": "acc_norm", "num_fewshot": 0, **_CHOICE},
    "commonsense_qa": {"metric": "acc", "num_fewshot": 7, **_CHOICE},
    "lambada_openai": {"metric": "acc", "num_fewshot": 0, **_CHOICE},
}


def hint_on(name: str) -> str:
    """Suggest a preset or a task for an unknown name."""
    if name.startswith(_RUN_CODE):
        return (
            "it runs code that a model wrote: with {lm_eval: ..., metric: ..., "
            "confirm_run_unsafe_code: true} you allow that."
        )
    hint = nearest(name, PRESETS)
    return hint if hint.endswith("?") else f"{hint}."


class PresetTask(Strict):
    """A common benchmark; keys of the task override its settings."""

    kind: ClassVar = "preset"

    preset: Annotated[str, Field(json_schema_extra={"enum": list(PRESETS)})]
    """Name of a task of lm-evaluation-harness whose metric, filter, examples and limit
    are known here."""
    limit: Annotated[Int, Field(le=10**12)] | Float | None = None
    """As with `lm_eval`; `null` for all documents. Of a group, for each of its
    tasks."""
    num_fewshot: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """As with `lm_eval`."""
    apply_chat_template: Annotated[bool, Field(strict=True)] = False
    """As with `lm_eval`."""
    documents: Documents = "all"
    engine: Engine | None = None
    """As with `lm_eval`."""

    _limit = field_validator("limit")(whole_or_share)

    @field_validator("preset")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name in PRESETS:
            return name
        raise ValueError(
            f"there is no preset {name!r}; {hint_on(name)} Any other task of lm-eval "
            "is written as {lm_eval: TASK, metric: METRIC}"
        )

    def in_full(self) -> LmEvalTask:
        """Return the full definition of the task."""
        own = {name: getattr(self, name) for name in self.model_fields_set - {"preset"}}
        return LmEvalTask(lm_eval=self.preset, **{**PRESETS[self.preset], **own})


WrittenTask = TaskSpec | PresetTask
