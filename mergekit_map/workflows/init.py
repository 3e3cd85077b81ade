"""New configurations, from options or of plain mergekit ones, and their JSON Schema."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import LONGEST_TASK, RESERVED, TASK_NAME
from mergekit_map.config.yaml_file import Settings, read_yaml, yaml_text
from mergekit_map.errors import ConfigError
from mergekit_map.models.references import (
    Reference,
    names_coefficient,
    short_names,
    walk_entries,
    weight_setting,
)
from mergekit_map.utils.files import read_json_or_nothing
from mergekit_map.utils.text import unused_name

# Without a density these methods drop nothing, and are another method by name.
_HALVED = ("ties", "dare_ties", "dare_linear", "della", "della_linear")
_SPARSE = {**dict.fromkeys(_HALVED, 0.5), "breadcrumbs": 0.9, "breadcrumbs_ties": 0.9}
_USUAL_DTYPE = "bfloat16"
_BY_RATIO = {"linear", "nuslerp", "multislerp"}  # methods whose weights are no amounts
_LARGEST = 1000  # bound of a weight
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BASE_KEY = "base_model_name_or_path"
Tasks = Mapping[str, Mapping[str, Any]]


def map_block(
    models: Sequence[str], tasks: Tasks, settings: Settings, *, on_base: bool = False
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


def _hints(tasks: Tasks) -> list[str]:
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


def new_config(merge: NewMerge, tasks: Tasks, title: str, settings: Settings) -> str:
    """Return a whole configuration; ``tasks`` are the result of ``new_tasks``."""
    base = _base_of_adapters(merge.models) if merge.base is None else merge.base
    if base in merge.models and merge.method != "linear":
        raise ConfigError(f"--model {base} is the base, too; leave it out")
    content: dict[str, Any] = {"merge_method": merge.method}
    if base is not None:
        content["base_model"] = base
    content["models"] = [{"model": model} for model in merge.models]
    if merge.density is not None or merge.method in _SPARSE:
        content["parameters"] = {"density": merge.density or _SPARSE[merge.method]}
    path = Reference.parse(base or merge.models[0]).model.path
    known = read_json_or_nothing(Path(os.path.expanduser(path), "config.json"))
    usual = known.get("dtype") or known.get("torch_dtype") or _USUAL_DTYPE
    dtype = str(usual).removeprefix("torch.") if merge.dtype is None else merge.dtype
    content["dtype"] = dtype
    on_base = base not in (None, *merge.models)
    block = map_block(merge.models, tasks, settings, on_base=on_base)
    return yaml_text({**content, "map": block}, [title, *_hints(tasks)])


def new_tasks(texts: Iterable[str], benchmarks: Iterable[str]) -> Tasks:
    """Name tasks, and return each as it stands under ``map.tasks``.

    A text is ``FILE`` or ``NAME=FILE``; a benchmark a preset, or ``TASK:METRIC``, or
    ``TASK:METRIC,FILTER`` of lm-eval.
    """
    named = [*map(_text_task, texts), *map(_benchmark, benchmarks)]
    for index, (name, task) in enumerate(named):
        if task in (other for _, other in named[:index]):
            text = f"{name} is given twice, and would count twice; leave one out"
            raise ConfigError(text)
    names = _task_names(name for name, _ in named)
    return dict(zip(names, (task for _, task in named), strict=True))


def extend_plain(path: Path, tasks: Tasks) -> str:
    """Add a ``map:`` block to a mergekit configuration, and search its weights.

    Weights that are numbers become names, which are searched. Of three models, they are
    no longer normalized, as only ratios would count; all else stays as it is.
    """
    file = read_yaml(path)
    if file.content.get("map") is not None:
        raise ConfigError(
            f"{file.locate(('map',))}: this file has a 'map:' block already; it can be "
            "searched as it is"
        )
    try:
        models = [str(entry["model"]) for _, entry, _ in walk_entries(file.merge)]
    except (AttributeError, KeyError, TypeError):
        models = []
    base, method = map(file.content.get, ("base_model", "merge_method"))
    is_linear = method in {"linear", "map_linear"}  # which weighs its base, too
    given = file.content.get("parameters")
    is_normalized = isinstance(given, dict) and bool(given.get("normalize"))
    shares = str(method).removeprefix("map_") in _BY_RATIO
    by_ratio = shares or is_normalized
    if not (tuned := [m for m in dict.fromkeys(models) if m != base or is_linear]):
        raise ConfigError(
            f"{path}: 'models:' with a 'model:' each was expected, as mergekit-yaml "
            "has it; got none"
        )
    merge, short = copy.deepcopy(file.merge), short_names(tuned).items()
    names = {m: n if names_coefficient(n) else f"{n}-model" for m, n in short}
    old, kept, bounds = list[str](), list[str](), dict[str, list[float]]()
    for key, entry, outer in walk_entries(merge, (), weight_setting(merge, ())):
        name, setting = names.get(str(entry["model"])), weight_setting(entry, key)
        weight = (setting or outer or (key, None))[1]
        if name is None or weight is None:
            continue
        if setting and isinstance(weight, int | float):
            entry["parameters"]["weight"] = name
            old.append(f"{name} (was {weight})")
            low, high = bounds.get(name, (0, 1))
            if abs(weight) <= _LARGEST and not (low <= weight <= high or by_ratio):
                bounds[name] = [min(weight, low), max(weight, high)]
        elif not names_coefficient(weight):
            kept.append(name)
    was, fixed = (", ".join(dict.fromkeys(of)) for of in (old, kept))
    ratio = "; only their ratio counts" * by_ratio
    if is_normalized and not (shares or kept) and len(tuned) > 2:
        merge["parameters"]["normalize"] = False  # else one number would be needed
        ratio = "; normalize is false, as their ratio would count alone"
    comments = [f"Searched by name: the weights of {was}{ratio}"] if was else []
    if fixed:
        text = "remove their weights (and one for all models), or write names"
        comments.append(f"Not searched: {fixed}; {text} in their place")
    settings = {"search": {"bounds": bounds}} if bounds else {}
    content = {**merge, "map": map_block(tuned, tasks, settings)}
    return yaml_text(content, [*comments, *_hints(tasks)])


def config_schema() -> dict[str, Any]:
    """Return the schema of a configuration: mergekit's part and the ``map:`` block.

    Reading a configuration checks what a schema cannot express: files, models, names of
    tasks, keys that exclude one another.
    """
    references, ours = models_json_schema([(MapBlock, "validation")])
    (block,) = references.values()
    definitions = ours["$defs"]
    names = {"pattern": f"^(?:{TASK_NAME.pattern})$"}
    definitions["MapBlock"]["properties"]["tasks"]["propertyNames"] = names
    # Here, as it imports torch: the methods of mergekit and their parameters.
    from mergekit_map.merging.validation import merge_schema

    schema = merge_schema()
    return {
        "$schema": _DIALECT,
        **schema,
        "$defs": schema["$defs"] | definitions,
        "title": "A search of mergekit-map",
        "properties": {**schema["properties"], "map": block},
        "required": [*schema["required"], "map"],
    }


def _text_task(given: str) -> tuple[str, dict[str, str]]:
    name, equals, file = given.partition("=")
    if not equals or not TASK_NAME.fullmatch(name) or Path(given).exists():
        name, file = Path(given).stem, given
    return name, {"perplexity": str(Path(file))}


def _benchmark(given: str) -> tuple[str, dict[str, str]]:
    task, colon, reading = given.rpartition(":")
    if not colon:
        return given, {"preset": given}
    metric, _, kept = reading.partition(",")
    spec = {"lm_eval": task, "metric": metric}
    return Path(task).stem, {**spec, "filter": kept} if kept else spec


def _task_names(texts: Iterable[str]) -> list[str]:
    names: list[str] = []
    for text in texts:
        word = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[: LONGEST_TASK - 8]
        is_valid = TASK_NAME.fullmatch(word) and word not in RESERVED
        names.append(unused_name(word if is_valid else f"task{word}", names))
    return names


def _base_of_adapters(models: Iterable[str]) -> str | None:
    paths = [Path(os.path.expanduser(m), "adapter_config.json") for m in models]
    named = [read_json_or_nothing(path).get(_BASE_KEY) for path in paths]
    same = named[:1] * len(named) == named
    return named[0] if same and isinstance(named[0], str) and named[0] else None
