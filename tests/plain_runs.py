"""Searches of two functions of a merge's weights, which trade off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nested_runs import write

TASKS = """
def one(model, tokenizer):
    return 100 * model.lm_head.weight.float()[3].mean().item()

def two(model, tokenizer):
    return -100 * model.lm_head.weight.float()[3].mean().item()
"""


def write_plain(
    family: Mapping[str, Path | str],
    tasks: Sequence[str] = ("one", "two"),
    code: str = TASKS,
    **search: Any,
) -> dict[str, Any]:
    """Write a search of two models into the working directory, and return it."""
    Path("mine.py").write_text(code)
    task = {"direction": "minimize"}
    content = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "dtype": "float32",
        "map": {
            "tasks": {name: {"python": f"mine:{name}", **task} for name in tasks},
            "search": {"evaluations": 6, "remeasure": 1, **search},
        },
    }
    write(content)
    return content


def write_texts(*names: str, **options: Any) -> dict[str, Any]:
    """Write texts into the working directory; returns the tasks that measure them."""
    for name in names:
        line = "def return three" if name == "two" else "hello world, one plus two"
        Path(f"{name}.txt").write_text(f"{line}\n" * 60)
    return {name: {"perplexity": {"file": f"{name}.txt"}, **options} for name in names}
