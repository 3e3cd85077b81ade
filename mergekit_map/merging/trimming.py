"""Sparsifying task vectors by magnitude without sorting them, with mergekit's bits.

mergekit sorts all magnitudes and keeps the first. Which of equal ones come first is up
to torch's sort, and in half precision there always are equal ones at the threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from mergekit.sparsify import (
    RescaleNorm,
    SparsificationMethod,
    rescaled_masked_tensor,
    sparsify,
)
from torch import Tensor

from mergekit_map.merging.quicksort import (
    Keys,
    Mask,
    before_by_position,
    before_by_quicksort,
)

_Before: TypeAlias = Callable[[Keys, int], Mask | None]

_BITS = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}

_SMALL = 4096  # nothing is gained below

# Sizes of numbers that are sorted to find out how, and how many different ones.
_TRIED = ((20, 3), (1000, 40), (5000, 5000), (40_000, 7), (150_000, 3000))


def sparsified(
    delta: Tensor,
    density: float,
    method: SparsificationMethod,
    rescale_norm: RescaleNorm | None,
    **more: float,
) -> Tensor:
    """Sparsify as mergekit's ``sparsify`` does, with the same bits."""
    mask = None
    size = delta.numel()
    if size >= _SMALL and delta.device.type == "cpu" and 0 < density < 1:
        kept = int(density * size)
        if method == SparsificationMethod.magnitude:
            mask = _ranks(delta, 0, max(1, kept), descending=True)
        elif method == SparsificationMethod.magnitude_outliers:
            first = max(0, size - kept - int(more["gamma"] * size))
            mask = _ranks(delta, first, first + kept, descending=False)
    if mask is None:
        sparse: Tensor = sparsify(
            delta, density=density, method=method, rescale_norm=rescale_norm, **more
        )
        return sparse
    mask = mask.view_as(delta).to(delta.dtype)
    masked: Tensor = rescaled_masked_tensor(delta, mask, rescale_norm)
    return masked


def _ranks(delta: Tensor, first: int, last: int, *, descending: bool) -> Tensor | None:
    """Mark what torch sorts by magnitude to the ranks from ``first`` up to ``last``.

    None where that is not known: an unknown sort, numbers that are not finite.
    """
    before = _order_of_equals()
    if before is None or delta.dtype not in _BITS:
        return None
    bits = delta.abs().reshape(-1).view(_BITS[delta.dtype])
    infinite = delta.new_tensor([torch.inf]).view(bits.dtype)
    if bits.max() >= infinite:
        return None
    keys = bits.neg_().numpy() if descending else bits.numpy()
    through = before(keys, last)
    if first == 0 or through is None:
        return None if through is None else torch.from_numpy(through)
    ahead = before(keys, first)
    return None if ahead is None else torch.from_numpy(through & ~ahead)


@cache
def _order_of_equals() -> _Before | None:
    """Find out in which order torch's sort leaves equal numbers on this machine."""
    for before in (before_by_quicksort, before_by_position):
        if all(_sorts_like(before, *tried) for tried in _TRIED):
            return before
    return None


def _sorts_like(before: _Before, size: int, different: int) -> bool:
    generator = torch.Generator().manual_seed(size)
    numbers = torch.randint(different, (size,), generator=generator)
    for descending in (False, True):
        order = torch.argsort(numbers.float(), descending=descending)
        keys = (-numbers if descending else numbers).numpy()
        for rank in (1, size // 5, size // 2, size - 1):
            marked = before(keys, rank)
            found = np.zeros(size, dtype=np.bool_)
            found[order[:rank].numpy()] = True
            if marked is None or not np.array_equal(marked, found):
                return False
    return True
