"""The ``map:`` block of the YAML, and how a configuration file is read.

Everything outside ``map:`` is mergekit's and is checked in ``merging``. All
problems of a file are collected and reported together, each with its line and key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from mergekit_map.config.specs import MapBlock, SelectSpec
from mergekit_map.config.task_specs import TASK_KINDS, TaskSpec
from mergekit_map.config.yaml_file import KeyPath, YamlFile, existing, format_key
from mergekit_map.errors import ConfigError, nearest

# A task's name is a file name in the run folder and a word on the command line.
TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a configuration, and where."""

    key: KeyPath
    message: str


def parse_select(options: Mapping[str, object]) -> SelectSpec:
    """Validate a choice that no file makes; ConfigError where it has problems."""
    select, problems = validated(SelectSpec, options, ())
    if select is None:
        reports = [f"{format_key(p.key)} {p.message}".strip() for p in problems]
        raise ConfigError("; ".join(reports))
    return cast(SelectSpec, select)


def parse_map_block(
    file: YamlFile,
) -> tuple[MapBlock | None, dict[str, TaskSpec], list[Problem]]:
    """Validate the ``map:`` block of a file; None where it has problems.

    Its tasks are given beside it, all those that have none themselves.
    """
    raw = file.content.get("map")
    if not isinstance(raw, dict):
        key: KeyPath = ("map",) if "map" in file.content else ()
        text = "a 'map:' block with at least 'tasks:' is required; see the README"
        return None, {}, [Problem(key, text)]
    block, problems = validated(MapBlock, raw, ("map",))
    problems += _unknown_in_select(raw)
    tasks: dict[str, TaskSpec] = {}
    for name, content in _mapping(raw, "tasks").items():
        task, wrong = _parse_task(str(name), content)
        problems += wrong
        tasks |= {} if task is None else {str(name): task}
    if problems:
        return None, tasks, problems
    return block.model_copy(update={"tasks": tasks}), tasks, []


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
        text = f"input should be a valid dictionary, got {raw!r}"
        return None, [Problem(key, text)]
    kinds = [kind for kind in TASK_KINDS if kind in raw]
    if len(kinds) != 1:
        got = ", ".join(map(repr, raw)) or "nothing"
        text = (
            "a task has exactly one of the keys 'perplexity', 'lm_eval' and 'python' "
            f"that says what is measured; got {got}"
        )
        return None, [Problem(key, text)]
    return validated(TASK_KINDS[kinds[0]], raw, key)


def _unknown_in_select(block: Mapping[str, object]) -> list[Problem]:
    select = block.get("select")
    tasks = [str(name) for name in _mapping(block, "tasks")]
    return [
        Problem(
            ("map", "select", key, str(name)),
            f"there is no task {name!r}; {nearest(str(name), tasks)}",
        )
        for key in ("prefer", "require")
        for name in _mapping(select, key)
        if str(name) not in tasks
    ]


def _mapping(block: Any, key: str) -> Mapping[Any, Any]:
    """Read a mapping in what may not be one itself."""
    found = block.get(key) if isinstance(block, dict) else None
    return found if isinstance(found, dict) else {}


def validated(
    model: type[Any], raw: Mapping[str, object], key: KeyPath
) -> tuple[Any, list[Problem]]:
    """Validate a part of a file that stands at ``key``; None where it has problems."""
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        found: dict[KeyPath, Problem] = {}
        for detail in error.errors():
            place = existing(raw, detail["loc"])
            message = _explain(model, detail)
            # One report a key: pydantic lists every member of a union that failed.
            found.setdefault(place, Problem((*key, *place), message))
        return None, list(found.values())


def _explain(model: type[BaseModel], detail: Mapping[str, Any]) -> str:
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
