"""A family of the laboratory: a base model, its fine-tunes, and their tasks.

``build.py`` makes one as a folder with ``family.json``; here it is read, turned into
the content of a configuration of mergekit-map, and measured by the ordinary program.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mergekit_map import load_project
from mergekit_map.evaluation.evaluator import merges_in_memory
from mergekit_map.evaluation.project import Project

Array = np.ndarray[Any, np.dtype[np.float64]]

MANIFEST = "family.json"


@dataclass(frozen=True)
class Family:
    """A finished family; the first N models make the search of N models."""

    folder: Path
    facts: Mapping[str, Any]  # its manifest

    @property
    def models(self) -> list[str]:
        """List the fine-tunes, or adapters, by name."""
        return [model["name"] for model in self.facts["models"]]

    @property
    def digest(self) -> str:
        """Give a short name to what the models do: another training has another."""
        written = json.dumps(self.facts, sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:10]


def load(folder: Path) -> Family:
    """Read a finished family."""
    folder = folder.expanduser().resolve()
    path = folder / MANIFEST
    if not path.exists():
        raise SystemExit(
            f"{folder} holds no finished family ({MANIFEST} is missing); make it with "
            "benchmarks/laboratory/build.py"
        )
    return Family(folder, json.loads(path.read_text(encoding="utf-8")))


def configuration(
    family: Family, models: Sequence[str], *, every: bool = False, **search: Any
) -> dict[str, Any]:
    """Give the content of a configuration: some models, each with its own text.

    ``every`` task of the family is measured instead where that is asked for.
    ``search`` goes into ``map.search`` as it is; the seed is 0 unless it says so.
    """
    tasks = family.facts["tasks"]
    if not every:
        own = {task["model"]: task for task in tasks if task["kind"] == "loss"}
        tasks = [own[name] for name in models]
    base = str(family.folder / "base")
    adapters = [one["name"] for one in family.facts["models"] if one["adapter"]]
    places = {name: str(family.folder / name) for name in models}
    # An adapter alone is not a model to mergekit.
    places |= {n: f"{base}+{place}" for n, place in places.items() if n in adapters}
    return {
        "merge_method": "task_arithmetic",
        "base_model": base,
        "models": [{"model": place} for place in places.values()],
        "dtype": family.facts.get("dtype", "float32"),
        "map": {
            "tasks": {task["name"]: _placed(family.folder, task) for task in tasks},
            "search": {"seed": 0, **search},
        },
    }


def open_project(content: Mapping[str, Any]) -> Project:
    """Open the project of a configuration, given as its content."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "config.yml"
        text = yaml.safe_dump(dict(content), sort_keys=False)
        path.write_text(text, encoding="utf-8")
        return load_project(path)


def measure(content: Mapping[str, Any], X: Array) -> Array:
    """Measure every task of a configuration at the rows of ``X`` (n, models).

    Returns (n, tasks) values in the tasks' own units, smaller is better for a loss.
    The columns of both are in the order in which ``content`` lists models and tasks.
    """
    project = open_project(content)
    names = project.space.names
    tasks = list(content["map"]["tasks"])  # not the project's: YAML may be reordered
    values = np.empty((len(X), len(tasks)))
    with merges_in_memory(project) as merges:
        for row, point in zip(values, X, strict=True):
            measures = merges(dict(zip(names, map(float, point), strict=True)))
            row[:] = [measures[task](None).value for task in tasks]
    return values


def measure_family(
    content: Mapping[str, Any], names: Sequence[str], least: float
) -> dict[str, list[float]]:
    """Measure base, fine-tunes, their mean and their sum on the text of each.

    Fine-tunes that gain less than ``least`` on their own text are refused. This is also
    what shows that rows and columns of the losses are labelled rightly.
    """
    n, rows = len(names), ("base", *names, "mean", "sum")
    X = np.vstack([np.zeros(n), np.eye(n), np.full(n, 1 / n), np.ones(n)])
    losses = measure(content, X)
    gains = zip(names, losses[0] - np.diag(losses[1 : n + 1]), strict=True)
    poor = [f"{name} ({gain:+.3f})" for name, gain in gains if gain < least]
    if poor:
        raise SystemExit(
            f"every fine-tune must gain at least {least} nats on its own text, these "
            f"gain too little: {', '.join(poor)}; change their schedule, and delete "
            "these models"
        )
    return dict(zip(rows, losses.round(4).tolist(), strict=True))


def _placed(folder: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's block with its paths in full."""
    block = dict(task["task"])
    if "perplexity" in block:
        block["perplexity"] = {"file": str(folder / block["perplexity"]["file"])}
    else:
        block["lm_eval"] = str(folder / block["lm_eval"])
    return block


def write_lm_eval_task(data: Path, **content: Any) -> Path:
    """Write a task of lm-eval beside its data, which it has the name of.

    lm-eval resolves relative paths of data against the working directory.
    """
    task = {
        "task": data.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data.resolve())}},
        "test_split": "test",
        **content,
    }
    path = data.with_suffix(".yaml")
    text = yaml.safe_dump(task, sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")
    return path
