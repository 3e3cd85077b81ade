"""Configurations from what options say of a merge, with names of models and tasks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mergekit_map.config.tasks import TASK_NAME
from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.utils.files import read_json_or_nothing

# Without a density these methods drop nothing, and are another method by name.
_SPARSE = {"ties", "dare_ties", "dare_linear", "della", "della_linear"}
_USUAL_DTYPE = "bfloat16"
_BASE_KEY = "base_model_name_or_path"
Tasks = Mapping[str, Mapping[str, Any]]
Settings = Mapping[str, Mapping[str, Any]]  # of ``map.search`` and ``map.select``


def map_block(
    models: Sequence[str],
    tasks: Tasks,
    settings: Settings = MappingProxyType({}),
    *,
    on_base: bool = False,
) -> dict[str, Any]:
    """Return a ``map:`` block; without tasks, with a text per model to fill in.

    A merge on a base is required to be no worse than the base, unless the settings have
    limits.
    """
    known = tasks or {
        name: {"perplexity": f"{name}.txt"}
        for name in _task_names(Path(model).name.partition("@")[0] for model in models)
    }
    block = {"tasks": known, **{key: keys for key, keys in settings.items() if keys}}
    if on_base and "require" not in block.get("select", {}):
        block["select"] = {"not_worse_than": "base", **block.get("select", {})}
    return block


def hints(tasks: Tasks) -> list[str]:
    """Return comments on what may be edited in a ``map:`` block."""
    more = "Other keys of map: search: {hours: 2}, select: {prefer: {TASK: 2}}, ..."
    fill_in = (
        "Fill in the tasks: texts that no model was trained on, or benchmarks, such as "
        "gsm8k: {preset: gsm8k}"
    )
    return [more] if tasks else [fill_in, more]


@dataclass(frozen=True)
class NewMerge:
    """The models of a merge, and its method."""

    models: Sequence[str]
    base: str | None  # None: that of the models, where they are adapters of one
    method: str
    dtype: str | None  # None: that of the base model, where that is a folder
    density: float | None = None  # None: the usual one of methods that drop weights


def new_config(
    merge: NewMerge,
    tasks: Tasks,
    title: str,
    settings: Settings = MappingProxyType({}),
) -> str:
    """Return a whole configuration; ``tasks`` are the result of ``new_tasks``."""
    base = merge.base or _base_of_adapters(merge.models)
    dtype = _dtype_of(Path(base or merge.models[0]))
    content: dict[str, Any] = {"merge_method": merge.method}
    if base is not None:
        content["base_model"] = base
    content["models"] = [{"model": model} for model in merge.models]
    if merge.density is not None or merge.method in _SPARSE:
        content["parameters"] = {"density": merge.density or 0.5}
    content["dtype"] = dtype if merge.dtype is None else merge.dtype
    block = map_block(merge.models, tasks, settings, on_base=base is not None)
    return yaml_text([{**content, "map": block}], [title, *hints(tasks)])


def new_tasks(texts: Iterable[str], benchmarks: Iterable[str]) -> Tasks:
    """Name tasks, and return each as it stands under ``map.tasks``.

    A text is ``FILE`` or ``NAME=FILE``; a benchmark a preset, or ``TASK:METRIC``, or
    ``TASK:METRIC,FILTER`` of lm-eval.
    """
    named = [*map(_text_task, texts), *map(_benchmark, benchmarks)]
    names = _task_names(name for name, _ in named)
    return dict(zip(names, (task for _, task in named), strict=True))


def _text_task(given: str) -> tuple[str, dict[str, str]]:
    name, equals, file = given.partition("=")
    if not equals or not TASK_NAME.fullmatch(name) or Path(given).exists():
        name, file = Path(given).stem, given
    return name, {"perplexity": file}


def _benchmark(given: str) -> tuple[str, dict[str, str]]:
    task, colon, reading = given.rpartition(":")
    if not colon:
        return given, {"preset": given}
    metric, _, kept = reading.partition(",")
    spec = {"lm_eval": task, "metric": metric}
    return Path(task).stem, {**spec, "filter": kept} if kept else spec


def _task_names(texts: Iterable[str]) -> list[str]:
    """Return a valid and unique name for each task."""
    names: list[str] = []
    for text in texts:
        word = re.sub(r"[^A-Za-z0-9_.-]", "-", text)
        word = word if TASK_NAME.fullmatch(word) else f"task{word}"
        numbered = (f"{word}-{number}" for number in itertools.count(2))
        names.append(
            next(w for w in itertools.chain([word], numbered) if w not in names)
        )
    return names


def _base_of_adapters(models: Iterable[str]) -> str | None:
    """Return the base model of all these, if they are local adapters of one."""
    named = {
        read_json_or_nothing(Path(m, "adapter_config.json")).get(_BASE_KEY)
        for m in models
    }
    base = named.pop() if len(named) == 1 else None
    return base if isinstance(base, str) and base else None


def _dtype_of(model: Path) -> str:
    """Return the dtype of a model in a folder, or the most common one."""
    content = read_json_or_nothing(model / "config.json")
    saved = content.get("dtype") or content.get("torch_dtype")
    return str(saved or _USUAL_DTYPE).removeprefix("torch.")
