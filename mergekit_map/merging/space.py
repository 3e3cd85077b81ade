"""The search space: which numbers of a merge configuration are coefficients.

A coefficient is a name for one or more places of mergekit's YAML that hold a weight. By
default this is the ``weight`` of one non-base model. Where the user writes names
instead of numbers, it is an anchor of a layer gradient (``weight: [low, high]``) or the
value of a ``filter``. With numbers in these places, the result is an ordinary
configuration.

The weight that a model then has in each tensor is computed by mergekit while it plans:
filters select, gradients interpolate over the layers. All weights are affine in the
coefficients, so planning once per coefficient suffices.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from mergekit.architecture import get_architecture_info
from mergekit.common import ModelReference
from mergekit.config import MergeConfiguration
from mergekit.io.tasks import LoaderCache
from mergekit.merge_methods.task_adapter import ExecuteMergeMethodTask
from mergekit.options import MergeOptions
from mergekit.plan import MergePlanner
from transformers import PretrainedConfig

from mergekit_map import errors
from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.tasks import RESERVED
from mergekit_map.config.yaml_file import KeyPath, MergeConfig, filled, put
from mergekit_map.merging.validation import (
    PREFIX,
    ModelEntry,
    leaves_of,
    method_spec,
    model_entries,
    settings_of,
)
from mergekit_map.models.files import find_model
from mergekit_map.models.references import (
    models_with_adapter,
    names_coefficient,
    referenced_models,
    short_names,
)
from mergekit_map.results.records import NO_LINE
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import BASE, SOUP
from mergekit_map.utils.text import nearest

# Methods whose result depends only on the ratio of the weights, with the parameter that
# says so (None: always).
_BY_RATIO = {"linear": "normalize", "multislerp": "normalize_weights", "nuslerp": None}
_LONGEST_NAME = 1000  # characters
_OF_A_TASK = re.compile(r" (value|stderr|n|documents)$")
_Weights = dict[ModelReference, dict[str, float]]  # model to tensor name to weight


@dataclass(frozen=True)
class Coefficient:
    """A number that is searched, and its places in the configuration."""

    name: str
    model: str  # the model it weighs, as the user wrote it
    places: tuple[KeyPath, ...]


@dataclass(frozen=True, eq=False)
class MergeSpace:
    """A merge configuration with named placeholders for numbers.

    ``remainder`` holds the places of the one weight that is 1 minus all coefficients,
    for methods that depend only on the ratio of the weights; it is empty otherwise.
    """

    template: MergeConfig  # mergekit's schema, without ``map``
    coefficients: tuple[Coefficient, ...]
    bounds: FloatArray  # (d, 2)
    remainder: tuple[KeyPath, ...] = ()
    remainder_model: str = ""
    parents: tuple[str, ...] = ()  # names of the models that have a weight, in order

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the coefficients, in the order of a design's columns."""
        return tuple(c.name for c in self.coefficients)

    def config(self, values: Mapping[str, float]) -> MergeConfig:
        """Return the configuration of stock mergekit with these values."""
        places = {c.name: c.places for c in self.coefficients}
        return filled(self.template, places, self.remainder, values)

    def named(self, vector: FloatArray) -> dict[str, float]:
        """Turn a row of a design (d,) into named coefficients."""
        return {n: float(v) for n, v in zip(self.names, vector, strict=True)}

    def generic(self, share: float) -> dict[str, float]:
        """Return coefficients of a sound model, no two alike for irrational shares."""
        shares = share * np.arange(1, len(self.names) + 1) % 1
        total = share if self.remainder or len(shares) == 1 else 1.0
        return self.named(total * shares / shares.sum())

    def anchors(self) -> dict[str, dict[str, float]]:
        """Return the merges of no model, of each model alone and of all, by label.

        Of sparsified methods they are not the models themselves, which
        ``reference_points`` decides; models of fixed weight stay as they are.
        """
        models = list(dict.fromkeys(c.model for c in self.coefficients))
        shares = len(models) + bool(self.remainder)
        anchors = {}
        if self.remainder or self.template.get("base_model") is not None:
            anchors[self.remainder_model or BASE] = dict.fromkeys(self.names, 0.0)
        for m in models:
            anchors[m] = {c.name: float(c.model == m) for c in self.coefficients}
        return {**anchors, SOUP: {c.name: 1.0 / shares for c in self.coefficients}}


def build_space(
    merge: MergeConfig, search: SearchSpec
) -> tuple[MergeSpace | None, list[Problem]]:
    """Return the search space of a configuration, or None with its problems."""
    template = copy.deepcopy(dict(merge))
    entries = list(model_entries(template))
    if "weight" not in {p.name for p in method_spec(template).input_parameters}:
        text = (
            f"{template['merge_method']!r} has no weight per model, so nothing can "
            "be searched; use a task-vector method such as task_arithmetic or ties"
        )
        return None, [Problem(("merge_method",), text)]
    # From here on a method has the name of stock mergekit; its twin merges alike.
    template["merge_method"] = template["merge_method"].removeprefix(PREFIX)
    if not (coefficients := _coefficients(entries)):
        text = (
            "every model has a number as its weight, so nothing is searched; remove "
            "'weight' from the models whose weight is to be found"
        )
        return None, [Problem(("merge_method",), text)]
    kept, remainder, problem = _identifiable(template, entries, coefficients)
    if problem is not None:
        return None, [problem]
    bounds, problems = _bounds(search, [c.name for c in kept])
    parents = tuple(short_names([e.model for e in entries if e.weighted]).values())
    wrong = ((c, _wrong_name(c, parents)) for c in kept)
    problems += [Problem(c.places[0], why) for c, why in wrong if why]
    rest = (remainder.places, remainder.model) if remainder else ((), "")
    space = MergeSpace(template, kept, bounds, *rest, parents)
    return (None if problems else space), problems


def _wrong_name(coefficient: Coefficient, parents: Sequence[str]) -> str | None:
    """Return why a coefficient cannot have its name, which is a column of tables."""
    name = coefficient.name
    if NO_LINE.search(name + coefficient.model) or len(name) > _LONGEST_NAME:
        return f"{name!r:.200} is no line of text; give it another name"
    is_another = name in parents and name != coefficient.model
    if name in RESERVED or _OF_A_TASK.search(name) or is_another:
        what = "another model" if is_another else "a column of front.csv already"
        return f"{name!r} is {what}; give the weight another name, such as 'weight: w'"
    return None


def _coefficients(entries: list[ModelEntry]) -> tuple[Coefficient, ...]:
    places: dict[str, list[KeyPath]] = {}
    models: dict[str, str] = {}  # a name that weighs several models counts as the first
    labels = short_names([e.model for e in entries if e.weighted])
    for entry in entries:
        if not entry.weighted:
            continue
        label = labels[entry.model]
        if entry.weight is None:
            places.setdefault(label, []).append((*entry.key, "parameters", "weight"))
            models.setdefault(label, label)
        for key, name in leaves_of(entry.weight, entry.weight_key):
            if names_coefficient(name):
                places.setdefault(name, []).append(key)
                models.setdefault(name, label)
                if name in labels.values() and name != label:
                    models[name] = label  # which is refused
    return tuple(Coefficient(n, models[n], tuple(keys)) for n, keys in places.items())


def _identifiable(
    template: dict[str, Any],
    entries: list[ModelEntry],
    coefficients: tuple[Coefficient, ...],
) -> tuple[tuple[Coefficient, ...], Coefficient | None, Problem | None]:
    """Settle normalisation: a merge that depends only on ratios has one weight less.

    Sets ``normalize`` to false where the method normalises by default and the
    configuration does not set it; docs/architecture.md has the reason.
    """
    method = template["merge_method"]
    parameters = template.get("parameters") or {}
    switch = _BY_RATIO.get(method, "normalize")
    shares = method in _BY_RATIO
    known = {p.name: p for p in method_spec(template).shared_parameters}
    normalizes = "normalize" in known and known["normalize"].default
    if normalizes and not shares and switch not in parameters:
        template["parameters"] = {**parameters, "normalize": False}
    switched = [known[switch].validate(v) for v in settings_of(template, str(switch))]
    asked = (shares and switch not in parameters) or (switched and all(switched))
    weighted = [entry for entry in entries if entry.weighted]
    if not asked or not _only_ratios_count(weighted):
        return coefficients, None, None
    models = {e.model for e in weighted}
    lists = {e.key[:-1] for e in weighted}  # of shares, each of all models
    whole = not shares or len(weighted) == len(models) * len(lists)
    whole = whole and all(isinstance(e.weight, str | None) for e in weighted)
    owners = {c.model for c in coefficients}
    whole = whole and len(coefficients) == len(owners) == len(models)
    if len(models) > 1 and whole and (shares or len(models) == 2):
        return coefficients[:-1], coefficients[-1], None
    text = (
        f"with normalised weights {method!r} depends only on their ratio, so "
        f"{len(coefficients)} coefficients cannot be told apart; "
        f"{f'set {switch}: false, or ' if switch else ''}give one model a number as "
        "its weight"
    )
    key: KeyPath = ("merge_method",)
    if switch is not None and switch in parameters:
        key = ("parameters", switch)
    return coefficients, None, Problem(key, text)


def _only_ratios_count(entries: Iterable[ModelEntry]) -> bool:
    """Whether some list of models has no number as a weight, nor beside its names."""
    lists: dict[KeyPath, list[set[str]]] = {}  # the names in the weight of each model
    for entry in entries:
        names = {w for _, w in leaves_of(entry.weight) if names_coefficient(w)}
        names |= {entry.model} if entry.weight is None else set()
        lists.setdefault(entry.key[:-1], []).append(names)
    told = {n for names in lists.values() if not all(names) for n in chain(*names)}
    return any(all(keys) and told.isdisjoint(chain(*keys)) for keys in lists.values())


def _bounds(search: SearchSpec, names: list[str]) -> tuple[FloatArray, list[Problem]]:
    given = search.bounds
    if not isinstance(given, dict):
        given = dict.fromkeys(names, given)
    problems = [
        Problem(
            ("map", "search", "bounds", name),
            f"there is no coefficient {name!r}; {nearest(name, names)}",
        )
        for name in given
        if name not in names
    ]
    ends = [given.get(name, (0.0, 1.0)) for name in names]
    return np.array(ends, dtype=np.float64), problems


@dataclass(frozen=True, eq=False)
class WeightTable:
    """``weight(tensor, model) = constant + sum of slope * coefficient``."""

    constant: _Weights
    slopes: Mapping[str, _Weights]

    def of(
        self, tensor: str, models: Sequence[Any], coefficients: Mapping[str, float]
    ) -> list[float]:
        """Return the weight of each of ``models`` in one tensor."""
        weights = []
        for model in models:
            weight = self.constant[model][tensor]
            # In the order in which mergekit's interpolation and MergeSpace.config add,
            # so that the sum is the same to the last bit.
            for name, slopes in self.slopes.items():
                if slope := slopes[model].get(tensor):
                    weight += slope * coefficients[name]
            weights.append(weight)
        return weights


def weight_table(
    space: MergeSpace, model_config: PretrainedConfig, options: MergeOptions
) -> WeightTable:
    """Plan the merge at zero and once per coefficient.

    The slopes are planned with every fixed number at zero: differences of planned
    weights would differ from mergekit's weights by a rounding error.
    """
    zero = dict.fromkeys(space.names, 0.0)
    constant = _planned(space.config(zero), model_config, options)
    template = copy.deepcopy(dict(space.template))
    for entry in model_entries(template):
        if entry.weight is not None:
            for key, _ in leaves_of(entry.weight, entry.weight_key):
                put(template, key, 0.0)
    bare = replace(space, template=template)
    origin = _planned(bare.config(zero), model_config, options)
    slopes = {}
    for name in space.names:
        unit = _planned(bare.config({**zero, name: 1.0}), model_config, options)
        slopes[name] = {m: {t: w[t] - origin[m][t] for t in w} for m, w in unit.items()}
    LoaderCache().loaders.clear()  # planning opens the models' files
    return WeightTable(constant, slopes)


def _find_folder(model: ModelReference, *_: object, **__: object) -> str:
    """Find a folder offline, too: mergekit's own method asks the Hub what it holds."""
    assert model.lora is None, "LoRA not merged"  # as there
    path = model.model.path
    return path if os.path.isdir(path) else str(find_model(str(model.model)).folder)


ModelReference.local_path = _find_folder


def check_plan(space: MergeSpace, options: MergeOptions) -> list[Problem]:
    """Let mergekit plan the merge, which checks every parameter of every tensor."""
    coefficients = dict.fromkeys(space.names, 0.5)
    reference = next(iter(referenced_models(space.template)))
    try:
        for model in map(ModelReference.parse, models_with_adapter(space.template)):
            # Planning reads names alone. Those of the base do: to merge takes long.
            front = ModelReference(model=model.model)
            LoaderCache().loaders[model] = front.lazy_loader(options.transformers_cache)
        model_config = ModelReference.parse(reference).config(
            trust_remote_code=options.trust_remote_code
        )
        plan = _planned(space.config(coefficients), model_config, options)
        for c in space.coefficients:
            other = space.config({**coefficients, c.name: 0.25})
            if plan == _planned(other, model_config, options):
                text = f"no tensor has the weight {c.name!r}: its filter is in no name"
                text += ", another before it takes all, or there are too few layers"
                return [Problem(c.places[0], text)]
    except Exception as error:  # noqa: BLE001 - of any kind, by mergekit's planner
        text = f"mergekit cannot plan this: {errors.in_words(error)}"
        if "LoRA not merged" in text:  # it has no list of the tensors of such a model
            text += "; merge the adapters into their bases first"
        return [Problem(("merge_method",), text)]
    finally:
        LoaderCache().loaders.clear()
    return []


def _planned(
    config: MergeConfig, model_config: PretrainedConfig, options: MergeOptions
) -> _Weights:
    merge = MergeConfiguration.model_validate(config)
    LoaderCache().setup(options)
    architecture = get_architecture_info(merge, options)
    planner = MergePlanner(merge, architecture, options, model_config)
    weights: _Weights = {}
    for save in planner.plan_to_disk(out_path=""):
        task = save.arguments().get("tensor")
        if isinstance(task, ExecuteMergeMethodTask):
            for model, parameters in task.input_parameters.items():
                density, eps = (parameters.get(k, 0) for k in ("density", "epsilon"))
                if 0 < density < 1 and not 0 < density - eps <= density + eps < 1:
                    text = f"density {density:g} ± epsilon {eps:g} reaches 0 or 1"
                    raise ValueError(f"{text}; choose a smaller epsilon")
                if "weight" in parameters:
                    of_model = weights.setdefault(model, {})
                    of_model[task.output_weight.name] = parameters["weight"]
    return weights
