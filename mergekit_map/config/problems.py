"""Validation of the ``map:`` block, and the error messages of a configuration.

Everything outside ``map:`` belongs to mergekit and is checked in ``merging``. All
problems of a file are collected and reported together, each with its line and key. The
sentences are pydantic's, but for missing and unknown keys.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mergekit_map.config.schema import MapBlock, SelectSpec
from mergekit_map.config.tasks import (
    LONGEST_TASK,
    MOST_TASKS,
    NO_METRIC,
    RESERVED,
    TASK_KINDS,
    TASK_NAME,
    LmEvalTask,
    PerplexityTask,
    PresetTask,
    TaskSpec,
    is_task_file,
)
from mergekit_map.config.yaml_file import (
    KeyPath,
    YamlFile,
    existing,
    format_key,
    with_count,
)
from mergekit_map.errors import ConfigError
from mergekit_map.utils.text import listed, nearest

_LONGEST = 60  # characters of a value that is shown
_OURS = "Value error, "  # pydantic puts it before the sentence of a validator


def in_words(detail: ErrorDetails) -> str:
    """Describe one error, without its place."""
    return _sentence([detail], None)


def shown(value: Any) -> str:
    """Return a value as YAML on one short line."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = repr(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _sentence(details: list[ErrorDetails], model: type[BaseModel] | None) -> str:
    """Describe the errors of one place; ``model`` has the names of valid keys."""
    if missing := {d["loc"][-1] for d in details if d["type"] == "missing"}:
        keys = sorted(missing, key=str)
        if all(isinstance(key, int) for key in keys):
            return f"item {int(keys[0]) + 1} of the list is missing; add it"
        if len(keys) == 1:
            return f"the key {keys[0]!r} is required and missing; add it"
        return f"the keys {listed(map(repr, keys))} are required and missing; add them"
    first = details[0]
    if first["type"] == "extra_forbidden":
        return _unknown(first["loc"], model)
    texts = dict.fromkeys(re.sub(r" or instance of \w+", "", d["msg"]) for d in details)
    for text in texts:
        if text.startswith(_OURS):
            return text.removeprefix(_OURS)
    text = ", or ".join(texts).replace(", or Input should be ", ", or ")
    return f"{text}, got {shown(first['input'])}"


def _unknown(loc: tuple[str | int, ...], model: type[BaseModel] | None) -> str:
    fields: Mapping[str, Any] = {} if model is None else model.model_fields
    for part in loc[:-1]:  # on the way to the mapping around the place
        if part in fields and (inner := [*_models_in(fields[str(part)].annotation)]):
            fields = {k: v for one in inner for k, v in one.model_fields.items()}
    known = {*fields}
    if "merge_method" in known:
        known.add("map")
    hint = f"; {nearest(str(loc[-1]), known)}" if known else ""
    return f"unknown key {loc[-1]!r}{hint}"


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


@dataclass(frozen=True)
class Problem:
    """One problem of a configuration, and its place."""

    key: KeyPath
    message: str


def parse_select(options: Mapping[str, object]) -> SelectSpec:
    """Validate the options of a selection; raise ConfigError with their problems."""
    select, problems = validated(SelectSpec, options, ())
    if select is None:
        reports = [f"{format_key(p.key)}: {p.message}".strip(": ") for p in problems]
        raise ConfigError("; ".join(reports))
    return cast(SelectSpec, select)


def values_by_task(text: str) -> dict[str, float | str]:
    """Parse ``math=2,code=1``; percentages stay text."""
    values: dict[str, float | str] = {}
    try:
        for part in text.split(","):
            task, value = (word.strip() for word in part.split("="))
            if task in values:
                raise ValueError
            values[task] = value if value.endswith("%") else float(value)
    except ValueError:
        raise ConfigError(
            "preferences and limits are written as math=2,code=1, each task once; got "
            f"{text!r}"
        ) from None
    return values


def parse_map_block(
    file: YamlFile,
) -> tuple[MapBlock | None, dict[str, TaskSpec], list[Problem]]:
    """Validate the ``map:`` block of a file; None where a key of its own is wrong.

    The valid tasks are returned separately, whatever the problems of the others.
    """
    raw = file.content.get("map")
    if not isinstance(raw, dict):
        key: KeyPath = ("map",) if "map" in file.content else ()
        return None, {}, [Problem(key, _no_block(file, raw))]
    block, problems = validated(MapBlock, raw, ("map",))
    problems += _unknown_in_select(raw)
    written_tasks = _mapping(raw, "tasks")
    if len(written_tasks) > MOST_TASKS:
        return None, {}, problems  # they include this one
    tasks: dict[str, TaskSpec] = {}
    for name, content in written_tasks.items():
        task, problems_of_task = _parse_task(str(name), content)
        problems += problems_of_task
        if task is not None:
            tasks[str(name)] = task
    if block is not None:
        block = block.model_copy(update={"tasks": tasks})
    return block, tasks, problems


def _no_block(file: YamlFile, raw: Any) -> str:
    if raw is not None:
        return f"a mapping was expected, with 'tasks:' at least; got {shown(raw)}"
    new = file.path.with_name(f"{file.path.stem}-map.yml")
    command = shlex.join(["mergekit-map", "init", str(file.path), str(new)])
    return (
        "a 'map:' block with at least 'tasks:' is required: it says what to measure. "
        f"This writes a copy that has one, to fill in:\n\n  {command}"
    )


def raise_problems(file: YamlFile, problems: Iterable[Problem]) -> None:
    """Report all problems of a file in one ConfigError, in the order of its lines."""
    if not (reports := {f"{file.locate(p.key)}: {p.message}": p for p in problems}):
        return
    ordered = sorted(reports, key=lambda text: file.line(reports[text].key))
    raise with_count(file.locate(()), ordered)


def _parse_task(name: str, raw: Any) -> tuple[TaskSpec | None, list[Problem]]:
    key: KeyPath = ("map", "tasks", name)
    if not TASK_NAME.fullmatch(name) or len(name) > LONGEST_TASK or name in RESERVED:
        text = (
            f"task names are up to {LONGEST_TASK} letters, digits, '.', '_' and '-', "
            "begin with a letter or digit, and are no columns of front.csv "
            f"({', '.join(RESERVED)}); rename the task"
        )
        return None, [Problem(key, text)]
    kinds = [kind for kind in TASK_KINDS if isinstance(raw, dict) and kind in raw]
    if len(kinds) != 1:
        text = (
            "a mapping was expected, such as {perplexity: text.txt}, with exactly one "
            f"of the keys {listed(map(repr, TASK_KINDS))}; got {shown(raw)}"
        )
        return None, [Problem(key, text)]
    # Metrics of lm-eval are known when the task is loaded; until then it may lack one.
    defaults = {"metric": NO_METRIC} if kinds == ["lm_eval"] else {}
    task, problems = validated(TASK_KINDS[kinds[0]], {**defaults, **raw}, key)
    return (task.in_full() if isinstance(task, PresetTask) else task), problems


def named_code(tasks: Mapping[str, TaskSpec], block: MapBlock | None) -> list[str]:
    """List what a configuration runs, which a stranger may have written."""
    code = [f"task {name!r}" for name, spec in tasks.items() if _names_code(spec)]
    if any(isinstance(spec, LmEvalTask) for spec in tasks.values()):
        found = (p for p in Path().glob("*/*.py") if p.stem == p.parent.name)
        code += [f"{p}, which lm-eval may take for a metric" for p in found]
    if block is not None and block.backend is not None:
        code.append("the backend")
    if block is not None and block.engine.args:
        code.append(f"what vLLM is opened with ({', '.join(block.engine.args)})")
    return code


def _names_code(task: TaskSpec) -> bool:
    if isinstance(task, LmEvalTask):  # a file of them may hold functions, templates
        return is_task_file(task.lm_eval) or task.confirm_run_unsafe_code
    return not isinstance(task, PerplexityTask)


def loaded_problems(
    spec: MapBlock, partial: Mapping[str, bool], backends: Collection[str]
) -> list[Problem]:
    """List what is wrong with a valid block, given what was loaded for it.

    ``partial`` says of loaded tasks whether some documents can estimate their value.
    ``backends`` are the model classes of lm-eval.
    """
    problems = []
    if spec.backend is not None and spec.backend.name not in backends:
        hint = nearest(spec.backend.name, backends)
        text = f"lm-eval has no model class {spec.backend.name!r}; {hint}"
        problems.append(Problem(("map", "backend", "name"), text))
    for name, task in spec.tasks.items():
        some = task.documents != "all"
        key = ("map", "tasks", name, *(["documents"] if some else []))
        if not partial.get(name, True) and (some or spec.search.holdout is not None):
            text = (
                "some documents do not tell the value on all of them; take a metric "
                "that is a mean over documents, such as acc, or a function with a "
                "third parameter 'documents' that returns a number for each of them, "
                "or leave 'documents' and 'holdout' out"
            )
            problems.append(Problem(key, text))
        elif some and spec.search.strategy == "nested":
            text = (
                "nested measures every merge on all documents; use 'strategy: map', or "
                "leave 'documents' out"
            )
            problems.append(Problem(key, text))
    if spec.search.hours is not None and not spec.search.refines:
        text = (
            "'hours' end a search that chooses one merge after the other, but this one "
            "settles beforehand how many it measures; remove them and set "
            "'evaluations', or use 'strategy: map' without 'refine: false'"
        )
        problems.append(Problem(("map", "search", "hours"), text))
    return problems


def _unknown_in_select(block: Mapping[str, object]) -> list[Problem]:
    tasks = [str(name) for name in _mapping(block, "tasks")]
    return [
        Problem(
            ("map", "select", key, str(name)),
            f"there is no task {name!r}; {nearest(str(name), tasks)}",
        )
        for key in ("prefer", "require")
        for name in _mapping(block.get("select"), key)
        if str(name) not in tasks
    ]


def _mapping(block: Any, key: str) -> Mapping[Any, Any]:
    value = block.get(key) if isinstance(block, dict) else None
    return value if isinstance(value, dict) else {}


def validated(
    model: type[Any], raw: Mapping[str, object], key: KeyPath
) -> tuple[Any, list[Problem]]:
    """Validate a part of a file that stands at ``key``; None where it has problems.

    For a union, pydantic lists an error for each member; here one sentence covers them,
    about the innermost wrong place.
    """
    try:
        return model.model_validate(raw, extra="forbid"), []
    except ValidationError as error:
        errors = error.errors()
    by_place: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in errors:
        by_place.setdefault(existing(raw, detail["loc"]), []).append(detail)
    return None, [
        Problem((*key, *place), _sentence(details, model))
        for place, details in by_place.items()
        if any(detail["type"] in {"missing", "value_error"} for detail in details)
        or not any(p != place and p[: len(place)] == place for p in by_place)
    ]
