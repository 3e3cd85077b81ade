"""A configuration that works, of tiny models; attacks change a thing of it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from attack import Limits, Outcome, command
from tiny_models import scratch, write_models


@functools.cache
def family() -> Path:
    """Make a base model, two fine-tunes and a text, once, in a folder of their own."""
    place = scratch("attacked-models-")
    write_models(place, ("base", "a", "b"))
    (place / "text.txt").write_text("hello world plus one two three return " * 20)
    (place / "more.txt").write_text("def return one plus two hello world three " * 20)
    (place / "questions.yaml").write_text(json.dumps(_questions(place)))
    (place / "home").mkdir()
    return place


def _questions(place: Path) -> dict[str, Any]:
    """Write a task of lm-eval, and describe it."""
    question = {"q": "hello", "choices": ["a", "b"], "gold": 0}
    (place / "questions.jsonl").write_text(f"{json.dumps(question)}\n" * 4)
    return {
        "task": "questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(place / "questions.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": [{"metric": "acc"}],
    }


def index_of_tasks() -> None:
    """Read what tasks lm-eval has, so that commands that are forked know it."""
    from mergekit_map.tasks import lm_eval_tasks

    lm_eval_tasks.built_in_tasks()


def configuration() -> dict[str, Any]:
    """Give a configuration that can be searched, each time anew."""
    place = family()
    models = [{"model": str(place / name)} for name in "ab"]
    return {
        "merge_method": "ties",
        "base_model": str(place / "base"),
        "models": models,
        "parameters": {"density": 0.5},
        "dtype": "float32",
        "map": {
            "tasks": {
                "text": {"perplexity": str(place / "text.txt"), "max_tokens": 200},
                "more": {"perplexity": str(place / "more.txt"), "max_tokens": 200},
            },
            "search": {"evaluations": 12, "remeasure": 1},
        },
    }


def asked(folder: Path, *words: str | Path, seconds: float = 40) -> Outcome:
    """Run a command that has a cache folder of its own."""
    home = {"MERGEKIT_MAP_HOME": str(family() / "home")}
    return command(words, folder, Limits(seconds=seconds, megabytes=3000, others=home))
