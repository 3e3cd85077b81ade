"""Loading of all tasks without a model, with all of their mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mergekit_map.config.problems import Problem
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.lm_eval_tasks import HarnessTask, load_harness
from mergekit_map.tasks.perplexity import PerplexityText, load_perplexity
from mergekit_map.tasks.python_function import PythonFunction, load_function

LoadedTask = PerplexityText | HarnessTask | PythonFunction


def load_tasks(
    specs: Mapping[str, TaskSpec], directory: Path
) -> tuple[dict[str, LoadedTask], list[Problem]]:
    """Load every task; relative paths start at ``directory``.

    Returns:
        The tasks that could be loaded, and the mistakes of the others.
    """
    loaded: dict[str, LoadedTask] = {}
    problems: list[Problem] = []
    for name, spec in specs.items():
        try:
            match spec:
                case PerplexityTask():
                    loaded[name] = load_perplexity(name, spec, directory)
                case LmEvalTask():
                    loaded[name] = load_harness(name, spec, directory)
                case PythonTask():
                    loaded[name] = load_function(name, spec, directory)
        except InvalidTask as error:
            key = ("map", "tasks", name, *error.key)
            problems += [Problem(key, text) for text in error.messages]
    return loaded, problems
