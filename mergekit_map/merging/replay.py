"""Merging a tensor again with other weights, bit for bit as mergekit does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from mergekit.merge_methods.base import MergeMethod, TensorGroup
from mergekit.merge_methods.generalized_task_arithmetic import get_mask
from torch import Tensor

if TYPE_CHECKING:
    from mergekit_map.merging.low_rank import LowRankReplay

Parameters: TypeAlias = Mapping[str, Any]  # of a method, as mergekit hands them over

# Elements handled at a time where slices are independent: the intermediate values then
# stay in the cache of a CPU.
_SLICE = 1 << 17

# torch adds up fewer rows than this one after the other, from zero. From here on the
# order depends on where an element lies in its tensor.
_SEQUENTIAL_ROWS = 4
# Below this size torch may take a reduction for one along a row.
_SMALL = 256


@dataclass(frozen=True, eq=False)
class MethodReplay:
    """A tensor of any method: its inputs, handed to the method again."""

    method: MergeMethod
    group: TensorGroup
    parameters: Parameters
    plain: bool = False

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
    plain: bool  # whether the shortcuts of ``_merge_plain`` are exact here

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged deltas into ``target`` of the same shape."""
        base, out = self.base.reshape(-1), target.view(-1)
        deltas = self.deltas.view(len(self.models), -1)
        # mergekit rounds the weights to the dtype of the merge.
        column = torch.tensor(weights, dtype=deltas.dtype, device=deltas.device)
        column = column[:, None]
        same = out.dtype == base.dtype and out.device == base.device
        step = _SLICE if self.plain else max(1, base.numel())
        for start in range(0, base.numel(), step):
            part = slice(start, start + step)
            merged = self.merge_deltas(deltas[:, part], column)
            if same:
                torch.add(base[part], merged, out=out[part])
            else:
                out[part].copy_(base[part] + merged)

    def merge_deltas(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Merge a part of the deltas, (n, k) with weights (n, 1) to (k,)."""
        weighted = deltas * weights
        if self.plain:
            return _merge_plain(weighted, elect_signs=bool(self.elect_signs))
        return self._merge(weighted, weights)

    def _merge(self, weighted: Tensor, weights: Tensor) -> Tensor:
        """Elect signs, add up and normalise as mergekit does; (n, k) to (k,)."""
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


# An output tensor of a merge, ready to be merged again with one weight for each of its
# ``models``. ``plain`` ones work on small slices and gain nothing from torch's threads.
Replay: TypeAlias = "TaskVectorReplay | MethodReplay | LowRankReplay"


def allows_shortcuts(base: Tensor, deltas: Tensor) -> bool:
    """Tell whether ``_merge_plain`` gives mergekit's bits for these tensors.

    It does on a CPU, for up to three models, without infinities or NaN. It may differ
    in the sign of a zero, which only a negative zero in the base would let through.
    """
    return bool(
        base.device.type == "cpu"
        and base.dtype in {torch.float32, torch.bfloat16}
        and base.numel() >= _SMALL
        and len(deltas) < _SEQUENTIAL_ROWS
        and torch.isfinite(deltas).all()
        and not (torch.signbit(base) & (base == 0)).any()
    )


def _merge_plain(weighted: Tensor, *, elect_signs: bool) -> Tensor:
    """Elect signs and add up, in few passes; overwrites (n, k), returns (k,).

    An element is kept where its sign is that of the sum over the models. Turned by that
    sign, those are the positive ones; turning by 1 or -1 is exact, and rounding is
    symmetric, so the sum over what is kept has mergekit's bits.
    """
    if not elect_signs:
        return _add_rows(weighted)
    sign = torch.copysign(weighted.new_ones(()), _add_rows(weighted))
    weighted *= sign
    weighted.clamp_(min=0)
    return _add_rows(weighted).mul_(sign)


def _add_rows(rows: Tensor) -> Tensor:
    """Add up (n, k) to (k,) as ``rows.sum(dim=0)`` does, many times faster on a CPU.

    torch adds bfloat16 in float32 and rounds once; so does a single addition.
    """
    if len(rows) == 1:
        return rows[0].clone()
    if len(rows) == 2:
        return rows[0] + rows[1]
    total = rows[0].float() + rows[1]
    for row in rows[2:]:
        total += row
    return total.to(rows.dtype)
