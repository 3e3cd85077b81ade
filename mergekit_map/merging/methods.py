"""The ``map_*`` merge methods: mergekit's own, in two steps that can be taken apart.

Preparing (task vectors, sparsification) is done once per tensor and does not depend on
the weights; replaying turns weights into the merged tensor, as often as asked. Both
steps use mergekit's operations in mergekit's order and dtype, so that what is replayed
equals what the built-in method writes, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import (
    GroupMergeMethod,
    MergeMethod,
    MergeMethodSpec,
    TensorGroup,
)
from mergekit.merge_methods.generalized_task_arithmetic import (
    GeneralizedTaskArithmeticMerge,
    get_mask,
)
from mergekit.sparsify import RescaleNorm, sparsify
from torch import Tensor

PREFIX = "map_"

TASK_VECTOR_METHODS = (
    "task_arithmetic",
    "ties",
    "dare_linear",
    "dare_ties",
    "della",
    "della_linear",
    "breadcrumbs",
    "breadcrumbs_ties",
)

# Elements handled at a time: the intermediate values of a slice stay in the cache of a
# CPU, while a GPU wants few launches and has the memory for large slices.
_CPU_SLICE = 1 << 17
_GPU_SLICE = 1 << 25


class Replay(Protocol):
    """One output tensor of a merge, ready to be merged again with other weights."""

    @property
    def models(self) -> Sequence[Any]:
        """Give the models whose weights are wanted, in this order."""
        ...

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Merge with one weight per model and write into ``target``, casting."""
        ...


@dataclass(frozen=True, eq=False)
class TaskVectorReplay:
    """A tensor of the task-arithmetic family: base plus weighted, prepared deltas."""

    models: tuple[Any, ...]
    base: Tensor  # (*shape)
    deltas: Tensor  # (len(models), *shape), sparsified, not weighted
    elect_signs: Any  # mergekit's consensus method, or None
    mask_dtype: torch.dtype
    normalize: bool
    scale: float  # mergekit's ``lambda``

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged deltas into ``target`` of the same shape."""
        count = len(self.models)
        base, out = self.base.reshape(-1), target.view(-1)
        deltas = self.deltas.view(count, -1)
        # mergekit rounds the weights to the dtype of the merge.
        column = torch.tensor(weights, dtype=deltas.dtype, device=deltas.device)[
            :, None
        ]
        step = _CPU_SLICE if base.device.type == "cpu" else _GPU_SLICE
        for start in range(0, base.numel(), step):
            part = slice(start, start + step)
            merged = self._merge_deltas(deltas[:, part], column)
            if out.dtype == base.dtype and out.device == base.device:
                torch.add(base[part], merged, out=out[part])
            else:
                out[part].copy_(base[part] + merged)

    def _merge_deltas(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Weigh, elect signs, add up and normalise; (n, k) and (n, 1) to (k,)."""
        weighted = deltas * weights
        merged: Tensor
        if self.elect_signs:
            mask = get_mask(
                weighted, method=self.elect_signs, mask_dtype=self.mask_dtype
            )
            merged = (weighted * mask).sum(dim=0)
            if self.normalize:
                divisor = (weights * mask).sum(dim=0)
                divisor[divisor == 0] = 1
        else:
            merged = weighted.sum(dim=0)
            if self.normalize:
                divisor = weights.sum(dim=0)
                divisor[divisor.abs() < 1e-8] = 1
        if self.normalize:
            merged /= divisor
        if self.scale != 1:
            merged *= self.scale
        return merged


@dataclass(frozen=True, eq=False)
class MethodReplay:
    """A tensor of any other method: its inputs, handed to the method again."""

    method: MergeMethod
    group: TensorGroup
    parameters: Mapping[str, Any]

    @property
    def models(self) -> Sequence[Any]:
        """Give the models that have a weight, in mergekit's order."""
        return tuple(self.parameters["weight"])

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Run the method with other weights and copy its result into ``target``."""
        weight = dict(zip(self.models, weights, strict=True))
        (merged,) = self.method(
            (self.group,), parameters={**self.parameters, "weight": weight}
        )
        target.copy_(merged)


Prepare = Callable[[TensorGroup, Mapping[str, Any]], Replay]

_recorded: ContextVar[dict[str, Replay] | None] = ContextVar("recorded", default=None)


@contextmanager
def recording() -> Iterator[dict[str, Replay]]:
    """Collect what the ``map_*`` methods prepare meanwhile, by tensor name."""
    replays: dict[str, Replay] = {}
    token = _recorded.set(replays)
    try:
        yield replays
    finally:
        _recorded.reset(token)


@dataclass(frozen=True)
class MapMethod(GroupMergeMethod):  # type: ignore[misc]  # mergekit is untyped
    """A registered method that merges as the built-in does and can be recorded."""

    spec: MergeMethodSpec
    prepare: Prepare

    def merge_group(self, group: TensorGroup, /, **parameters: Any) -> Tensor:
        """Merge one tensor; inside ``recording()`` also keep how to do it again."""
        if not parameters["weight"]:
            unchanged: Tensor = group.base.tensor
            return unchanged
        replay = self.prepare(group, parameters)
        recorded = _recorded.get()
        if recorded is not None:
            recorded[group.metadata.name] = replay
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
    """Name the ``map_*`` twin of a method, registering it at need.

    None for methods without one ``weight`` per model, which have nothing to search.
    """
    if name.startswith(PREFIX):
        return name
    registered = {m.spec.name: m for m in merge_methods.registered_methods()}
    twin = PREFIX + name
    if twin in registered:
        return twin
    builtin = registered[name]
    if "weight" not in {p.name for p in builtin.spec.input_parameters}:
        return None
    if isinstance(builtin, GeneralizedTaskArithmeticMerge):
        prepare = _task_vector_preparation(builtin)
    else:
        prepare = _method_preparation(builtin)
    spec = replace(
        builtin.spec,
        name=twin,
        pretty_name=f"MAP {builtin.spec.pretty_name or name}",
    )
    merge_methods.register(MapMethod(spec, prepare))
    return twin


def builtin_method(name: str) -> str:
    """Name the stock method that a ``map_*`` method stands for."""
    return name.removeprefix(PREFIX)


def _task_vector_preparation(builtin: GeneralizedTaskArithmeticMerge) -> Prepare:
    def prepare(group: TensorGroup, parameters: Mapping[str, Any]) -> Replay:
        base = group.base.tensor
        deltas = base.new_empty((len(group.non_base), *base.shape))
        for index, entry in enumerate(group.non_base):
            delta = entry.tensor - base
            if builtin.sparsification_method:
                delta = _sparsified(builtin, delta, entry.id, parameters)
            deltas[index] = delta
        return TaskVectorReplay(
            models=tuple(entry.id for entry in group.non_base),
            base=base,
            deltas=deltas,
            elect_signs=builtin.consensus_method,
            mask_dtype=torch.int8 if parameters["int8_mask"] else base.dtype,
            normalize=parameters["normalize"],
            scale=parameters["lambda"],
        )

    return prepare


def _sparsified(
    builtin: GeneralizedTaskArithmeticMerge,
    delta: Tensor,
    model: Any,
    parameters: Mapping[str, Any],
) -> Tensor:
    extra = {k: parameters[k][model] for k in ("gamma", "epsilon") if k in parameters}
    result: Tensor = sparsify(
        delta,
        density=parameters["density"][model],
        method=builtin.sparsification_method,
        rescale_norm=RescaleNorm.l1 if parameters["rescale"] else None,
        **extra,
    )
    return result


def _method_preparation(builtin: MergeMethod) -> Prepare:
    def prepare(group: TensorGroup, parameters: Mapping[str, Any]) -> Replay:
        return MethodReplay(builtin, group, parameters)

    return prepare
