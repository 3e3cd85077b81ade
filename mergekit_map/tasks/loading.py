"""Load all tasks without a model, and say all that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mergekit_map.config.specs import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.tasks.function import PythonFunction, load_function
from mergekit_map.tasks.harness import HarnessTask, load_harness
from mergekit_map.tasks.perplexity import PerplexityText, load_perplexity
from mergekit_map.tasks.problem import InvalidTask, TaskProblem

LoadedTask = PerplexityText | HarnessTask | PythonFunction


def load_tasks(
    specs: Mapping[str, TaskSpec], directory: Path
) -> tuple[dict[str, LoadedTask], list[TaskProblem]]:
    """Load every task; relative paths start at ``directory``.

    Returns:
        The tasks that could be loaded, and what is wrong with the others.
    """
    loaded: dict[str, LoadedTask] = {}
    problems: list[TaskProblem] = []
    for name, spec in specs.items():
        try:
            loaded[name] = _load(name, spec, directory)
        except InvalidTask as error:
            problems += [TaskProblem(name, error.key, text) for text in error.messages]
    return loaded, problems


def _load(name: str, spec: TaskSpec, directory: Path) -> LoadedTask:
    match spec:
        case PerplexityTask():
            return load_perplexity(name, spec, directory)
        case LmEvalTask():
            return load_harness(name, spec, directory)
        case PythonTask():
            return load_function(name, spec, directory)
