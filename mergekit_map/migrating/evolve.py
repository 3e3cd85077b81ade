"""A mergekit-evolve configuration, turned into one of ours.

mergekit-evolve searches by CMA-ES for the largest weighted sum of its tasks. Its models
and tasks are kept; what cannot be said here, or means something else here, is told.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mergekit_map.config.task_specs import TASK_NAME
from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ConfigError
from mergekit_map.files import StrPath
from mergekit_map.migrating.changes import list_changes
from mergekit_map.migrating.evolve_space import build_evolve_space
from mergekit_map.migrating.genome import EvolveTask, Settings, read_evolve


@dataclass(frozen=True)
class Migrated:
    """A configuration of ours as text, and what is not as it was."""

    text: str
    changes: tuple[str, ...]


def migrate_evolve(path: StrPath, task_folders: Sequence[StrPath] = ()) -> Migrated:
    """Turn a mergekit-evolve configuration into one of ours.

    ``task_folders`` are searched for the YAML files of its tasks, as by its
    ``--task-search-path``.

    Raises:
        ConfigError: with all problems of the file, located by line and key.
    """
    path, folders = Path(path), [Path(folder) for folder in task_folders]
    evolve = read_evolve(path)
    space = build_evolve_space(evolve.genome)
    tasks = _task_names(evolve.tasks)
    files = _task_files(evolve.tasks, folders)
    low = -1 if evolve.genome.allow_negative_weights else 0
    block = {
        "tasks": {
            name: _task(task, files.get(task.name), evolve.settings)
            for name, task in tasks.items()
        },
        "search": {"bounds": [low, 1]},
        "select": {"prefer": {name: abs(task.weight) for name, task in tasks.items()}},
    }
    changes = tuple(list_changes(evolve, space, tasks, files))
    title = f"From {path.name} of mergekit-evolve, by mergekit-map import-evolve."
    comments = [title, "What is not as it was:", *_wrapped(changes)]
    text = yaml_text([space.merge], comments)
    return Migrated(text + yaml_text([{"map": block}], inline=True), changes)


def _task_names(tasks: Sequence[EvolveTask]) -> dict[str, EvolveTask]:
    """Name the tasks as lm-eval does, longer where a task is read in several ways."""
    named: dict[str, EvolveTask] = {}
    for task in tasks:
        several = sum(other.name == task.name for other in tasks) > 1
        wish = f"{task.name}-{task.metric}" if several else task.name
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", wish)
        name = name if TASK_NAME.fullmatch(name) else f"task{name}"
        while name in named:
            name += "-"
        named[name] = task
    return named


def _task_files(
    tasks: Sequence[EvolveTask], folders: Sequence[Path]
) -> dict[str, Path]:
    files: dict[str, Path] = {}
    wanted = {task.name for task in tasks}
    for folder in folders:
        for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
            name = _own_name(path)
            if name not in wanted or path == files.get(name):
                continue
            if name in files:
                raise ConfigError(
                    f"the task {name!r} has two files, {files[name]} and {path}; give "
                    "a folder that has only one of them"
                )
            files[name] = path
    return files


def _own_name(path: Path) -> str | None:
    try:
        # Not constructed: lm-eval's tags stand for code.
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    named = {
        key.value: value.value
        for key, value in pairs
        if isinstance(value, yaml.ScalarNode)
    }
    return named.get("task") or named.get("group")


def _task(task: EvolveTask, file: Path | None, settings: Settings) -> dict[str, object]:
    metric, _, kept = task.metric.partition(",")
    spec = {
        "lm_eval": str(file or task.name),
        "metric": metric,
        "filter": kept or None,
        "limit": settings.limit,
        "num_fewshot": settings.num_fewshot,
        "apply_chat_template": settings.apply_chat_template or None,
    }
    return {key: value for key, value in spec.items() if value is not None}


def _wrapped(changes: Sequence[str]) -> Iterator[str]:
    for change in changes:
        yield from textwrap.wrap(
            change,
            84,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
