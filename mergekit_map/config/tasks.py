"""Schema of ``map.tasks``: the kinds of tasks, and common benchmarks by name.

The text under a key is its description in the JSON Schema and in
docs/configuration.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from mergekit_map.utils.text import nearest

# A task's name is a file name in the run folder and a word on the command line.
TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
MOST_TASKS = 31  # of a hypervolume; in more, hardly any point is worse than another
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
        "References, lone or equal weights and measured front points use all."
    ),
]
EngineName = Literal["auto", "hf", "vllm"]
# Names of the engines that can measure a task.
CALLED: Mapping[str, str] = {"hf": "generate of transformers", "vllm": "vLLM"}
# Arguments of vLLM that the program sets: they decide which model is measured, and how.
_RESERVED_ARGS = frozenset(
    ("pretrained", "model", "batch_size", "data_parallel_size", "worker_extension_cls")
)


class Strict(BaseModel):
    """A mapping of the YAML that allows no unknown keys."""

    model_config = {"extra": "forbid", "frozen": True, "use_attribute_docstrings": True}


class EngineSpec(Strict):
    """The engine that generates answers, and its arguments."""

    name: EngineName = "auto"
    """`hf`: `generate` of transformers; `vllm`: vLLM; `auto` chooses one of them and
    reports why."""
    args: dict[Named, Any] = Field(default={})
    """Arguments of vLLM, such as `tensor_parallel_size`, `max_model_len`,
    `gpu_memory_utilization` or `quantization`."""

    @model_validator(mode="after")
    def _args_of_vllm(self) -> Self:
        if self.args and self.name != "vllm":
            raise ValueError(
                f"'args' are what vLLM is opened with, not {self.name!r}; write 'name: "
                "vllm', or remove them"
            )
        if own := _RESERVED_ARGS.intersection(self.args):
            raise ValueError(
                f"{min(own)!r} is not for 'args', as each merge is put into an engine "
                "of ours; remove it"
            )
        return self


def _short_for(key: str, form: Any) -> BeforeValidator:
    """Let a text stand for a mapping with one key."""

    def to_mapping(given: Any) -> Any:
        return {key: given} if isinstance(given, str) else given

    return BeforeValidator(to_mapping, json_schema_input_type=form)


Engine = Annotated[EngineSpec, _short_for("name", EngineSpec | EngineName)]


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
        if self.file and self.model_fields_set & {"name", "split", "revision"}:
            raise ValueError("a file has no name, split or revision; remove that key")
        if self.field is not None and self.file and self.file.suffix == ".txt":
            raise ValueError("a .txt file has no fields; remove 'field'")
        if self.file is not None and self.file.suffix not in {".txt", ".jsonl"}:
            raise ValueError(
                f"file must end in .txt or .jsonl, got {self.file.name!r}; "
                "convert it, one JSON object with the text field per line"
            )
        return self


class PerplexityTask(Strict):
    """Mean token loss on a text."""

    perplexity: Annotated[TextSource, _short_for("file", TextSource | str)]
    """Text to measure the token loss on: a file, or a mapping with `file` or
    `dataset`."""
    max_tokens: Annotated[Int, Field(ge=2, le=10**9)] = 65536
    """Largest number of tokens, from the start of the text."""
    block: Annotated[Int, Field(ge=2, le=10**8)] | None = None
    """Tokens per block; by default 512, or the model's maximum."""
    documents: Documents = "all"


_End = Annotated[Float, Field(allow_inf_nan=False)] | None
_Ends: TypeAlias = tuple[float | None, float | None]  # None where unbounded


def rising(ends: _Ends) -> _Ends:
    """Refuse ends that do not rise."""
    low, high = ends
    if low is not None and high is not None and low >= high:
        raise ValueError(f"must rise from low to high, got {list(ends)}")
    return ends


Range = Annotated[tuple[_End, _End], AfterValidator(rising)] | None  # of a metric
NO_METRIC = ""  # until the task is loaded, which lists the metrics

# A number or a share: lm-eval takes 1.0 for one document and refuses 0 late.
DocumentLimit = (
    Annotated[Int, Field(ge=1, le=10**12)] | Annotated[Float, Field(gt=0, lt=1)] | None
)


class BenchmarkSettings(Strict):
    """Settings of a task of lm-evaluation-harness, by its own name or as a preset."""

    limit: DocumentLimit = None
    """Documents to use, from the first: a whole number, or a share between 0 and 1; all
    by default (for a preset, its own limit; `null` for all). Of a group, for each of
    its tasks."""
    num_fewshot: Annotated[Int, Field(ge=0, le=1000)] | None = None
    """Examples in the prompt; by default as in the task."""
    apply_chat_template: Annotated[bool, Field(strict=True)] = False
    """Whether to apply the chat template of the tokenizer to prompts. Templates that
    print the date always get the same one."""
    documents: Documents = "all"


class LmEvalTask(BenchmarkSettings):
    """A task or group of lm-evaluation-harness, or a local task YAML."""

    lm_eval: Named
    """Name of a task or group of lm-evaluation-harness, or the path of a task YAML."""
    metric: str
    """Metric of the task, such as `acc` or `exact_match`; or `answer_tokens`, the mean
    number of tokens of generated answers (fewer is better)."""
    filter: Named | None = None
    """Filter of the task, where it has several."""
    direction: Literal["maximize", "minimize"] | None = None
    """Whether higher or lower is better; by default as in lm-eval, for `python`
    required."""
    confirm_run_unsafe_code: Annotated[bool, Field(strict=True)] = False
    """Whether code that a model writes may run on this machine, as `humaneval` and
    `mbpp` require."""
    range: Range = None
    """Possible values, such as `[0, 1]` or `[0, null]`; known for common metrics."""


def is_task_file(name: str) -> bool:
    """Whether lm-eval loads a task of this name from a YAML file, with its code."""
    return Path(name).suffix in {".yaml", ".yml"}


_FUNCTION = r"^[\w.]+:\w+$"


def _module_and_function(text: str) -> str:
    if not re.fullmatch(_FUNCTION, text) or ".py:" in text:
        raise ValueError(
            "a function is written as module:function, such as mine:score for mine.py; "
            f"got {text!r:.60}"
        )
    return text


class PythonTask(Strict):
    """Your own function: ``module:function`` is called with the merged model."""

    python: Annotated[
        str,
        AfterValidator(_module_and_function),
        Field(json_schema_extra={"pattern": _FUNCTION}),
    ]
    """`module:function`, called as `function(model, tokenizer)`. It returns a number, a
    number and its standard error, or a list of one for each document. A third parameter
    `documents` gets the indices to measure, or None for all. Modules of the working
    directory come first."""
    direction: Literal["maximize", "minimize"]
    """Whether higher or lower is better."""
    documents: Documents = "all"
    range: Range = None
    """Possible values, such as `[0, 1]` or `[0, null]`, where most predictions stay."""


TaskSpec = PerplexityTask | LmEvalTask | PythonTask


# Common benchmarks, with the metric, filter and examples usually reported. The limits
# are ours: enough documents to distinguish merges (the standard error of an accuracy is
# about 0.03 with 200), since a search measures dozens of merges. For a group, such as
# mmlu, the limit applies to each of its subjects.
PRESETS: dict[str, dict[str, Any]] = {
    name: {"metric": metric, "filter": kept, "num_fewshot": shots, "limit": limit}
    for name, metric, kept, shots, limit in [
        ("gsm8k", "exact_match", "flexible-extract", 5, 200),
        ("mmlu", "acc", None, 5, 8),
        ("mmlu_pro", "exact_match", "custom-extract", 5, 15),
        ("bbh", "exact_match", "get-answer", 3, 8),
        ("ifeval", "prompt_level_strict_acc", None, 0, 200),
        ("arc_challenge", "acc_norm", None, 25, 400),
        ("arc_easy", "acc_norm", None, 0, 400),
        ("hellaswag", "acc_norm", None, 10, 400),
        ("winogrande", "acc", None, 5, 400),
        ("truthfulqa_mc2", "acc", None, 0, 400),
        ("piqa", "acc_norm", None, 0, 400),
        ("boolq", "acc", None, 0, 400),
        ("openbookqa", "acc_norm", None, 0, 400),
        ("commonsense_qa", "acc", None, 7, 400),
        ("lambada_openai", "acc", None, 0, 400),
    ]
}


def _known_preset(name: str) -> str:
    if name in PRESETS:
        return name
    raise ValueError(
        f"there is no preset {name!r}; write other tasks of lm-eval as "
        "{lm_eval: TASK, metric: METRIC} (--task TASK:METRIC); "
        + nearest(name, PRESETS)
    )


class PresetTask(BenchmarkSettings):
    """A common benchmark; keys of the task override its settings."""

    preset: Annotated[
        str,
        AfterValidator(_known_preset),
        Field(json_schema_extra={"enum": list(PRESETS)}),
    ]
    """Name of a task of lm-evaluation-harness whose metric, filter, examples and limit
    are known here."""

    def in_full(self) -> LmEvalTask:
        """Return the full definition of the task."""
        own = {name: getattr(self, name) for name in self.model_fields_set - {"preset"}}
        return LmEvalTask(lm_eval=self.preset, **{**PRESETS[self.preset], **own})


WrittenTask = TaskSpec | PresetTask
# By the key that identifies the kind of a task.
TASK_KINDS: Mapping[str, type[WrittenTask]] = {
    "perplexity": PerplexityTask,
    "preset": PresetTask,
    "lm_eval": LmEvalTask,
    "python": PythonTask,
}
