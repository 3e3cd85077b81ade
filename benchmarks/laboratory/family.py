"""A family of the laboratory: a base model, its fine-tunes, and their tasks.

``build.py`` makes one as a folder with ``family.json``; here it is read, and turned
into the content of a configuration of mergekit-map.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mergekit_map.utils.files import write_atomically

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
    family: Family,
    models: Sequence[str],
    tasks: str | Sequence[str],
    **search: Any,
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


def _reference(family: Family, model: Model) -> str:
    # An adapter alone is not a model to mergekit.
    return f"{family.base}+{model.path}" if model.adapter else str(model.path)


def _placed(folder: Path, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's block with its paths in full."""
    block = dict(task["task"])
    if "perplexity" in block:
        source = block["perplexity"]
        source = {"file": source} if isinstance(source, str) else dict(source)
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
