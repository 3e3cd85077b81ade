"""The configuration file of mergekit-evolve, read and checked.

The schema is that of ``mergekit/evo`` in mergekit 0.1.5, which is not imported: it
needs ray, and is deprecated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mergekit_map.config import at_most
from mergekit_map.config.parsing import (
    Problem,
    raise_problems,
    repeated_keys,
    validated,
)
from mergekit_map.config.task_specs import Float, Int, Named
from mergekit_map.config.yaml_file import read_yaml

_TASK_VECTORS = {"task_arithmetic", "ties", "dare_ties"}


def read_evolve(path: Path) -> Evolve:
    """Read and check a file.

    Raises:
        ConfigError: with all problems of the file, located by line and key.
    """
    file = read_yaml(path)
    content = file.content
    # Part by part, so that each problem is told where it stands.
    outer, problems = validated(_File, content, ())
    problems += repeated_keys(file)
    raw = content.get("genome")
    genome, found = validated(Genome, raw if isinstance(raw, dict) else {}, ("genome",))
    problems += found if isinstance(raw, dict) else []
    listed = content.get("tasks")
    tasks: list[EvolveTask] = []
    for index, item in enumerate(listed if isinstance(listed, list) else ()):
        named = {"name": item} if isinstance(item, str) else item
        if isinstance(named, dict):
            task, found = validated(EvolveTask, named, ("tasks", index))
            problems += found
            tasks += [task] if task is not None else []
    if genome is not None:
        problems += _genome_problems(genome)
    problems += _task_problems(tasks)
    raise_problems(file, problems)
    return Evolve(genome, tasks, outer)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Genome(_Strict):
    """What is merged."""

    models: Annotated[list[Named], Field(min_length=1)]
    merge_method: Literal["linear", "task_arithmetic", "ties", "dare_ties", "slerp"]
    base_model: Named | None = None
    tokenizer_source: Named | None = None
    # Below 1 all layers are one group.
    layer_granularity: Annotated[Int, Field(ge=-1), at_most.LAYERS] = 0
    normalize: bool | None = None
    allow_negative_weights: bool = False
    filters: list[Named] | None = None
    smooth: bool = False

    @property
    def task_vectors(self) -> bool:
        """Whether differences to a base model are merged."""
        return self.merge_method in _TASK_VECTORS

    @property
    def merged(self) -> list[str]:
        """The models whose weight has an effect."""
        base = self.base_model if self.task_vectors else None
        return [model for model in self.models if model != base]


class EvolveTask(_Strict):
    """One term of the weighted sum that mergekit-evolve maximises."""

    name: Named
    weight: Float = 1.0
    metric: str = "acc,none"

    @field_validator("weight")
    @classmethod
    def _finite(cls, weight: float) -> float:
        if not math.isfinite(weight):
            raise ValueError(f"a finite number is required, got {weight}")
        return weight


class Settings(_Strict):
    """How all tasks are measured."""

    limit: Annotated[Int, Field(ge=1), at_most.DOCUMENTS] | None = None
    num_fewshot: Annotated[Int, Field(ge=0), at_most.EXAMPLES] | None = None
    shuffle: bool = False
    random_init: bool = False
    apply_chat_template: bool = True
    fewshot_as_multiturn: bool = True


class _File(Settings):
    genome: dict[str, Any]
    tasks: Annotated[list[str | dict[str, Any]], Field(min_length=1)]


@dataclass(frozen=True)
class Evolve:
    """The whole file."""

    genome: Genome
    tasks: Sequence[EvolveTask]
    settings: Settings


def _genome_problems(genome: Genome) -> Iterator[Problem]:
    for index, model in enumerate(genome.models):
        if model in genome.models[:index]:
            text = f"{model!r} stands twice; remove one of the two"
            yield Problem(("genome", "models", index), text)
    if genome.task_vectors and genome.base_model is None:
        text = f"{genome.merge_method!r} needs the key 'base_model'; add it"
        yield Problem(("genome",), text)
    if genome.merge_method == "slerp":
        for key, given in (("filters", genome.filters), ("smooth", genome.smooth)):
            if given:
                text = f"mergekit-evolve has no {key!r} for slerp; remove it"
                yield Problem(("genome", key), text)
    least = 1 if genome.task_vectors else 2
    if len(genome.merged) < least:
        text = (
            f"{genome.merge_method!r} needs {least} or more models beside the base "
            f"model, got {len(genome.merged)}"
        )
        yield Problem(("genome", "models"), text)


def _task_problems(tasks: Sequence[EvolveTask]) -> Iterator[Problem]:
    pairs = [(task.name, task.metric) for task in tasks]
    for index, (name, metric) in enumerate(pairs):
        if (name, metric) in pairs[:index]:
            text = f"{metric} of {name!r} stands twice; add up the weights of the two"
            yield Problem(("tasks", index), text)
    if tasks and not any(task.weight for task in tasks):
        yield Problem(("tasks",), "every weight is 0; give one task another")
