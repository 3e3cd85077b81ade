"""Templates of configurations, with the names of models and tasks filled in.

A whole configuration as text, written from what options say of a merge.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from mergekit_map.config.tasks import PRESETS, TASK_NAME, hint_on
from mergekit_map.config.yaml_file import flow_text
from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import read_json_or_nothing
from mergekit_map.utils.text import printable

_BENCHMARK = "    # gsm8k: {preset: gsm8k}  # a benchmark by name"
_TO_FILL_IN = "    # a text of each kind, which no model was trained on"


def map_block(
    models: Sequence[str],
    tasks: Mapping[str, str],
    settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    on_base: bool = False,
) -> list[str]:
    """Return the lines of a ``map:`` block; without tasks, with one per model to edit.

    ``settings`` are keys of ``search`` and ``select``. A merge on a base is required to
    be no worse than the base, unless they have limits.
    """
    names = list(tasks) or task_names(map(last_part, models))
    known = tasks or {
        name: f"{{perplexity: {scalar(f'{name}.txt')}}}" for name in names
    }
    example = f"prefer: {flow_text(dict.fromkeys(names, 1))}"
    search, select = settings.get("search"), {**settings.get("select", {})}
    if on_base and "require" not in select:
        select = {"not_worse_than": "base", **select}
    default = f"{{evaluations: {(len(models) + 1) * (len(models) + 2)}}}"
    return [
        "map:",
        "  tasks:  # what is measured, each under a name of your own",
        *([] if tasks else [_TO_FILL_IN]),
        *(f"    {scalar(name)}: {task}" for name, task in known.items()),
        *([] if tasks else [_BENCHMARK]),
        f"  search: {flow_text(search)}"
        if search
        else f"  # search: {default}  # at most; or {{hours: 2}}",
        f"  select: {flow_text(select)}"
        + ("" if "prefer" in select else f"  # and, for example, {example}")
        if select
        else f"  # select: {{{example}}}  # how much each task counts",
    ]


def last_part(model: str) -> str:
    """Return the name of a model: that of its folder or repository."""
    return model.split("+")[-1].partition("@")[0].rstrip("/").rpartition("/")[2]


def task_names(texts: Iterable[str]) -> list[str]:
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


def scalar(text: str) -> str:
    """Return text as a YAML scalar, quoted only where necessary."""
    is_plain = re.fullmatch(r"[\w./][\w./~@+-]*", text) and yaml.safe_load(text) == text
    # JSON quotes whatever there may be, and YAML reads JSON.
    return text if is_plain else json.dumps(text, ensure_ascii=False)


# Without a density these methods drop nothing, and are another method by name.
_SPARSE = {"ties", "dare_ties", "dare_linear", "della", "della_linear"}
_USUAL_DTYPE = "bfloat16"
_BASE_KEY = "base_model_name_or_path"


@dataclass(frozen=True)
class NewMerge:
    """The models of a merge, and its method."""

    models: Sequence[str]
    base: str | None
    method: str
    dtype: str | None  # None: that of the base model, where that is a folder
    density: float | None = None  # None: the usual one of methods that drop weights


def new_config(
    merge: NewMerge,
    tasks: Mapping[str, str],
    comments: Iterable[str] = (),
    settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str:
    """Return a whole configuration; ``tasks`` are the result of ``new_tasks``."""
    lines = [f"# {printable(comment)}" for comment in comments]
    lines.append(f"merge_method: {scalar(merge.method)}")
    if merge.base is not None:
        lines.append(f"base_model: {scalar(merge.base)}")
    lines.append("models:  # without weights, which are what is searched")
    lines += [f"  - model: {scalar(model)}" for model in merge.models]
    if merge.density is not None or merge.method in _SPARSE:
        lines.append(f"parameters: {{density: {merge.density or 0.5:g}}}")
    model = merge.base or merge.models[0]
    dtype = _dtype_of(Path(model)) if merge.dtype is None else merge.dtype
    lines.append(f"dtype: {scalar(dtype)}")
    on_base = merge.base is not None
    lines += map_block(merge.models, tasks, settings, on_base=on_base)
    return "".join(f"{line}\n" for line in lines)


def new_tasks(texts: Iterable[str], benchmarks: Iterable[str]) -> dict[str, str]:
    """Name tasks, and return each as YAML.

    A text is ``FILE`` or ``NAME=FILE``; a benchmark a preset, or ``TASK:METRIC``, or
    ``TASK:METRIC,FILTER`` of lm-eval.

    Raises:
        ConfigError: a file is not there, or a benchmark not known.
    """
    named = [*map(_text_task, texts), *map(_benchmark, benchmarks)]
    names = task_names(name for name, _ in named)
    return dict(zip(names, (task for _, task in named), strict=True))


def base_of_adapters(models: Iterable[str]) -> str | None:
    """Return the base model of all these, if they are local adapters of one."""
    named = {
        read_json_or_nothing(Path(m, "adapter_config.json")).get(_BASE_KEY)
        for m in models
    }
    base = named.pop() if len(named) == 1 else None
    return base if isinstance(base, str) and base else None


def _text_task(given: str) -> tuple[str, str]:
    name, equals, file = given.partition("=")
    if not equals or not TASK_NAME.fullmatch(name) or Path(given).exists():
        name, file = Path(given).stem, given
    if not Path(file).is_file():
        raise ConfigError(f"--text {given}: there is no file {file}")
    if Path(file).suffix not in {".txt", ".jsonl"}:
        raise ConfigError(
            f"--text {given}: a .txt or .jsonl file was expected; convert it, one JSON "
            "object with the text per line"
        )
    return name, f"{{perplexity: {scalar(file)}}}"


def _benchmark(given: str) -> tuple[str, str]:
    if given in PRESETS:
        return given, f"{{preset: {given}}}"
    task, _, reading = given.rpartition(":")
    metric, _, kept = reading.partition(",")
    if not task or not metric:
        raise ConfigError(
            f"--task {given}: no benchmark is known by that name; "
            f"{hint_on(given)} Any other task of lm-eval is written as "
            "TASK:METRIC or TASK:METRIC,FILTER"
        )
    filtered = f", filter: {scalar(kept)}" if kept else ""
    spec = f"{{lm_eval: {scalar(task)}, metric: {scalar(metric)}{filtered}}}"
    return Path(task).stem, spec


def _dtype_of(model: Path) -> str:
    """Return the dtype of a model in a folder, or the most common one."""
    content = read_json_or_nothing(model / "config.json")
    saved = content.get("dtype") or content.get("torch_dtype")
    return str(saved or _USUAL_DTYPE).removeprefix("torch.")
