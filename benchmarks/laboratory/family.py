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
from mergekit_map.utils.files import write_atomically

Array = np.ndarray[Any, np.dtype[np.float64]]

MANIFEST = "family.json"


@dataclass(frozen=True)
class Model:
    """A fine-tune, or an adapter of the base model."""

    name: str
    path: Path
    adapter: bool


@dataclass(frozen=True)
class Task:
    """What measures a model: a block of ``map.tasks``, its paths in full."""

    name: str
    model: str
    kind: str
    block: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """A finished family; the first N models make the search of N models."""

    folder: Path
    name: str
    size: str
    parameters: int
    seed: int
    base: Path
    models: tuple[Model, ...]
    tasks: tuple[Task, ...]
    facts: Mapping[str, Any]  # the whole manifest

    @property
    def digest(self) -> str:
        """Give a short name to what the models do: another training has another."""
        lasting = {key: of for key, of in self.facts.items() if key != "seconds"}
        written = json.dumps(lasting, sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:10]

    def tasks_of(self, models: Sequence[str], kind: str) -> tuple[Task, ...]:
        """Give the tasks of one kind of some models, in the order of ``models``."""
        return tuple(
            task
            for name in models
            for task in self.tasks
            if task.model == name and task.kind == kind
        )


def load(folder: Path) -> Family:
    """Read a finished family.

    The tasks of lm-eval name their data by full path, so they are written anew where
    the folder was moved.
    """
    folder = folder.expanduser().resolve()
    path = folder / MANIFEST
    if not path.exists():
        raise SystemExit(
            f"{folder} holds no finished family ({MANIFEST} is missing); make it with "
            "benchmarks/laboratory/build.py"
        )
    return read(folder, json.loads(path.read_text(encoding="utf-8")))


def read(folder: Path, facts: Mapping[str, Any]) -> Family:
    """Give the family that the manifest ``facts`` of a folder describes."""
    return Family(
        folder,
        name=facts["family"],
        size=facts["size"],
        parameters=facts["parameters"],
        seed=facts["seed"],
        base=folder / facts["base"],
        models=tuple(
            Model(model["name"], folder / model["path"], model["adapter"])
            for model in facts["models"]
        ),
        tasks=tuple(
            Task(task["name"], task["model"], task["kind"], _placed(folder, task))
            for task in facts["tasks"]
        ),
        facts=facts,
    )


def configuration(
    family: Family, models: Sequence[str], tasks: str | Sequence[str], **search: Any
) -> dict[str, Any]:
    """Give the content of a configuration: some models, measured on some tasks.

    ``tasks`` names them, or is a kind: then each model has its own task of that kind.
    ``search`` goes into ``map.search`` as it is; the seed is 0 unless it says so.
    """
    known = {task.name: task for task in family.tasks}
    chosen = (
        family.tasks_of(models, tasks)
        if isinstance(tasks, str)
        else [known[name] for name in tasks]
    )
    if not chosen:
        raise ValueError(f"{family.name} has no task of kind {tasks!r} for {models}")
    paths = {model.name: _reference(family, model) for model in family.models}
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(family.base),
        "models": [{"model": paths[name]} for name in models],
        "dtype": family.facts.get("dtype", "float32"),
        "map": {
            "tasks": {task.name: dict(task.block) for task in chosen},
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
            row[:] = [measures[task]().value for task in tasks]
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


def _reference(family: Family, model: Model) -> str:
    # An adapter alone is not a model to mergekit.
    return f"{family.base}+{model.path}" if model.adapter else str(model.path)


def _placed(folder: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's block with its paths in full."""
    block = dict(task["task"])
    if "perplexity" in block:
        source = block["perplexity"]
        block["perplexity"] = {**source, "file": str(folder / source["file"])}
    if str(block.get("lm_eval", "")).endswith(".yaml"):
        path = folder / block["lm_eval"]
        _place_data(path)
        block["lm_eval"] = str(path)
    return block


def _place_data(path: Path) -> None:
    """Let a task of lm-eval name the data beside it by full path."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    files = content["dataset_kwargs"]["data_files"]
    files |= {
        split: str(path.parent / Path(file).name) for split, file in files.items()
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if text != path.read_text(encoding="utf-8"):
        write_atomically(path, text)
