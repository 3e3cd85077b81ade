"""Schema of ``map.tasks``: the kinds of tasks.

The text under a key is its description in the JSON Schema and in
docs/configuration.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from typing_extensions import Self

# A task's name is a file name in the run folder and a word on the command line.
TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
MOST_TASKS = 100  # a search in more objectives finds no point worse than another
LONGEST_TASK = 100  # characters of a name
RESERVED = ("point", "selected", "recommended")  # columns of front.csv
# YAML's true is a number to Python, but not to the user who wrote it.
Int = Annotated[int, Field(strict=True)]
Float = Annotated[float, Field(strict=True)]
Named = Annotated[str, Field(min_length=1)]
Documents = Annotated[
    Literal["all"] | Annotated[Int, Field(ge=8, le=10**12)],
    Field(
        description="Documents per merge: `all`, or a number that is drawn once, the "
        "same documents for every merge; the value on all is estimated from them. "
        "References and measured points of the front use all documents."
    ),
]
EngineName = Literal["auto", "hf", "vllm"]
# Names of the engines that can measure a task.
CALLED: Mapping[str, str] = {"hf": "generate of transformers", "vllm": "vLLM"}
# Arguments of vLLM that only this program sets.
_OURS = ("worker_extension_cls", "pretrained", "model", "data_parallel_size")


class Strict(BaseModel):
    """A mapping of the YAML that allows no unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class TextSource(Strict):
    """The source of documents: a .txt or .jsonl file, or a dataset of the Hub."""

    file: Path | None = None
    """A .txt file with one document, or a .jsonl file with one document per line."""
    dataset: Named | None = None
    """A dataset of the Hub, instead of a file."""
    name: Named | None = None
    """Configuration of the dataset."""
    split: Named = "test"
    """Split of the dataset."""
    revision: Named | None = None
    """Commit, branch or tag of the dataset."""
    field: Named | None = None
    """The field with the text, in .jsonl files and datasets; by default `text`, or the
    only text field."""

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


def _file_alone(source: Any) -> Any:
    return {"file": source} if isinstance(source, str) else source


class PerplexityTask(Strict):
    """Mean token loss on a text."""

    kind: ClassVar = "perplexity"  # the key that identifies this kind of task

    perplexity: Annotated[
        TextSource,
        BeforeValidator(_file_alone, json_schema_input_type=TextSource | str),
    ]
    """Text to measure the token loss on: a file, or a mapping with `file` or
    `dataset`."""
    max_tokens: Annotated[Int, Field(ge=2, le=10**9)] = 65536
    """Largest number of tokens, from the start of the text."""
    block: Annotated[Int, Field(ge=2, le=10**8)] | None = None
    """Tokens per block; by default 512, or the model's maximum."""
    documents: Documents = "all"


Range = tuple[Float | None, Float | None] | None  # of a metric, None where unbounded


def rising(bounds: Range) -> Range:
    """Refuse bounds that do not rise, or are not finite."""
    if bounds is None:
        return bounds
    if not all(math.isfinite(bound) for bound in bounds if bound is not None):
        raise ValueError(f"must be finite numbers or null, got {list(bounds)}")
    if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
        raise ValueError(f"must rise from low to high, got {list(bounds)}")
    return bounds


NO_METRIC = ""  # until the task is loaded, which lists the metrics


def whole_or_share(limit: float | None) -> float | None:
    """Refuse a limit that is not a number of documents or a share of them."""
    # lm-eval takes 1.0 for one document and refuses 0 late.
    if limit is None or (isinstance(limit, int) and limit >= 1):
        return limit
    if isinstance(limit, float) and 0 < limit < 1:
        return limit
    raise ValueError(
        f"limit must be a whole number of documents from 1, or a share between "
        f"0 and 1, got {limit!r}"
    )


class LmEvalTask(Strict):
    """A task or group of lm-evaluation-harness, or a local task YAML."""

    kind: ClassVar = "lm_eval"

    lm_eval: Named
    """Name of a task or group of lm-evaluation-harness, or the path of a task YAML."""
    metric: str
    """Metric of the task, such as `acc` or `exact_match`; or `answer_tokens`, the mean
    number of tokens of generated answers (fewer is better)."""
    filter: Named | None = None
    """Filter of the task, where it has several."""
    limit: Annotated[Int, Field(le=10**12)] | Float | None = None
    """Documents to use, from the first: a whole number, or a share between 0 and 1; all
    by default (for a preset, its own limit; `null` for all)."""
    direction: Literal["maximize", "minimize"] | None = None
    """Whether higher or lower is better; by default as in lm-eval, for `python`
    required."""
    num_fewshot: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """Examples in the prompt; by default as in the task."""
    apply_chat_template: Annotated[bool, Field(strict=True)] = False
    """Whether to apply the chat template of the tokenizer to prompts."""
    confirm_run_unsafe_code: Annotated[bool, Field(strict=True)] = False
    """Whether code that a model writes may run on this machine, as `humaneval` and
    `mbpp` require."""
    documents: Documents = "all"
    engine: Engine | None = None
    """The engine for this task; by default the `engine` of all."""
    range: Range = None
    """Possible values, such as `[0, 1]` or `[0, null]`; known for common metrics."""

    _rising = field_validator("range")(rising)
    _limit = field_validator("limit")(whole_or_share)


class PythonTask(Strict):
    """Your own function: ``module:function`` is called with the merged model."""

    kind: ClassVar = "python"

    python: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """`module:function`, called as `function(model, tokenizer)`. It returns a number, a
    number and its standard error, or a number for each document. A third parameter
    `documents` gets the indices to measure, or None for all. Modules of the working
    directory come first."""
    direction: Literal["maximize", "minimize"]
    """Whether higher or lower is better."""
    documents: Documents = "all"
    range: Range = None
    """Possible values, such as `[0, 1]` or `[0, null]`; predictions stay inside."""

    _rising = field_validator("range")(rising)


TaskSpec = PerplexityTask | LmEvalTask | PythonTask


_KINDS: tuple[type[TaskSpec], ...] = (PerplexityTask, LmEvalTask, PythonTask)


TASK_KINDS = {kind.kind: kind for kind in _KINDS}


class EngineSpec(BaseModel):
    """The engine that generates answers, and its arguments."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    name: EngineName = "auto"
    """`hf`: `generate` of transformers; `vllm`: vLLM; `auto` chooses one of them and
    reports why."""
    args: dict[Annotated[str, Field(min_length=1)], Any] = Field(default={})
    """Arguments of vLLM, such as `tensor_parallel_size`, `max_model_len`,
    `gpu_memory_utilization` or `quantization`."""

    @model_validator(mode="after")
    def _args_of_vllm(self) -> Self:
        if self.args and self.name != "vllm":
            raise ValueError(
                f"'args' are what vLLM is opened with, not {self.name!r}; write 'name: "
                "vllm', or remove them"
            )
        if own := [key for key in _OURS if key in self.args]:
            raise ValueError(
                f"{own[0]!r} is not for 'args', as each merge is put into one engine; "
                "remove it"
            )
        return self


def _name_alone(engine: Any) -> Any:
    return {"name": engine} if isinstance(engine, str) else engine


Engine = Annotated[
    EngineSpec,
    BeforeValidator(_name_alone, json_schema_input_type=EngineSpec | EngineName),
]
