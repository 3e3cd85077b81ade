"""The ``map:`` block of the YAML, and how a configuration file is read.

Everything outside ``map:`` is mergekit's and is checked in ``merging``. All
problems of a file are collected and reported together, each with its line and key.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from mergekit_map.config.map_lines import map_block
from mergekit_map.config.presets import PresetTask
from mergekit_map.config.removed import removed_keys
from mergekit_map.config.specs import MapBlock, SelectSpec
from mergekit_map.config.task_specs import (
    LONGEST_TASK,
    MOST_TASKS,
    NO_METRIC,
    RESERVED,
    TASK_KINDS,
    TASK_NAME,
    TaskSpec,
)
from mergekit_map.config.wrong_values import mistakes, shown
from mergekit_map.config.yaml_file import KeyPath, YamlFile, format_key, with_count
from mergekit_map.errors import ConfigError, nearest

_KINDS = {**TASK_KINDS, PresetTask.kind: PresetTask}


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
        return None, {}, [Problem(key, _no_block(file, raw))]
    block, problems = validated(MapBlock, raw, ("map",))
    problems += _unknown_in_select(raw)
    tasks: dict[str, TaskSpec] = {}
    if len(named := _mapping(raw, "tasks")) > MOST_TASKS:
        return None, {}, problems  # that has been said; thousands are not loaded
    for name, content in named.items():
        task, wrong = _parse_task(str(name), content)
        problems += wrong
        tasks |= {} if task is None else {str(name): task}
    if removed := removed_keys(raw):
        kept = [p for p in problems if p.key not in removed]
        problems = [*kept, *(Problem(key, text) for key, text in removed.items())]
    if problems:
        return None, tasks, problems
    return block.model_copy(update={"tasks": tasks}), tasks, []


def _no_block(file: YamlFile, raw: Any) -> str:
    if raw is not None:
        return f"a mapping was expected, with 'tasks:' at least; got {shown(raw)}"
    entries = file.content.get("models")
    listed = entries if isinstance(entries, list) else []
    models = [str(entry["model"]) for entry in listed if _mapping_with(entry, "model")]
    tuned = [m for m in models if m != file.content.get("base_model")]
    block = "\n".join(map_block(tuned or ["my-text"], {}))
    new = file.path.with_name(f"{file.path.stem}-map.yml")
    command = shlex.join(["mergekit-map", "init", str(file.path), str(new)])
    return (
        "a 'map:' block with at least 'tasks:' is required: it says what to measure. "
        f"Add these lines, with files of yours, or let this write them:\n\n  {command}"
        f"\n\n{block}"
    )


def _mapping_with(part: Any, key: str) -> bool:
    return isinstance(part, dict) and key in part


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
    raise with_count(file.path, ordered)


def _parse_task(name: str, raw: Any) -> tuple[TaskSpec | None, list[Problem]]:
    key: KeyPath = ("map", "tasks", name)
    if not TASK_NAME.fullmatch(name) or len(name) > LONGEST_TASK:
        text = (
            f"task names are up to {LONGEST_TASK} letters, digits, '.', '_' and '-', "
            "and begin with a letter or digit; rename the task"
        )
        return None, [Problem(key, text)]
    if name in RESERVED:
        text = f"{name!r} is a column of front.csv already; rename the task"
        return None, [Problem(key, text)]
    if not isinstance(raw, dict):
        text = (
            "a mapping was expected, such as {perplexity: text.txt} or "
            f"{{preset: gsm8k}}, got {shown(raw)}"
        )
        return None, [Problem(key, text)]
    kinds = [kind for kind in _KINDS if kind in raw]
    if len(kinds) != 1:
        got = ", ".join(map(repr, raw)) or "nothing"
        text = (
            "a task has exactly one of the keys 'perplexity', 'preset', 'lm_eval' and "
            f"'python' that says what is measured; got {got}"
        )
        return None, [Problem(key, text)]
    if kinds == ["lm_eval"]:  # which metrics there are is known when it is loaded
        raw = {"metric": NO_METRIC, **raw}
    task, wrong = validated(_KINDS[kinds[0]], raw, key)
    return (task.in_full() if isinstance(task, PresetTask) else task), wrong


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
        found = mistakes(error.errors(), raw, model)
        return None, [Problem((*key, *p), text) for p, text in found.items()]
