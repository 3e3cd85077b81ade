"""Merging parts of a tensor in few passes, with the bits of mergekit's operations.

torch adds up rows on a CPU several times slower than it pools them, and its elections
of signs compare, convert and multiply in many passes over the whole tensor. Here a
slice stays in the cache, rows are added by pooling (in float32, one after the other,
from zero, rounded once: so does ``sum(dim=0)`` for fewer than 16 rows, but for the last
elements of a tensor), and signs are bits of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

# Parts start and end at multiples of this. Within its blocks of up to 256 elements (by
# the width of a CPU's vectors) torch adds up rows in the same order everywhere.
UNIT = 1024

# Elements of all rows handled at a time on a CPU: they stay in its caches.
# Accelerators need more to be busy.
_CACHED = 1 << 20
_BUSY = 1 << 27

_BITS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}

# How large deltas and the sum of absolute weights may be, so that nothing overflows.
_LARGEST = {
    torch.float32: (2.0**60, 2.0**60),
    torch.bfloat16: (2.0**60, 2.0**60),
    torch.float16: (2.0**6, 2.0**8),
}


def known(dtype: torch.dtype) -> bool:
    """Tell whether tensors of this type can be merged here."""
    return dtype in _BITS


def small_enough(deltas: Tensor) -> bool:
    """Tell whether all deltas are finite and far from overflowing."""
    least, largest = deltas.aminmax()
    bound = _LARGEST[deltas.dtype][0]
    return bool(least >= -bound) and bool(largest <= bound)  # False for NaN


def negative_zeros(tensor: Tensor) -> bool:
    """Tell whether a tensor has a zero whose sign is negative."""
    bits = _BITS[tensor.dtype]
    return int(tensor.reshape(-1).view(bits).min()) == torch.iinfo(bits).min


def step(rows: int, device: torch.device) -> int:
    """Give the number of elements to merge at a time."""
    elements = _CACHED if device.type == "cpu" else _BUSY
    return max(elements // rows // UNIT, 16) * UNIT


@dataclass(frozen=True, eq=False)
class Kernel:
    """Merges parts of weighted, prepared deltas with one set of weights."""

    weights: Sequence[float]
    dtype: torch.dtype
    device: torch.device
    elect_signs: Any  # mergekit's consensus method, or None
    normalize: bool
    scale: float  # not zero
    signed_zeros: bool  # whether zeros need mergekit's sign, which is seen beside -0
    size: int  # elements of the largest part

    @property
    def safe(self) -> bool:
        """Tell whether these weights keep everything far from overflowing."""
        return sum(abs(w) for w in self.weights) <= _LARGEST[self.dtype][1]

    def __call__(self, deltas: Tensor) -> Tensor:
        """Merge (n, k) to (k,), which the next call overwrites."""
        n, k = deltas.shape
        rows = self._rows[: n * k].view(n, k)
        torch.mul(deltas, self._column, out=rows)
        if self.elect_signs:
            return self._elect(rows)
        merged = _add_rows(rows, self._total[:k])
        if self.signed_zeros:
            merged += 0  # as mergekit does, in adding up from zero
        if self.normalize:
            merged /= self._divisor
        if self.scale != 1:
            merged *= self.scale
        return merged

    def _elect(self, rows: Tensor) -> Tensor:
        """Elect signs, add up what has them, normalise; overwrites (n, k).

        An element is kept where its sign is that of the sum over the models. Turned by
        that sign, those are the positive ones. Rounding is symmetric, so what is added
        up and turned back has mergekit's bits.
        """
        k = rows.shape[1]
        bits, sign = rows.view(_BITS[self.dtype]), self._sign[:k]
        voters = rows.sign() if self.elect_signs == "count" else rows
        total = _add_rows(voters, self._total[:k])
        torch.bitwise_and(total.view(sign.dtype), self._sign_bit, out=sign)
        bits.bitwise_xor_(sign).clamp_(min=0)
        merged = _add_rows(rows, self._total[:k])
        if self.signed_zeros:
            sign *= merged.view(sign.dtype).clamp(max=1)  # does not turn a zero
        if self.normalize:
            if len(rows) == 1:
                merged = self._total[:k].copy_(merged)
            bits.clamp_(max=1).mul_(self._column.view(bits.dtype))
            divisor = _add_rows(rows, self._kept[:k])
            merged /= self._without_zeros(divisor)
        if self.scale != 1:
            merged *= self.scale
        merged.view(sign.dtype).bitwise_xor_(sign)
        return merged

    def _without_zeros(self, divisor: Tensor) -> Tensor:
        """Replace zeros by 1, in place, or by what gives the same quotients."""
        bits = divisor.view(_BITS[self.dtype])
        if self._least is not None:
            bits.clamp_(min=self._least)
            return divisor
        one = int(divisor.new_ones(1).view(bits.dtype))
        return bits.add_(bits.abs().clamp_(max=1).sub_(1).mul_(-one)).view(self.dtype)

    @cached_property
    def _column(self) -> Tensor:
        # mergekit rounds the weights to the dtype of the merge.
        weights = torch.tensor(self.weights, dtype=self.dtype, device=self.device)
        return weights[:, None]

    @cached_property
    def _divisor(self) -> Tensor:
        divisor = self._column.sum(dim=0)
        divisor[divisor.abs() < 1e-8] = 1
        return divisor

    @cached_property
    def _least(self) -> int | None:
        """Give the bits of the least weight where all are positive.

        No divisor is less then but zero, where nothing is kept and any divides it.
        """
        least = self._column.min()[None]
        if not least > 0:
            return None
        return int(least.view(_BITS[self.dtype]))

    @cached_property
    def _sign_bit(self) -> int:
        return int(torch.iinfo(_BITS[self.dtype]).min)

    @cached_property
    def _rows(self) -> Tensor:
        return self._empty(len(self.weights) * self.size)

    @cached_property
    def _total(self) -> Tensor:
        return self._empty(self.size)

    @cached_property
    def _kept(self) -> Tensor:
        return self._empty(self.size)

    @cached_property
    def _sign(self) -> Tensor:
        return self._empty(self.size).view(_BITS[self.dtype])

    def _empty(self, size: int) -> Tensor:
        return torch.empty(size, dtype=self.dtype, device=self.device)


def _add_rows(rows: Tensor, out: Tensor) -> Tensor:
    """Add up (n, k) to (k,), in ``out`` unless there is one row only.

    torch adds two numbers of half precision in float32 and rounds once.
    """
    n, k = rows.shape
    if n == 1:
        return rows[0]
    if n == 2:
        return torch.add(rows[0], rows[1], out=out)
    # An image of n x w points, of c numbers each.
    c = UNIT if k % UNIT == 0 else k
    image = rows.view(1, n, k // c, c).permute(0, 3, 1, 2)
    torch.nn.functional.avg_pool2d(  # type: ignore[call-arg]
        image,
        kernel_size=(n, 1),
        divisor_override=1,
        out=out.view(1, 1, k // c, c).permute(0, 3, 1, 2),
    )
    return out
