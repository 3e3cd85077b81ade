"""Merging one output tensor again with other weights, bit for bit as mergekit does.

A *replay* holds what weights do not change: the base, and deltas without the dropped
parameters. A large tensor is merged in blocks that fit in a CPU's cache. All operations
are elementwise but the sums over the models, which torch computes in float32, in the
order of the models, and rounds once. torch sums only the last entries of a tensor,
fewer than 1024, in another order: so blocks begin at multiples of 1024, and the last is
no shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from torch import Tensor

from mergekit_map.errors import EvaluationError

_UNIT = 1024
_BLOCK = 1 << 19  # entries of all models in a block: with what is computed, 4 MB or so
_BLOCK_GPU = 1 << 26  # an accelerator is faster with more, but has less memory


@dataclass(frozen=True, eq=False)
class MethodReplay:
    """A tensor of any method: its inputs, to run the method again."""

    method: str
    group: TensorGroup
    parameters: Mapping[str, Any]  # as mergekit hands them over

    @property
    def models(self) -> Sequence[Any]:
        """Return the models that have a weight, in mergekit's order."""
        return tuple(self.parameters["weight"])

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Run the method with other weights and copy its result into ``target``."""
        weight = dict(zip(self.models, weights, strict=True))
        parameters = {**self.parameters, "weight": weight}
        group = with_tensors(self.group, torch.clone)  # a method may work in place
        try:
            (merged,) = merge_methods.get(self.method)((group,), parameters=parameters)
        except ValueError as error:  # no direction is left, for example
            raise EvaluationError(f"{self.method} has no merge: {error}") from error
        target.copy_(merged)


@dataclass(frozen=True, eq=False)
class TaskVectorReplay:
    """A tensor to merge again by task arithmetic and its kin: base plus deltas."""

    models: tuple[Any, ...]
    base: Tensor  # (*shape)
    deltas: Tensor  # (len(models), *shape), sparsified once, not weighted
    elects_signs: bool
    normalize: bool
    scale: float  # mergekit's ``lambda``

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged deltas into ``target`` of the same shape, in blocks."""
        base, out = self.base.reshape(-1), target.view(-1)
        deltas = self.deltas.reshape(len(self.models), -1)
        weight_column = deltas.new_tensor(weights)[:, None]
        for block in _blocks(deltas):
            merged = self.merge_deltas(deltas[:, block], weight_column)
            out[block] = base[block] + merged

    def merge_deltas(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Merge deltas (n, k) with weights (n, 1) into (k,), as mergekit does."""
        weighted = deltas * weights
        mask = None
        if self.elects_signs:
            mask = _sign_consensus(weighted)
            weighted *= mask
        merged = _sum(weighted)
        if self.normalize:
            merged /= _total_weights(weights, mask)
        if self.scale != 1:
            merged *= self.scale
        return merged


# An output tensor of a merge, ready to be merged again with one weight for each of its
# ``models``.
Replay: TypeAlias = TaskVectorReplay | MethodReplay


def with_tensors(content: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return tuples and dataclasses, such as replays, with their tensors changed."""
    if isinstance(content, Tensor):
        return change(content)
    if isinstance(content, tuple):
        return tuple(with_tensors(item, change) for item in content)
    if is_dataclass(content) and not isinstance(content, type):
        parts = {f.name: getattr(content, f.name) for f in fields(content)}
        changed = {name: with_tensors(part, change) for name, part in parts.items()}
        return replace(content, **changed)
    return content


def tensor_bytes(replay: Replay) -> int:
    """Return the size of a replay's tensors."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    with_tensors(replay, note)
    return sum(sizes)


def _blocks(deltas: Tensor) -> Iterable[slice]:
    """Divide the columns of deltas (n, size) into blocks, which are merged in turn.

    They begin where torch sums as in the whole tensor, so that no bit differs. A rest
    of at most ``_UNIT`` columns belongs to the block before it.
    """
    n, size = deltas.shape
    if deltas.device.type == "cpu":
        entries = _BLOCK
    elif n < 3 or deltas.nbytes < 1 << 31:
        entries = _BLOCK_GPU
    else:  # beyond 2 GiB, CUDA sums three rows and more in another order
        entries = deltas.numel()  # one block
    length = max(_UNIT, entries // n // _UNIT * _UNIT)
    starts = [*range(0, max(1, size - _UNIT), length)]
    return map(slice, starts, [*starts[1:], size])


def _sign_consensus(weighted: Tensor) -> Tensor:
    """Return 1 where a delta (n, k) has the sign of the sum of all, else 0 (TIES)."""
    total = _sum(weighted)
    # +1 where the total is 0, as ``_sum`` returns no negative zero.
    elected_sign = torch.ones_like(total).copysign_(total)
    # In place, so 1.0 and 0.0: torch multiplies booleans more slowly.
    return weighted.sign().eq_(elected_sign)


def _total_weights(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Sum the weights (n, 1), of elected deltas only with a mask; 1 instead of 0."""
    if mask is None:
        total = weights.sum(dim=0)
        return total.masked_fill_(total.abs() < 1e-8, 1)  # as mergekit has it
    total = _sum(mask * weights)
    return total.masked_fill_(total == 0, 1)


def _sum(rows: Tensor) -> Tensor:
    """Return ``rows.sum(dim=0)``, (n, k) to (k,), bit for bit; two rows faster."""
    if len(rows) == 2:
        return torch.add(*rows).add_(0)  # from zero, as a sum: no negative zero
    return rows.sum(dim=0)
