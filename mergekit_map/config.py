"""The ``map:`` block of the YAML, and how a configuration file is read.

Everything outside ``map:`` is mergekit's and is checked in ``merging``. All
problems of a file are collected and reported together, each with its line and key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import field_validator, model_validator
from typing_extensions import Self

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.yamlfile import KeyPath, YamlFile, read_yaml

TASK_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a configuration, and where."""

    key: KeyPath
    message: str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextSource(_Strict):
    """Where documents come from: a .txt or .jsonl file, or a dataset of the Hub."""

    file: Path | None = None
    dataset: str | None = None
    name: str | None = None  # configuration of the dataset
    split: str = "test"
    revision: str | None = None
    field: str = "text"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.dataset is None):
            raise ValueError("give exactly one of 'file' and 'dataset'")
        if self.file is not None and self.file.suffix not in {".txt", ".jsonl"}:
            raise ValueError(
                f"file must end in .txt or .jsonl, got {self.file.name!r}; "
                "convert it, one JSON object with the text field per line"
            )
        return self


class PerplexityTask(_Strict):
    """Mean token loss of own text."""

    perplexity: TextSource
    max_tokens: Annotated[int, Field(ge=2)] = 65536
    block: Annotated[int, Field(ge=2)] | None = None  # tokens per forward row

    @property
    def kind(self) -> str:
        """The key that tells this kind of task from the others."""
        return "perplexity"


def _checked_range(
    bounds: tuple[float | None, float | None] | None,
) -> tuple[float | None, float | None] | None:
    if bounds is not None and None not in bounds and bounds[0] >= bounds[1]:  # type: ignore[operator]
        raise ValueError(f"range must rise from low to high, got {list(bounds)}")
    return bounds


Range = Annotated[
    tuple[float | None, float | None] | None,
    Field(default=None),
]


class LmEvalTask(_Strict):
    """A task or group of lm-evaluation-harness, or a local task YAML."""

    lm_eval: str
    metric: str
    filter: str | None = None  # needed only where the task has several filters
    limit: int | float | None = None
    num_fewshot: Annotated[int, Field(ge=0)] | None = None
    apply_chat_template: bool = False
    range: Range

    _range = field_validator("range")(_checked_range)

    @field_validator("limit")
    @classmethod
    def _limit(cls, limit: float | None) -> float | None:
        # lm-eval takes 1.0 for one document and refuses 0 late.
        if limit is None or (isinstance(limit, int) and limit >= 1):
            return limit
        if isinstance(limit, float) and 0 < limit < 1:
            return limit
        raise ValueError(
            f"limit must be a whole number of documents from 1, or a share between "
            f"0 and 1, got {limit!r}"
        )

    @property
    def kind(self) -> str:
        """The key that tells this kind of task from the others."""
        return "lm_eval"


class PythonTask(_Strict):
    """A function of one's own: ``module:function`` gets the merged model."""

    python: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    direction: Literal["maximize", "minimize"]
    range: Range

    _range = field_validator("range")(_checked_range)

    @property
    def kind(self) -> str:
        """The key that tells this kind of task from the others."""
        return "python"


TaskSpec = PerplexityTask | LmEvalTask | PythonTask
_TASK_KINDS: dict[str, type[TaskSpec]] = {
    "perplexity": PerplexityTask,
    "lm_eval": LmEvalTask,
    "python": PythonTask,
}
