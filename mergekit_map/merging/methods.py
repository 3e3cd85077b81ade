"""The ``map_*`` merge methods: mergekit's own, split into two steps.

Preparing (task vectors, sparsification) is done once per tensor and does not depend on
the weights; replaying computes the merged tensor from weights, as often as needed. Both
steps use mergekit's operations in mergekit's order and dtype, so that a replay equals
the result of the built-in method, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import GroupMergeMethod, MergeMethodSpec, TensorGroup
from mergekit.merge_methods.generalized_task_arithmetic import (
    GeneralizedTaskArithmeticMerge,
)
from mergekit.sparsify import RescaleNorm, SparsificationMethod, sparsify
from torch import Tensor

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.merging.replay import MethodReplay, Replay, TaskVectorReplay
from mergekit_map.merging.validation import PREFIX, settings_of
from mergekit_map.utils.shutdown import check_interrupt

Prepare = Callable[[TensorGroup, dict[str, Any]], Replay]
Keep = Callable[[str, Replay], None]

_keep: ContextVar[Keep | None] = ContextVar("keep", default=None)


@contextmanager
def recording(keep: Keep) -> Iterator[None]:
    """Pass the replays of all tensors that ``map_*`` methods merge here to ``keep``."""
    token = _keep.set(keep)
    try:
        yield
    finally:
        _keep.reset(token)


@dataclass(frozen=True)
class MapMethod(GroupMergeMethod):  # type: ignore[misc]  # mergekit is untyped
    """A registered method that merges as the built-in does and can be recorded."""

    spec: MergeMethodSpec
    prepare: Prepare

    def merge_group(self, group: TensorGroup, /, **parameters: Any) -> Tensor:
        """Merge one tensor; inside ``recording()`` also keep its replay."""
        if not parameters["weight"]:
            unchanged: Tensor = group.base.tensor
            return unchanged
        replay = self.prepare(group, parameters)
        if keep := _keep.get():
            check_interrupt()  # mergekit merges one tensor after the other
            keep(group.metadata.name, replay)
        merged: Tensor = torch.empty_like(
            group.entries[0].tensor, memory_format=torch.contiguous_format
        )
        replay.write(list(parameters["weight"].values()), merged)
        return merged


def register_map_methods() -> None:
    """Register a ``map_*`` twin of every method with one weight per model."""
    for method in merge_methods.registered_methods():
        recordable_method(method.spec.name)


def recordable_method(name: str) -> str | None:
    """Return the name of a method's ``map_*`` twin, registered if necessary.

    None for methods without one ``weight`` per model, which have nothing to search.
    """
    if name.startswith(PREFIX):
        return name
    registered = {m.spec.name: m for m in merge_methods.registered_methods()}
    if (twin := PREFIX + name) in registered:
        return twin
    builtin = registered[name]
    if "weight" not in {p.name for p in builtin.spec.input_parameters}:
        return None
    prepare: Prepare = partial(MethodReplay, name)
    if isinstance(builtin, GeneralizedTaskArithmeticMerge):
        prepare = partial(_task_vectors, builtin)
    title = f"MAP {builtin.spec.pretty_name or name}"
    spec = replace(builtin.spec, name=twin, pretty_name=title)
    merge_methods.register(MapMethod(spec, prepare))
    return twin


def elects_signs(name: str) -> bool | None:
    """Whether a sum of task vectors elects signs; None for other methods."""
    method = merge_methods.get(name)
    if not isinstance(method, GeneralizedTaskArithmeticMerge):
        return None
    return method.consensus_method is not None


def drops_parts(merge: MergeConfig) -> bool:
    """Whether a sum of task vectors sets some of their elements to zero."""
    kind = merge_methods.get(merge["merge_method"]).sparsification_method
    if kind == SparsificationMethod.magnitude:
        return any(value != 1 for value in settings_of(merge, "density"))
    return kind is not None


def _task_vectors(
    builtin: GeneralizedTaskArithmeticMerge, group: TensorGroup, given: dict[str, Any]
) -> Replay:
    base = group.base.tensor
    deltas = base.new_empty((len(group.non_base), *base.shape))
    for index, entry in enumerate(group.non_base):
        delta = entry.tensor - base
        if builtin.sparsification_method:
            more = {k: given[k] for k in ("gamma", "epsilon") if k in given}
            delta = sparsify(
                delta,
                density=given["density"][entry.id],
                method=builtin.sparsification_method,
                rescale_norm=RescaleNorm.l1 if given["rescale"] else None,
                **{key: values[entry.id] for key, values in more.items()},
            )
        deltas[index] = delta
    return TaskVectorReplay(
        models=tuple(entry.id for entry in group.non_base),
        base=base.clone(),  # not a view of a file that is mapped into memory
        deltas=deltas,
        elects_signs=builtin.consensus_method is not None,
        normalize=given["normalize"],
        scale=given["lambda"],
    )
