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
        if not self.plain or self.base.device.type != "cpu":
            return [slice(0, size)]
        # The last part has the elements that torch adds up in another order.
        cuts = [*range(0, max(1, size - _SMALL), _PART), size]
        return [slice(*ends) for ends in itertools.pairwise(cuts)]

    def write_part(self, weights: Sequence[float], target: Tensor, part: slice) -> None:
        """Write base + merged deltas into one of the ``parts`` of ``target``."""
        sliced = self.plain and orders_agree(
            len(self.models),
            self.deltas.dtype,
            self.deltas.device,
            torch.get_num_threads(),
        )
        self.write_in(weights, target, part, sliced=sliced)

    def write_in(
        self, weights: Sequence[float], target: Tensor, part: slice, *, sliced: bool
    ) -> None:
        """Write a part in slices, or as a whole as mergekit does."""
        base, out = self.base.reshape(-1)[part], target.view(-1)[part]
        deltas = self.deltas.reshape(len(self.models), -1)[:, part]
        same = out.dtype == base.dtype and out.device == base.device
        for piece, merged in self._merged(deltas, weights, sliced=sliced):
            if same:
                torch.add(base[piece], merged, out=out[piece])
            else:
                out[piece].copy_(base[piece] + merged)

    def _merged(
        self, deltas: Tensor, weights: Sequence[float], *, sliced: bool
    ) -> Iterator[tuple[slice, Tensor]]:
        """Merge deltas (n, k) slice by slice; each is overwritten by the next."""
        start, size = 0, deltas.shape[1]
        if sliced and (kernel := self._kernel(deltas, weights)).safe:
            # The last elements go mergekit's way, with one unit more than needed, so
            # that they lie in blocks as they do in the whole tensor.
            last = max(0, (size // UNIT - 1) * UNIT)
            for first in range(0, last, kernel.size):
                piece = slice(first, min(first + kernel.size, last))
                yield piece, kernel(deltas[:, piece])
            start = last
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
        merged = torch.empty_like(deltas[0])
        for first in range(0, len(merged), kernel.size):
            piece = slice(first, first + kernel.size)
            merged[piece] = kernel(deltas[:, piece])
        return merged

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

    It does where nothing overflows and torch adds up rows in the order that is known
    here. That is tried out with ``weights`` on the ends of this tensor, too.
    """
    n, dtype, device = len(replay.models), replay.deltas.dtype, replay.deltas.device
    exact = (
        replay.base.numel() >= _SMALL
        and known(replay.base.dtype)
        and 2.0**-20 < abs(replay.scale) < 2.0**20
        and small_enough(replay.deltas)
        and orders_agree(n, dtype, device, torch.get_num_threads())
        and _same_bits(replay, weights, _SAMPLE)
    )
    return dataclasses.replace(replay, plain=exact)


@cache
def orders_agree(
    rows: int,
    dtype: torch.dtype,
    device: torch.device,
    threads: int,  # noqa: ARG001  # torch divides the work among them
) -> bool:
    """Tell whether slices have mergekit's bits for numbers where the order tells."""
    generator = torch.Generator().manual_seed(rows)
    size = 2 * _SAMPLE + _SMALL - 1
    numbers = torch.randn(rows, size, generator=generator)
    least, most = (-14, 5) if dtype == torch.float16 else (-30, 30)
    exponents = torch.randint(least, most, (rows, size), generator=generator)
    numbers *= exponents.float().exp2()
    # What the other rows leave of a number that is added and taken away again.
    one, other = torch.rand(rows, size, generator=generator).argsort(dim=0)[[0, -1]]
    numbers.scatter_(0, other[None], -numbers.gather(0, one[None]))
    replay = TaskVectorReplay(
        models=tuple(range(rows)),
        base=torch.zeros(size, dtype=dtype, device=device),
        deltas=numbers.to(device, dtype),
        elect_signs=ConsensusMethod.sum,
        mask_dtype=dtype,
        normalize=True,
        scale=1,
        plain=False,
    )
    sums = dataclasses.replace(replay, elect_signs=None, normalize=False)
    return all(_same_bits(each, [1.0] * rows, size) for each in (replay, sums))


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
        for sliced in (True, False):
            target = torch.empty_like(part.base)
            everything = slice(0, target.numel())
            part.write_in(weights, target, everything, sliced=sliced)
            written.append(target.view(torch.uint8))
        if not torch.equal(*written):
            return False
    return True
