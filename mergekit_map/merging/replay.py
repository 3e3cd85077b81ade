"""Merging one output tensor again with other weights, bit for bit as mergekit does.

A *replay* holds what weights do not change: the base, and deltas without the dropped
parameters. A large tensor is merged in blocks that fit in a CPU's cache. Only the sums
over the models could have other bits in a block than in the whole tensor: torch sums
groups of 1024 columns in the order of the models, and the columns that are left in
another order. So every block begins at a multiple of 1024, and the last block has at
least one whole group before the columns that are left (tests compare the bits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from mergekit import merge_methods
from mergekit.merge_methods.base import TensorGroup
from torch import Tensor

from mergekit_map.errors import EvaluationError

_GROUP = 1024  # columns
# Most entries of a block, columns times models
_BLOCK = 1 << 19  # 1 MB of bfloat16, 4 MB with all temporaries: in a CPU's cache
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
        group = self.with_tensors(torch.clone).group  # a method may work in place
        try:
            (merged,) = merge_methods.get(self.method)((group,), parameters=parameters)
        except ValueError as error:  # no direction is left, for example
            raise EvaluationError(f"{self.method} has no merge: {error}") from error
        target.copy_(merged)

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> MethodReplay:
        """Return a copy with each tensor replaced by ``change(tensor)``."""
        entries = [replace(e, tensor=change(e.tensor)) for e in self.group.entries]
        return replace(self, group=replace(self.group, entries=tuple(entries)))

    @property
    def n_bytes(self) -> int:
        """Return the size of the tensors."""
        return sum(entry.tensor.nbytes for entry in self.group.entries)


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
        """Write base + merged deltas into ``target``, contiguous, of the same shape."""
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

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> TaskVectorReplay:
        """Return a copy with each tensor replaced by ``change(tensor)``."""
        return replace(self, base=change(self.base), deltas=change(self.deltas))

    @property
    def n_bytes(self) -> int:
        """Return the size of the tensors."""
        return self.base.nbytes + self.deltas.nbytes


# An output tensor of a merge, ready to be merged again with one weight for each of its
# ``models``.
Replay: TypeAlias = TaskVectorReplay | MethodReplay


def _blocks(deltas: Tensor) -> Iterable[slice]:
    """Divide the columns of deltas (n, size) into blocks, which are merged in turn.

    Unless there is one block alone, the last has more than ``_GROUP`` columns.
    """
    n, size = deltas.shape
    if deltas.device.type == "cpu":
        entries = _BLOCK
    elif n < 3 or deltas.nbytes < 1 << 31:
        entries = _BLOCK_GPU
    else:  # beyond 2 GiB, CUDA sums three rows and more in another order
        entries = deltas.numel()  # one block
    columns = max(1, entries // n // _GROUP) * _GROUP
    starts = [*range(0, max(1, size - _GROUP), columns)]
    return map(slice, starts, [*starts[1:], size])


def _sign_consensus(weighted: Tensor) -> Tensor:
    """Return 1 where a delta (n, k) has the sign of the sum of all, else 0 (TIES)."""
    total = _sum(weighted)
    # +1 where the total is 0, as ``_sum`` returns no negative zero.
    elected_sign = torch.ones_like(total).copysign_(total)
    # In place, so 1.0 and 0.0: torch is slower with booleans.
    return (weighted * elected_sign).gt_(0)


def _total_weights(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum of the weights (n, 1), of elected deltas only with a mask.

    As it divides, 0 is replaced by 1, with mergekit's two rules for what is 0.
    """
    if mask is None:
        total = weights.sum(dim=0)
        return total.masked_fill_(total.abs() < 1e-8, 1)
    total = _sum(mask * weights)
    return total.add_(total.clone().eq_(0))  # faster than ``masked_fill_``


def _sum(rows: Tensor) -> Tensor:
    """Return ``rows.sum(dim=0)``, (n, k) to (k,), bit for bit, but faster."""
    if len(rows) == 2:
        return torch.add(*rows).add_(0)  # from zero, as a sum: no negative zero
    if rows.device.type != "cpu":
        return rows.sum(dim=0)
    # torch sums half precision in float32, too, and rounds in the end, but takes three
    # times as long. From the last group on, it adds in another order.
    total = rows.new_empty(rows.shape[1])
    last = max(0, len(total) // _GROUP - 1) * _GROUP
    dtype = torch.promote_types(rows.dtype, torch.float32)
    total[:last] = rows[:, :last].sum(dim=0, dtype=dtype)
    total[last:] = rows[:, last:].sum(dim=0)
    return total
