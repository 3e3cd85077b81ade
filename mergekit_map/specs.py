"""What may stand in the ``map:`` block: strict values, each checked by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from typing_extensions import Self

# YAML's true is a number to Python, but never to the one who wrote it.
Int = Annotated[int, Field(strict=True)]
Float = Annotated[float, Field(strict=True)]


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
    max_tokens: Annotated[Int, Field(ge=2)] = 65536
    block: Annotated[Int, Field(ge=2)] | None = None  # tokens per forward row

    @property
    def kind(self) -> str:
        """The key that tells this kind of task from the others."""
        return "perplexity"


Bounds = tuple[Float, Float]
Range = tuple[Float | None, Float | None] | None  # of a metric, None where unbounded


def _rising(bounds: Range) -> Range:
    if bounds is None:
        return bounds
    if not all(math.isfinite(bound) for bound in bounds if bound is not None):
        raise ValueError(f"must be finite numbers or null, got {list(bounds)}")
    if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
        raise ValueError(f"must rise from low to high, got {list(bounds)}")
    return bounds


class LmEvalTask(_Strict):
    """A task or group of lm-evaluation-harness, or a local task YAML."""

    lm_eval: str
    metric: str
    filter: str | None = None  # needed only where the task has several filters
    limit: Int | Float | None = None
    num_fewshot: Annotated[Int, Field(ge=0)] | None = None
    apply_chat_template: bool = False
    range: Range = None

    _rising = field_validator("range")(_rising)

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
    range: Range = None

    _rising = field_validator("range")(_rising)

    @property
    def kind(self) -> str:
        """The key that tells this kind of task from the others."""
        return "python"


TaskSpec = PerplexityTask | LmEvalTask | PythonTask
TASK_KINDS: dict[str, type[TaskSpec]] = {
    "perplexity": PerplexityTask,
    "lm_eval": LmEvalTask,
    "python": PythonTask,
}


class SearchSpec(_Strict):
    """How the coefficients are searched."""

    strategy: Literal["map", "bayesian", "nested"] = "map"
    # Of nested: what is merged with what, as lists of two coefficients or lists.
    order: list[Any] | None = None
    design: Literal["sobol", "latin_hypercube", "uniform", "d_optimal", "grid"] = (
        "sobol"
    )
    evaluations: Annotated[Int, Field(ge=1)] | None = None  # anchors included
    bounds: Bounds | dict[str, Bounds] = (0.0, 1.0)
    seed: Annotated[Int, Field(ge=0)] = 0
    remeasure: Annotated[Int, Field(ge=0)] = 5  # front points measured afterwards
    surrogate: Literal["quadratic", "regularized", "residual_gp"] = "quadratic"
    # Spend what a first fit does not need where the predicted front is uncertain.
    refine: Annotated[bool, Field(strict=True)] = False
    gradients: Annotated[bool, Field(strict=True)] = False  # of perplexity tasks
    checkpoint_activations: Annotated[bool, Field(strict=True)] = False  # for them

    @field_validator("bounds")
    @classmethod
    def _bounds(cls, value: Bounds | dict[str, Bounds]) -> Bounds | dict[str, Bounds]:
        for bounds in value.values() if isinstance(value, dict) else [value]:
            _rising(bounds)
        return value

    @model_validator(mode="after")
    def _keys_of_the_strategy(self) -> Self:
        if self.order is not None and self.strategy != "nested":
            raise ValueError(
                "'order' is what nested merges with what; add 'strategy: nested', or "
                "remove it"
            )
        if self.refine and self.strategy != "map":
            raise ValueError(
                f"'refine' is for 'strategy: map', but {self.strategy!r} chooses its "
                "merges itself; remove one of them"
            )
        if self.strategy == "bayesian" and "design" in self.model_fields_set:
            raise ValueError(
                "bayesian draws its own merges; remove 'design', or use 'strategy: map'"
            )
        return self


def share_of(limit: float | str) -> float | None:
    """Read ``95%``, a share of the best single model, as 0.95; None for a number."""
    return float(limit.rstrip("%")) / 100 if isinstance(limit, str) else None


def _number_or_share(limit: Any) -> Any:
    if isinstance(limit, str) and re.fullmatch(r"(?=.*[1-9])\d*\.?\d+%", limit):
        return limit
    if type(limit) in {int, float} and math.isfinite(limit):
        return limit
    raise ValueError(
        "a limit is a finite number in the task's own units, or a share above 0% of "
        f"the best single model, such as 95%; got {limit!r}"
    )


Limit = Annotated[float | str, BeforeValidator(_number_or_share)]


class SelectSpec(_Strict):
    """Which point of the front becomes the recipe."""

    prefer: dict[str, Float] | None = None
    scalarization: Literal["sum", "achievement"] = "sum"
    knee: Annotated[bool, Field(strict=True)] = False
    # At least this where larger is better, at most this where smaller is.
    require: Annotated[dict[str, Limit], Field(min_length=1)] | None = None
    index: Annotated[Int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        off = {name for name, value in self if value is None or value is False}
        given = self.model_fields_set - off
        for way, others in {
            "index": ("prefer", "scalarization", "knee", "require"),
            "knee": ("prefer", "scalarization"),
        }.items():
            for other in others:
                if {way, other} <= given:
                    raise ValueError(f"give {other!r} or {way!r}, not both")
        weights = list((self.prefer or {"": 1.0}).values())
        if any(not w >= 0 or math.isinf(w) for w in weights) or not any(weights):
            raise ValueError(
                f"preferences must be 0 or more, finite, and not all 0, got "
                f"{self.prefer}"
            )
        return self


class BackendSpec(_Strict):
    """A model class of lm-eval that runs the lm_eval tasks, such as vllm."""

    name: str
    args: dict[str, Any] = {}


class MapBlock(_Strict):
    """The whole block; its tasks are validated one by one, to name what is wrong."""

    tasks: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    search: SearchSpec = SearchSpec()
    select: SelectSpec = SelectSpec()
    batch_size: Annotated[Int, Field(ge=1)] = 8
    merge: Literal["memory", "disk"] = "memory"
    backend: BackendSpec | None = None

    @model_validator(mode="after")
    def _backend_loads_from_disk(self) -> Self:
        if self.backend is not None and self.merge != "disk":
            raise ValueError(
                "a backend loads each merge from disk; add 'merge: disk' to use one"
            )
        return self


@dataclass(frozen=True)
class MapSpec:
    """The ``map:`` block, validated."""

    tasks: Mapping[str, TaskSpec]
    search: SearchSpec
    select: SelectSpec
    batch_size: int
    merge: Literal["memory", "disk"]
    backend: BackendSpec | None
