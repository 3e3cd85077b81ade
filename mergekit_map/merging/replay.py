"""Replays: merging a tensor again with other weights, bit for bit as mergekit does.

A large tensor is merged in blocks that fit in a CPU's cache. All operations are
elementwise but the sums over the models, which torch computes in float32, in the order
of the models, and rounds once. torch sums only the last entries of a tensor, fewer than
1024, in another order: so blocks begin at multiples of 1024, and the last is no
shorter.

Task vectors of LoRA adapters are kept as their factors and multiplied at each write. An
adapter merged into its base is ``W' = W + B @ A * scaling``, rounded to the dtype of
``W``; its task vector is ``W' - W``, rounded again. Both are recomputed with the
operations of peft and mergekit, so that the bits equal those of the whole. This is
verified: while a merge is recorded, each task vector is compared with the one that
mergekit merged. Elements that differ, as another device's products may in the last bit,
are kept beside the factors. A task vector with many of them is kept whole, as those of
DoRA and of adapters on another base are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from mergekit import merge_methods
from mergekit.common import ModelReference
from mergekit.merge_methods.base import TensorGroup
from torch import Tensor

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.models.adapters import read_adapter
from mergekit_map.models.files import find_model
from mergekit_map.models.references import Reference, models_with_adapter

T = TypeVar("T")
Parameters: TypeAlias = Mapping[str, Any]  # of a method, as mergekit hands them over

_UNIT = 1024
_BLOCK = 1 << 19  # entries of all models in a block: with what is computed, 4 MB or so
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# Elements multiplied at a time, of a CPU's cache, and the least rows for a product.
_CACHED = 1 << 18
_LEAST_ROWS = 64

# Elements, of all, that are rather kept one by one than a task vector whole.
_FEW = 1 / 64


@dataclass(frozen=True, eq=False)
class MethodReplay:
    """A tensor of any method: its inputs, to run the method again."""

    method: str
    group: TensorGroup
    parameters: Parameters

    @property
    def models(self) -> Sequence[Any]:
        """Return the models that have a weight, in mergekit's order."""
        return tuple(self.parameters["weight"])

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Run the method with other weights and copy its result into ``target``."""
        weight = dict(zip(self.models, weights, strict=True))
        (merged,) = merge_methods.get(self.method)(
            (self.group,), parameters={**self.parameters, "weight": weight}
        )
        target.copy_(merged)


@dataclass(frozen=True, eq=False)
class TaskVectorReplay:
    """A tensor of the task-arithmetic family: base plus weighted deltas."""

    models: tuple[Any, ...]
    base: Tensor  # (*shape)
    # (len(models), *shape), sparsified, not weighted; () where every merge is the base.
    deltas: Tensor | tuple[_Row, ...]
    elects_signs: bool
    normalize: bool
    scale: float  # mergekit's ``lambda``

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged deltas into ``target`` of the same shape."""
        if not len(self.deltas):
            target.copy_(self.base)
            return
        base, out, deltas = self.base.reshape(-1), target.view(-1), self.full_deltas()
        column = deltas.new_tensor(weights)[:, None]
        for block in self._blocks():
            merged = self.merge_deltas(deltas[:, block], column)
            out[block] = base[block] + merged

    def full_deltas(self) -> Tensor:
        """Return the task vectors, (n, size), those in low rank multiplied."""
        deltas = self.deltas
        if not isinstance(deltas, Tensor):
            deltas = _multiplied(deltas or [None] * len(self.models), self.base)
        return deltas.reshape(len(self.models), -1)

    def in_low_rank(self, factors: Mapping[Any, Factors | None]) -> TaskVectorReplay:
        """Replace task vectors by factors that reproduce every bit of them.

        ``factors`` are those of the models with an adapter, None where it leaves this
        tensor alone.
        """
        rows: list[_Row] = [
            _exact_row(factors[model], self.base, delta) if model in factors else delta
            for model, delta in zip(self.models, self.deltas, strict=True)
        ]
        if all(isinstance(row, Tensor) for row in rows):
            return self
        negative_zeros = torch.signbit(self.base) & (self.base == 0)
        if all(row is None for row in rows) and not negative_zeros.any():
            return replace(self, deltas=())
        # A part of all task vectors would keep all of them in memory.
        rows = [row.clone() if isinstance(row, Tensor) else row for row in rows]
        return replace(self, deltas=tuple(rows))

    def merge_deltas(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Merge a part of the deltas, (n, k) with weights (n, 1), into (k,)."""
        rows = deltas * weights
        if self.elects_signs:
            merged = self._merge_elected(rows, weights)
        else:
            merged = _sum(rows)
            if self.normalize:
                divisor = weights.sum(dim=0)
                divisor[divisor.abs() < 1e-8] = 1
                merged /= divisor
        return merged.mul_(self.scale) if self.scale != 1 else merged

    def _merge_elected(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Sum the elements with the sign of the sum; overwrites the rows.

        Times the elected sign, these are positive and the others are not. Rounding is
        symmetric, so this changes no bit. It needs no masks, which are slow on a CPU.
        """
        total = _sum(rows)
        sign = total.new_ones(()).copysign(total)
        merged = _sum(rows.mul_(sign).clamp_(min=0)).mul_(sign)
        # Zero, as mergekit adds up from it and has no negative one; or NaN where there
        # are infinities of both signs, one of which its mask multiplies by zero.
        merged += total.clamp_(0, 1).mul_(0)
        if self.normalize:
            divisor = _sum(rows.sign_().mul_(weights))
            divisor += 1 - divisor.sign().abs_()
            merged /= divisor
        return merged

    def _blocks(self) -> Iterator[slice]:
        size, step = self.base.numel(), _BLOCK // len(self.models)
        if self.base.device.type != "cpu":
            step = size  # accelerators need much to be busy
        step = max(_UNIT, step // _UNIT * _UNIT)
        cuts = [*range(0, max(1, size - _UNIT), step), size]
        return (slice(*ends) for ends in itertools.pairwise(cuts))


# An output tensor of a merge, ready to be merged again with one weight for each of its
# ``models``.
Replay: TypeAlias = TaskVectorReplay | MethodReplay


def with_tensors(content: T, change: Callable[[Tensor], Tensor]) -> T:
    """Return a replay with changed tensors, on another device for example."""
    changed: Any = content
    if isinstance(content, Tensor):
        changed = change(content)
    elif isinstance(content, tuple):
        changed = tuple(with_tensors(item, change) for item in content)
    elif is_dataclass(content) and not isinstance(content, type):
        parts = {f.name: getattr(content, f.name) for f in fields(content)}
        changed = replace(
            content, **{k: with_tensors(part, change) for k, part in parts.items()}
        )
    return changed  # type: ignore[no-any-return]


def tensor_bytes(replay: Replay) -> int:
    """Return the size of a replay's tensors."""
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    with_tensors(replay, note)
    return sum(sizes)


def _sum(rows: Tensor) -> Tensor:
    """Sum (n, k) to (k,) with the bits of ``rows.sum(dim=0)``, in less time.

    torch sums half precision in float32 as well, but slower than on request.
    """
    if len(rows) == 2:
        return torch.add(*rows).add_(0)  # from zero, as a sum: no negative zero
    half = rows.element_size() == 2
    return rows.sum(dim=0, dtype=torch.float32 if half else None).to(rows.dtype)


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
_Row: TypeAlias = "Factors | Tensor | None"


def _multiplied(rows: Sequence[_Row], base: Tensor) -> Tensor:
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


def _exact_row(row: Factors | None, base: Tensor, delta: Tensor) -> _Row:
    """Return the factors, with the elements that they miss.

    Where these are too many, return the whole task vector.
    """
    if row is not None and row.shape != base.shape:
        return delta
    differing = torch.zeros(base.numel(), dtype=torch.bool)
    for place in {base.device, torch.device("cpu")}:
        (found,) = _multiplied([row], base.to(place))
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
