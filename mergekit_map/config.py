"""The ``map:`` block of the YAML, and how a configuration file is read.

Everything outside ``map:`` is mergekit's and is checked in ``merging``. All
problems of a file are collected and reported together, each with its line and key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.yamlfile import KeyPath, YamlFile, existing

# A task's name is a file name in the run folder and a word on the command line.
TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

# YAML's true is a number to Python, but never to the one who wrote it.
Int = Annotated[int, Field(strict=True)]
Float = Annotated[float, Field(strict=True)]


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
_TASK_KINDS: dict[str, type[TaskSpec]] = {
    "perplexity": PerplexityTask,
    "lm_eval": LmEvalTask,
    "python": PythonTask,
}


class SearchSpec(_Strict):
    """How the coefficients are searched."""

    strategy: Literal["map"] = "map"
    design: Literal["sobol", "latin_hypercube", "uniform", "d_optimal", "grid"] = (
        "sobol"
    )
    evaluations: Annotated[Int, Field(ge=1)] | None = None  # anchors included
    bounds: Bounds | dict[str, Bounds] = (0.0, 1.0)
    seed: Annotated[Int, Field(ge=0)] = 0
    remeasure: Annotated[Int, Field(ge=0)] = 5  # front points measured afterwards

    @field_validator("bounds")
    @classmethod
    def _bounds(cls, value: Bounds | dict[str, Bounds]) -> Bounds | dict[str, Bounds]:
        for bounds in value.values() if isinstance(value, dict) else [value]:
            _rising(bounds)
        return value


class SelectSpec(_Strict):
    """Which point of the front becomes the recipe."""

    prefer: dict[str, Float] | None = None
    index: Annotated[Int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.prefer is not None and self.index is not None:
            raise ValueError("give 'prefer' or 'index', not both")
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


class _MapBlock(_Strict):
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


def parse_map_block(file: YamlFile) -> tuple[MapSpec | None, list[Problem]]:
    """Validate the ``map:`` block of a file; None where it has problems."""
    raw = file.content.get("map")
    if not isinstance(raw, dict):
        key: KeyPath = ("map",) if "map" in file.content else ()
        text = "a 'map:' block with at least 'tasks:' is required; see the README"
        return None, [Problem(key, text)]
    tasks, problems = parse_tasks(file)
    block, found = _validated(_MapBlock, raw, ("map",))
    problems += found
    problems += _unknown_preferences(raw)
    if block is None or problems:
        return None, problems
    spec = MapSpec(
        tasks=tasks,
        search=block.search,
        select=block.select,
        batch_size=block.batch_size,
        merge=block.merge,
        backend=block.backend,
    )
    return spec, []


def parse_tasks(file: YamlFile) -> tuple[dict[str, TaskSpec], list[Problem]]:
    """Validate the tasks of a file, each by itself; gives those that are right."""
    tasks: dict[str, TaskSpec] = {}
    problems: list[Problem] = []
    for name, raw in _raw_tasks(file.content.get("map")).items():
        task, found = _parse_task(str(name), raw)
        problems += found
        if task is not None:
            tasks[str(name)] = task
    return tasks, problems


def repeated_keys(file: YamlFile) -> list[Problem]:
    """List the keys that stand twice in one mapping."""
    return [
        Problem(key, "stands twice; YAML would keep only the last one, remove one")
        for key in file.repeated
    ]


def raise_problems(file: YamlFile, problems: Iterable[Problem]) -> None:
    """Report all problems of a file in one ConfigError, in the order of its lines."""
    reports = {f"{file.locate(p.key)}: {p.message}": p for p in problems}
    if not reports:
        return
    ordered = sorted(reports, key=lambda text: file.line(reports[text].key))
    count = f"{len(ordered)} problem{'s' if len(ordered) > 1 else ''}"
    raise ConfigError("\n".join([f"{count} in {file.path}:", *ordered]))


def _parse_task(name: str, raw: Any) -> tuple[TaskSpec | None, list[Problem]]:
    key: KeyPath = ("map", "tasks", name)
    if not TASK_NAME.fullmatch(name):
        text = "task names are letters, digits, '.', '_' and '-'; rename the task"
        return None, [Problem(key, text)]
    if not isinstance(raw, dict):
        return None, []  # reported by the block itself
    kinds = [kind for kind in _TASK_KINDS if kind in raw]
    if len(kinds) != 1:
        got = ", ".join(map(repr, raw)) or "nothing"
        text = (
            "a task has exactly one of the keys 'perplexity', 'lm_eval' and 'python' "
            f"that says what is measured; got {got}"
        )
        return None, [Problem(key, text)]
    return _validated(_TASK_KINDS[kinds[0]], raw, key)


def _raw_tasks(block: Any) -> Mapping[Any, Any]:
    tasks = block.get("tasks") if isinstance(block, dict) else None
    return tasks if isinstance(tasks, dict) else {}


def _unknown_preferences(block: Mapping[str, Any]) -> list[Problem]:
    select = block.get("select")
    prefer = select.get("prefer") if isinstance(select, dict) else None
    tasks = [str(name) for name in _raw_tasks(block)]
    return [
        Problem(
            ("map", "select", "prefer", str(name)),
            f"there is no task {name!r}; {nearest(str(name), tasks)}",
        )
        for name in (prefer if isinstance(prefer, dict) else {})
        if str(name) not in tasks
    ]


def _validated(
    model: type[Any], raw: Mapping[str, Any], key: KeyPath
) -> tuple[Any, list[Problem]]:
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        found: dict[KeyPath, Problem] = {}
        for detail in error.errors():
            place = existing(raw, detail["loc"])
            message = _explain(model, dict(detail))
            # One report a key: pydantic lists every member of a union that failed.
            found.setdefault(place, Problem((*key, *place), message))
        return None, list(found.values())


def _explain(model: type[BaseModel], detail: dict[str, Any]) -> str:
    kind, loc, got = detail["type"], detail["loc"], detail["input"]
    if kind == "extra_forbidden":
        return f"unknown key {loc[-1]!r}; {nearest(str(loc[-1]), _fields(model, loc))}"
    if kind == "missing":
        return f"the key {loc[-1]!r} is required and missing; add it"
    message = str(detail["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return message
    hint = ""
    if isinstance(got, str) and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", got):
        hint = "; YAML reads this as text, write the number with a point: 1.0e-3"
    return f"{message[:1].lower()}{message[1:]}, got {got!r}{hint}"


def _fields(model: type[BaseModel], loc: tuple[int | str, ...]) -> Iterable[str]:
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        if field is None or not isinstance(field.annotation, type):
            break
        if issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model.model_fields
