"""Build a family of image models: images, base, fine-tunes, and what they do.

- ``vision``: an image encoder of CLIP's, and eight fine-tunes. The base is trained on
  all eight tasks, with a head for each; the heads stay as they are from then on, as
  those that CLIP makes of the names of classes.
- ``resnet``: a ResNet, trained on six tasks, and fine-tunes on three others. Heads are
  left out, and fitted anew for each merge.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from family import MANIFEST, configuration, read
from filelock import FileLock
from measuring import measure
from safetensors.torch import load_file, save_file
from vision_images import Images, draw_images
from vision_models import RECIPE, Size, new_encoder, new_resnet, sizes_of
from vision_training import MEAN, STD, Heads, new_heads, train

HERE = Path(__file__).parent
_HEADS = "heads.safetensors"
_RECORD = "build.json"  # what was trained, and for how long


@dataclass(frozen=True)
class Plan:
    """What a family is made of."""

    base: tuple[str, ...]  # the tasks that the base learns
    models: tuple[str, ...]  # and those of the fine-tunes, one each
    new_model: Callable[[Size], transformers.PreTrainedModel]
    measures: str  # the file that measures
    beside: tuple[Path, ...] = ()  # what that imports
    keeps_heads: bool = False


_EIGHT = (
    *("letters", "textures", "digits", "signs"),
    *("counting", "directions", "colours", "shapes"),
)
_THREE = ("digits", "signs", "places")
PLANS = {
    "vision": Plan(_EIGHT, _EIGHT, new_encoder, "vision_measures.py", keeps_heads=True),
    "resnet": Plan(
        tuple(task for task in _EIGHT if task not in _THREE),
        _THREE,
        new_resnet,
        "vision_resnet_measures.py",
        (RECIPE,),
    ),
}


def build(name: str, root: Path, size_name: str, size: Size | None = None) -> Path:
    """Train what is missing of a family, write its manifest last, give its folder."""
    plan, size = PLANS[name], size or sizes_of(name)[size_name]
    folder = root / f"{name}-{size_name}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if (folder / MANIFEST).exists():
            return folder
        _refuse_other_sizes(folder, size)
        base, heads = _train_base(folder, plan, size)
        for task in plan.models:
            _tune(folder, task, base, heads, plan, size)
        module = f"{name}_{size_name}"
        _write_measures(folder, module, plan, heads, size)
        facts = {
            "family": name,
            "size": size_name,
            "parameters": base.num_parameters(),
            "seed": 0,
            "base": "base",
            "models": [
                {"name": task, "path": task, "adapter": False} for task in plan.models
            ],
            "tasks": [_task(task, module) for task in plan.models],
            "schedules": dataclasses.asdict(size),
            "seconds": _record(folder)["seconds"],
        }
        facts |= _describe(folder, facts)
        _write(folder / MANIFEST, facts)
    return folder


@functools.cache
def _to_train(task: str, count: int) -> Images:
    return draw_images(task, count, held_out=False)


def _refuse_other_sizes(folder: Path, size: Size) -> None:
    """Refuse a folder whose models were made by other schedules."""
    asked = json.loads(json.dumps(dataclasses.asdict(size)))
    record = _record(folder)
    if record.setdefault("size", asked) != asked:
        raise SystemExit(
            f"{folder} was begun with other sizes or schedules; delete it, or name "
            "another folder"
        )
    _write(folder / _RECORD, record)


def _train_base(
    folder: Path, plan: Plan, size: Size
) -> tuple[transformers.PreTrainedModel, Heads]:
    model = plan.new_model(size)
    if not (folder / "base").exists():
        started = time.monotonic()
        tasks = {task: _to_train(task, size.images) for task in plan.base}
        heads = new_heads(tasks, size.features)
        train("base", model, tasks, heads, size.base, train_heads=True)
        save_file(heads, folder / _HEADS)
        _save(folder, "base", model, started)
    loaded = type(model).from_pretrained(folder / "base")
    return loaded, load_file(folder / _HEADS)


def _tune(
    folder: Path,
    task: str,
    base: transformers.PreTrainedModel,
    heads: Heads,
    plan: Plan,
    size: Size,
) -> None:
    if (folder / task).exists():
        return
    started = time.monotonic()
    images = {task: _to_train(task, size.images)}
    # As no merge has it, such a head is to be learned before the features change.
    own = heads if plan.keeps_heads else new_heads(images, size.features, 0.05)
    model = copy.deepcopy(base)
    own = {task: own[task]}
    train(task, model, images, own, size.fine_tune, train_heads=not plan.keeps_heads)
    _save(folder, task, model, started)


def _save(
    folder: Path, name: str, model: transformers.PreTrainedModel, started: float
) -> None:
    """Save a model under the names that its tensors have in memory, for mergekit."""
    unfinished = folder / f"{name}.unfinished"
    model.save_pretrained(unfinished, save_original_format=False)
    unfinished.replace(folder / name)
    record = _record(folder)
    seconds = {**record.get("seconds", {}), name: round(time.monotonic() - started, 1)}
    _write(folder / _RECORD, {**record, "seconds": seconds})


def _write_measures(
    folder: Path, module: str, plan: Plan, heads: Heads, size: Size
) -> None:
    """Write what the tasks read: held-out images, heads or images to fit them to."""
    (folder / "images").mkdir(exist_ok=True)
    for task in plan.models:
        held_out = draw_images(task, size.held_out, held_out=True)
        tensors = {"pixels": held_out.pixels, "labels": held_out.labels}
        if plan.keeps_heads:
            norms = {"mean": torch.tensor(MEAN), "std": torch.tensor(STD)}
            tensors |= {"head": heads[task], **norms}
        else:
            fit = _to_train(task, size.refit)
            tensors |= {"train_pixels": fit.pixels, "train_labels": fit.labels}
        save_file(tensors, folder / "images" / f"{task}.safetensors")
    shutil.copy(HERE / plan.measures, folder / f"{module}.py")
    for path in plan.beside:
        shutil.copy(path, folder / path.name)


def _task(task: str, module: str) -> dict[str, Any]:
    block = {"python": f"{module}:{task}", "direction": "maximize", "range": [0, 1]}
    return {
        "name": f"{task}_accuracy",
        "model": task,
        "kind": "images",
        "task": block,
    }


def _describe(folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Measure base and fine-tunes, and refuse a fine-tune that gains nothing.

    ``accuracies`` has a row for the base, each fine-tune, the mean of all and the sum
    of all task vectors.
    """
    family = read(folder, facts)
    names = [model.name for model in family.models]
    n = len(names)
    X = np.vstack([np.zeros(n), np.eye(n), np.full(n, 1 / n), np.ones(n)])
    values = measure(configuration(family, names, "images"), X)
    poor = [
        f"{name} ({base:.3f}, tuned {tuned:.3f})"
        for name, base, tuned in zip(
            names, values[0], np.diag(values[1 : n + 1]), strict=True
        )
        if tuned <= base
    ]
    if poor:
        raise SystemExit(
            f"fine-tunes in {folder} gain nothing on their own task: "
            f"{', '.join(poor)}; change their schedule in vision_models.py"
        )
    rows = ("base", *names, "mean", "sum")
    return {
        "accuracies": dict(zip(rows, values.round(4).tolist(), strict=True)),
        "norm_ratios": _norm_ratios(folder, names),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def _norm_ratios(folder: Path, names: list[str]) -> dict[str, float]:
    """Give the 1-norms of task vectors by that of the base, buffers left out."""
    models = {name: _weights(folder / name) for name in ("base", *names)}
    base = models.pop("base")
    norm = sum(float(tensor.abs().sum()) for tensor in base.values())
    return {
        name: round(sum(float((own[k] - base[k]).abs().sum()) for k in base) / norm, 5)
        for name, own in models.items()
    }


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    return {k: v for k, v in tensors.items() if not k.endswith(statistics)}


def _record(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)
