"""Find tasks of lm-eval: built in by name, or in a YAML file of one's own."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import yaml
from datasets.exceptions import DatasetNotFoundError
from lm_eval.tasks import TaskManager

from mergekit_map.errors import InvalidTask, nearest

_KEY = ("lm_eval",)


def find_tasks(name: str, directory: Path) -> Mapping[str, Any]:
    """Load a built-in task, group or tag, or a YAML file relative to ``directory``.

    Returns:
        lm-eval's mapping with "tasks" and "groups", their data loaded.

    Raises:
        InvalidTask: there is no such task or file, or it cannot be loaded.
    """
    if Path(name).suffix in {".yaml", ".yml"}:
        return _load_file(directory / name)
    manager = built_in_tasks()
    if name not in manager.task_index:
        raise InvalidTask(
            _KEY,
            f"lm-eval has no task, group or tag {name!r}; "
            f"{nearest(name, manager.all_tasks)} A task of your own is named by the "
            "path of its .yaml file",
        )
    return _load(manager, name)


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Phrase what lm-eval or the code of a task raises inside, with what to do."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too: the search is not what ends
        text = f"lm-eval cannot set this task up: {type(error).__name__}: {error}"
        if isinstance(error, ConnectionError | DatasetNotFoundError):
            text += (
                "; check the name of its dataset and, offline, that it is in the cache"
            )
        elif isinstance(error, FileNotFoundError):
            text += (
                "; relative data_files of a task YAML start at the working directory "
                f"{Path.cwd()}, not at the YAML's folder: write absolute paths"
            )
        elif isinstance(error, ModuleNotFoundError):
            text += f"; install it: {_installing(error.name)}"
        raise InvalidTask(_KEY, text) from error


def _installing(module: str | None) -> str:
    """Name the part of lm-eval that brings a package, where there is one."""
    for wanted in requires("lm_eval") or ():
        package, _, extra = wanted.partition("extra == ")
        if extra and re.split(r"[^\w.-]", package)[0] == module:
            return f"pip install 'lm-eval[{extra.strip()[1:-1]}]'"
    return f"pip install {module}"


@functools.cache
def built_in_tasks() -> TaskManager:
    """Return lm-eval's index of its own tasks; reading it takes seconds, once."""
    return TaskManager()


def _load_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        text = f"there is no file {path}; relative paths start at the working directory"
        raise InvalidTask(_KEY, text)
    content = _read(path)
    group = content.get("group")
    if isinstance(group, yaml.ScalarNode):
        return _load_group(str(group.value), path, _members(content.get("task")))
    return _load(TaskManager(include_defaults=False), str(path.resolve()))


def _read(path: Path) -> dict[str, yaml.Node]:
    """Read the entries of a task; not constructed: lm-eval's tags stand for code."""
    try:
        text = path.read_text(encoding="utf-8")
        return _entries(yaml.compose(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise InvalidTask(_KEY, f"{path} is not valid YAML: {error}") from None


def _entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): value for key, value in node.value}


def _load_group(group: str, path: Path, members: Collection[str]) -> Mapping[str, Any]:
    # A group names its tasks, which are beside it or built in. lm-eval 0.4.13 fails
    # on the path of a group (it takes the list of tasks for its name).
    with setting_up():
        manager = TaskManager(include_path=str(path.parent), include_defaults=False)
        if not set(members) <= set(manager.all_tasks):
            manager = TaskManager(include_path=str(path.parent))
    entry = manager.task_index.get(group)
    if entry is None or str(entry.yaml_path) not in (str(path), str(path.resolve())):
        raise InvalidTask(
            _KEY,
            f"lm-eval does not find group {group!r} in {path}; give the group a name "
            "that nothing else in that folder has, and a file that ends in .yaml",
        )
    return _load(manager, group)


def _load(manager: TaskManager, name: str) -> Mapping[str, Any]:
    with setting_up():
        loaded: Mapping[str, Any] = manager.load([name])
    return loaded


def _members(tasks: yaml.Node | None) -> list[str]:
    nodes = tasks.value if isinstance(tasks, yaml.SequenceNode) else [tasks]
    named = [_entries(node).get("task", node) for node in nodes]
    return [str(node.value) for node in named if isinstance(node, yaml.ScalarNode)]
