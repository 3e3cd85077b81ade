"""Exact sums of the bits of tensors, which tell any two apart that ever differ.

One bit, or two exchanged numbers, make another sum. A tensor is read twice, from memory
that nothing is written to.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_ROW = 512  # words of 8 bytes whose sum is weighed by their place


def bit_sums(tensor: Tensor) -> Tensor:
    """Add up the bits as whole numbers, by rows and columns, weighed by their place."""
    if tensor.is_sparse or tensor.is_meta or tensor.numel() == 0:
        return torch.zeros(2, dtype=torch.int64)
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    if flat.storage_offset() % 8:
        flat = flat.clone()
    whole = flat.numel() // 8 * 8
    rest = flat[whole:].to(torch.int64)
    words = flat[:whole].view(torch.int64) if whole else flat[:0].view(torch.int64)
    square = words.numel() // _ROW * _ROW
    rows = words[:square].view(-1, _ROW)
    tail = torch.cat([words[square:], rest])
    sums = [
        (part * _places(part.numel(), part.device)).sum()
        for part in (rows.sum(1), rows.sum(0), tail)
    ]
    return torch.stack(sums)


@functools.lru_cache(maxsize=256)
def _places(count: int, device: torch.device) -> Tensor:
    """Give each place an odd number of its own."""
    generator = torch.Generator().manual_seed(count)
    drawn = torch.randint(-(2**62), 2**62, (count,), generator=generator)
    return (2 * drawn + 1).to(device)
