"""Loading of all tasks without a model, with all of their mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

from mergekit_map.config.problems import Problem
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.errors import InvalidTask
from mergekit_map.tasks.lm_eval_tasks import HarnessTask, load_harness
from mergekit_map.tasks.perplexity import PerplexityText, count_blocks, load_perplexity
from mergekit_map.tasks.python_function import PythonFunction, load_function

LoadedTask = PerplexityText | HarnessTask | PythonFunction
_FEW = 8  # documents or blocks: of fewer, a standard error is off by a quarter or more


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


def small_samples(
    tasks: Mapping[str, LoadedTask], folder: Path, *, trust_code: bool
) -> Iterator[str]:
    """Yield a warning for each task of few documents, or blocks of text.

    Blocks are counted with the tokenizer of a folder.
    """
    for name, task in tasks.items():
        if isinstance(task, PythonFunction):
            continue  # which tells the number when it is called
        if isinstance(task, PerplexityText):
            try:
                config, tokenizer = (
                    kind.from_pretrained(folder, trust_remote_code=trust_code)
                    for kind in (AutoConfig, AutoTokenizer)
                )
                n, unit = count_blocks(task, config, tokenizer, _FEW), "block"
            except Exception:  # noqa: BLE001 - of Rust; measuring says more
                continue
            more = "take a longer text, more 'max_tokens' or a smaller 'block'"
        else:
            n, unit, more = sum(task.sizes.values()), "document", "measure more"
        if n == 1:
            yield f"{name} has one {unit}, and so no standard error: {more}"
        elif n < _FEW:
            yield f"{name} has {n} {unit}s, and so rough standard errors: {more}"
