"""Merging a tensor again with other weights, bit for bit as mergekit does it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from mergekit.merge_methods.base import MergeMethod, TensorGroup
from mergekit.merge_methods.generalized_task_arithmetic import (
    ConsensusMethod,
    get_mask,
)
from torch import Tensor

from mergekit_map.merging.kernels import (
    UNIT,
    Kernel,
    known,
    negative_zeros,
    small_enough,
    step,
)

if TYPE_CHECKING:
    from mergekit_map.merging.low_rank import LowRankReplay

Parameters: TypeAlias = Mapping[str, Any]  # of a method, as mergekit hands them over

# Smaller tensors are merged as mergekit does it: nothing is gained.
_SMALL = 8 * UNIT
# Elements of a part that a thread writes by itself.
_PART = 4096 * UNIT
# Elements at either end of a tensor that are merged in both ways to compare them.
_SAMPLE = 32 * UNIT


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
    plain: bool  # whether merging it in slices has mergekit's bits

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged deltas into ``target`` of the same shape."""
        self.write_part(weights, target, slice(0, self.base.numel()))

    def parts(self) -> list[slice]:
        """Divide the elements into parts that may be written by themselves."""
        size = self.base.numel()
        if not self.plain:
            return [slice(0, size)]
        # The last part has the elements that torch adds up in another order.
        cuts = [*range(0, max(1, size - _SMALL), _PART), size]
        return [slice(*ends) for ends in itertools.pairwise(cuts)]

    def write_part(self, weights: Sequence[float], target: Tensor, part: slice) -> None:
        """Write base + merged deltas into one of the ``parts`` of ``target``."""
        base, out = self.base.reshape(-1)[part], target.view(-1)[part]
        deltas = self.deltas.view(len(self.models), -1)[:, part]
        same = out.dtype == base.dtype and out.device == base.device
        for piece, merged in self._merged(deltas, weights):
            if same:
                torch.add(base[piece], merged, out=out[piece])
            else:
                out[piece].copy_(base[piece] + merged)

    def _merged(
        self, deltas: Tensor, weights: Sequence[float]
    ) -> Iterator[tuple[slice, Tensor]]:
        """Merge deltas (n, k) slice by slice; each is overwritten by the next."""
        start, size = 0, deltas.shape[1]
        if self.plain and (kernel := self._kernel(deltas, weights)).safe:
            # The last elements go mergekit's way, with one unit more than needed, so
            # that they lie in blocks as they do in the whole tensor.
            last = (size // UNIT - 1) * UNIT
            for start in range(0, last, kernel.size):
                piece = slice(start, min(start + kernel.size, last))
                yield piece, kernel(deltas[:, piece])
            start = max(0, last)
        column = deltas.new_tensor(weights)[:, None]
        yield slice(start, size), self._merge(deltas[:, start:] * column, column)

    def _kernel(self, deltas: Tensor, weights: Sequence[float]) -> Kernel:
        return Kernel(
            weights=weights,
            dtype=deltas.dtype,
            device=deltas.device,
            elect_signs=self.elect_signs,
            normalize=self.normalize,
            scale=self.scale,
            signed_zeros=self._signed_zeros,
            size=min(deltas.shape[1], step(len(deltas), deltas.device)),
        )

    @cached_property
    def _signed_zeros(self) -> bool:
        return negative_zeros(self.base)

    def merge_deltas(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Merge a part of the deltas, (n, k) with weights (n, 1) to (k,)."""
        if not self.plain:
            return self._merge(deltas * weights, weights)
        kernel = self._kernel(deltas, weights[:, 0].tolist())
        slices = [kernel(part).clone() for part in deltas.split(kernel.size, dim=1)]
        return torch.cat(slices)

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


def in_slices(replay: TaskVectorReplay, weights: Sequence[float]) -> TaskVectorReplay:
    """Let a tensor be merged in slices if that gives mergekit's bits, as it was.

    It does where nothing overflows, if torch adds up rows in the order that is known
    here; that is tried out on this machine, and then with ``weights`` on the ends of
    this tensor.
    """
    base, deltas = replay.base, replay.deltas
    threads = torch.get_num_threads()
    exact = (
        base.numel() >= _SMALL
        and known(base.dtype)
        and 2.0**-20 < abs(replay.scale) < 2.0**20
        and small_enough(deltas)
        and _orders_agree(len(deltas), base.dtype, base.device, threads)
    )
    sliced = dataclasses.replace(replay, plain=True)
    return sliced if exact and _same_bits(sliced, weights, _SAMPLE) else replay


@cache
def _orders_agree(
    rows: int,
    dtype: torch.dtype,
    device: torch.device,
    threads: int,  # noqa: ARG001  # torch divides the work among them
) -> bool:
    """Tell whether slices have mergekit's bits for numbers where each order tells."""
    generator = torch.Generator().manual_seed(rows)
    size = 2 * _SAMPLE + _SMALL - 1
    exponents = torch.randint(-9, 9, (rows, size), generator=generator)
    deltas = torch.randn(rows, size, generator=generator) * torch.exp2(exponents / 2)
    replay = TaskVectorReplay(
        models=tuple(range(rows)),
        base=torch.zeros(size, dtype=dtype, device=device),
        deltas=deltas.to(device, dtype),
        elect_signs=ConsensusMethod.sum,
        mask_dtype=dtype,
        normalize=True,
        scale=1,
        plain=True,
    )
    weights = torch.randn(rows, generator=generator).tolist()
    sums = dataclasses.replace(replay, elect_signs=None, normalize=False)
    return all(_same_bits(each, weights, size) for each in (replay, sums))


def _same_bits(replay: TaskVectorReplay, weights: Sequence[float], sample: int) -> bool:
    """Compare both ways of merging, on that many elements at either end."""
    size, n = replay.base.numel(), len(replay.models)
    if size <= 2 * sample or replay.base.device.type != "cpu":
        ends = [slice(0, size)]
    else:
        ends = [slice(0, sample), slice(size - sample - size % UNIT, size)]
    for end in ends:
        part = dataclasses.replace(
            replay,
            base=replay.base.reshape(-1)[end],
            deltas=replay.deltas.view(n, -1)[:, end].contiguous(),
        )
        written = []
        for plain in (True, False):
            target = torch.empty_like(part.base)
            dataclasses.replace(part, plain=plain).write(weights, target)
            written.append(target.view(torch.uint8))
        if not torch.equal(*written):
            return False
    return True
