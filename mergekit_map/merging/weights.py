"""The weight of each model in each tensor, as a function of the coefficients.

mergekit computes it while it plans: filters select, gradients interpolate over the
layers. All weights are affine in the coefficients, so planning once per coefficient
suffices.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import transformers
from mergekit.architecture import get_architecture_info
from mergekit.common import ModelReference
from mergekit.config import MergeConfiguration
from mergekit.io.tasks import LoaderCache
from mergekit.merge_methods.task_adapter import ExecuteMergeMethodTask
from mergekit.options import MergeOptions
from mergekit.plan import MergePlanner
from pydantic import ValidationError

from mergekit_map import errors
from mergekit_map.config.problems import Problem, in_words
from mergekit_map.config.yaml_file import MergeConfig, put
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.validation import leaves_of, model_entries
from mergekit_map.models.references import models_with_adapter

_Weights = dict[ModelReference, dict[str, float]]  # model to tensor name to weight


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
    space: MergeSpace,
    model_config: transformers.PretrainedConfig,
    options: MergeOptions,
) -> WeightTable:
    """Plan the merge at zero and once per coefficient.

    The slopes are planned with every fixed number at zero: differences of planned
    weights would differ from mergekit's weights by a rounding error.
    """
    zero = dict.fromkeys(space.names, 0.0)
    constant = _planned(space.config(zero), model_config, options)
    bare = _without_numbers(space)
    origin = _planned(bare.config(zero), model_config, options)
    slopes = {}
    for name in space.names:
        unit = _planned(bare.config({**zero, name: 1.0}), model_config, options)
        slopes[name] = {
            model: {
                tensor: weights[tensor] - origin[model][tensor] for tensor in weights
            }
            for model, weights in unit.items()
        }
    LoaderCache().loaders.clear()  # planning opens the models' files
    return WeightTable(constant, slopes)


def check_plan(space: MergeSpace, options: MergeOptions) -> list[Problem]:
    """Let mergekit plan the merge, which checks every parameter of every tensor."""
    if models_with_adapter(space.template):
        return []  # planning would merge the adapters first, which takes long
    coefficients = dict.fromkeys(space.names, 0.5)
    reference = space.template.get("base_model") or next(
        entry.model for entry in model_entries(space.template)
    )
    try:
        model_config = ModelReference.parse(str(reference)).config(
            trust_remote_code=options.trust_remote_code
        )
        _planned(space.config(coefficients), model_config, options)
    except ValidationError as error:
        first = error.errors()[0]
        text = f"mergekit refuses a parameter: {in_words(first)}"
        return [Problem(("merge_method",), text)]
    except Exception as error:  # noqa: BLE001 - of any kind, by mergekit's planner
        text = f"mergekit cannot plan this: {errors.in_words(error)}"
        return [Problem(("merge_method",), text)]
    finally:
        LoaderCache().loaders.clear()
    return []


def _planned(
    config: MergeConfig,
    model_config: transformers.PretrainedConfig,
    options: MergeOptions,
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
                if "weight" in parameters:
                    of_model = weights.setdefault(model, {})
                    of_model[task.output_weight.name] = parameters["weight"]
    return weights


def _without_numbers(space: MergeSpace) -> MergeSpace:
    """Set every fixed number among the weights to zero."""
    template = copy.deepcopy(dict(space.template))
    for entry in model_entries(template):
        if entry.weight is not None:
            for key, _ in leaves_of(entry.weight, entry.weight_key):
                put(template, key, 0.0)
    return replace(space, template=template)
