"""Task vectors of LoRA adapters, kept as their factors and multiplied at each write.

An adapter merged into its base is ``W' = W + B @ A * scaling``, rounded to the dtype of
``W``; its task vector is ``W' - W``, rounded again. Both are recomputed with the
operations of peft and mergekit, so that the bits equal those of the whole. This is
verified: while a merge is recorded, each task vector is compared with the one that
mergekit merged. Elements that differ, as another device's products may in the last bit,
are kept beside the factors. A task vector with many of them is kept whole, as those of
DoRA and of adapters on another base are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from mergekit.common import ModelReference
from torch import Tensor

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.models.adapters import read_adapter
from mergekit_map.models.files import find_model
from mergekit_map.models.references import Reference, models_with_adapter

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# Elements multiplied at a time, of a CPU's cache, and the least rows for a product.
_CACHED = 1 << 18
_LEAST_ROWS = 64

# Elements, of all, that are rather kept one by one than a task vector whole.
_FEW = 1 / 64


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of an adapter's change to a tensor: ``B @ A * scaling``."""

    a: Tensor  # (rank, columns), float32
    b: Tensor  # (rows, rank), float32
    scaling: float
    transposed: bool  # whether the product is, before it is added
    places: Tensor  # of elements of the task vector that come out otherwise, flat
    values: Tensor  # what they are

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the tensor."""
        shape = (len(self.b), self.a.shape[1])
        return shape[::-1] if self.transposed else shape

    def task_vector(self, base: Tensor, out: Tensor) -> None:
        """Merge into ``base`` and write the rounded difference into ``out``."""
        rows, columns = base.shape
        a, b = self.a.to(base.device), self.b.to(base.device)
        step = rows
        if base.device.type == "cpu":
            step = max(_LEAST_ROWS, _CACHED // columns)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            product = (b @ a[:, part]).T if self.transposed else b[part] @ a
            product *= self.scaling
            product += base[part]  # in float32, which is rounded once
            torch.sub(product.to(base.dtype), base[part], out=out[part])
        places = self.places.to(out.device)
        out.view(-1)[places] = self.values.to(out)


def adapter_factors(merge: MergeConfig) -> dict[ModelReference, dict[str, Factors]]:
    """Read the factors of the adapters of a merge, by model and tensor.

    Whether their products are the task vectors is not looked at here.
    """
    found = {}
    for text in models_with_adapter(merge):
        adapter = read_adapter(find_model(str(Reference.parse(text).adapter)))
        found[ModelReference.parse(text)] = {
            name: Factors(
                a=matrices["lora_A"].read_all(),
                b=matrices["lora_B"].read_all(),
                scaling=adapter.scales[name],
                transposed=adapter.transposes,
                places=torch.empty(0, dtype=torch.int64),
                values=torch.empty(0),
            )
            for name, matrices in adapter.matrices.items()
            if name in adapter.scales and {"lora_A", "lora_B"} <= matrices.keys()
        }
    return found


# A task vector: as factors, as it is, or none where an adapter leaves a tensor alone.
Row: TypeAlias = "Factors | Tensor | None"


def multiplied(rows: Sequence[Row], base: Tensor) -> Tensor:
    """Return task vectors in full, (len(rows), *base.shape)."""
    deltas = base.new_empty((len(rows), *base.shape))
    with _one_thread():
        for delta, row in zip(deltas, rows, strict=True):
            if isinstance(row, Factors):
                row.task_vector(base, delta)
            elif row is None:
                delta.zero_()
            else:
                delta.copy_(row)
    return deltas


def exact_row(row: Factors | None, base: Tensor, delta: Tensor) -> Row:
    """Return the factors, with the elements that they miss.

    Where these are too many, return the whole task vector.
    """
    if row is not None and row.shape != base.shape:
        return delta
    differing = torch.zeros(base.numel(), dtype=torch.bool)
    for place in {base.device, torch.device("cpu")}:
        (found,) = multiplied([row], base.to(place))
        differing |= (_bits(found) != _bits(delta.to(place))).cpu()
    places = differing.nonzero().view(-1)
    if not len(places):
        return row
    if row is None or len(places) > _FEW * base.numel():
        return delta
    values = delta.reshape(-1)[places.to(delta.device)].cpu()
    return replace(row, places=places, values=values)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Multiply on one thread: the last bit of a product depends on their number.

    So a recording is valid for writers with any number of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(_INTEGERS[tensor.element_size()])
