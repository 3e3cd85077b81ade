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

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from mergekit.common import ModelReference
from torch import Tensor

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.merging.replay import TaskVectorReplay
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

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Factors:
        """Return factors with changed tensors, on another device for example."""
        return dataclasses.replace(
            self,
            a=change(self.a),
            b=change(self.b),
            places=change(self.places),
            values=change(self.values),
        )


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
                scaling=adapter.scale(name),
                transposed=bool(adapter.settings.get("fan_in_fan_out")),
                places=torch.empty(0, dtype=torch.int64),
                values=torch.empty(0),
            )
            for name, matrices in adapter.matrices.items()
            if {"lora_A", "lora_B"} <= matrices.keys()
        }
    return found


# A task vector: as factors, as it is, or none where an adapter leaves a tensor alone.
Row: TypeAlias = "Factors | Tensor | None"


@dataclass(frozen=True, eq=False)
class LowRankReplay:
    """A tensor of the task-arithmetic family with factors for task vectors."""

    models: tuple[Any, ...]
    base: Tensor
    rows: tuple[Row, ...]  # of each model
    rule: Mapping[str, Any]  # how they are merged: what else ``TaskVectorReplay`` has
    unchanged: bool  # whether every merge has the base here

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> LowRankReplay:
        """Return a replay with changed tensors, on another device for example."""
        rows: list[Row] = []
        for row in self.rows:
            if isinstance(row, Factors):
                rows.append(row.with_tensors(change))
            else:
                rows.append(None if row is None else change(row))
        return dataclasses.replace(self, base=change(self.base), rows=tuple(rows))

    @property
    def elects_signs(self) -> bool:
        """Whether only elements with the sign of the sum are added up."""
        return bool(self.rule["elects_signs"])

    def write(self, weights: Sequence[float], target: Tensor) -> None:
        """Write base + merged task vectors into ``target`` of the same shape."""
        if self.unchanged:
            target.copy_(self.base)
        else:
            self.whole().write(weights, target)

    def whole(self) -> TaskVectorReplay:
        """Return the same replay with its task vectors in full."""
        deltas = self.base.new_empty((len(self.rows), *self.base.shape))
        with _one_thread():
            for delta, row in zip(deltas, self.rows, strict=True):
                _multiply(row, self.base, delta)
        return TaskVectorReplay(
            models=self.models, base=self.base, deltas=deltas, **self.rule
        )


def _multiply(row: Row, base: Tensor, out: Tensor) -> None:
    if row is None:
        out.zero_()
    elif isinstance(row, Factors):
        row.task_vector(base, out)
    else:
        out.copy_(row)


# The factors of models, by model and tensor, while a merge of them is recorded.
_Known: TypeAlias = Mapping[Any, Mapping[str, Factors]]
_KNOWN: ContextVar[_Known | None] = ContextVar("factors", default=None)


@contextmanager
def keeping_factors(factors: _Known) -> Iterator[None]:
    """Make ``in_low_rank`` keep these models' task vectors as factors."""
    token = _KNOWN.set(factors)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def in_low_rank(
    replay: TaskVectorReplay, tensor: str
) -> TaskVectorReplay | LowRankReplay:
    """Replace task vectors by factors that reproduce every bit of them."""
    known = _KNOWN.get() or {}
    rows: list[Row] = []
    for model, delta in zip(replay.models, replay.deltas, strict=True):
        row: Row = delta
        if model in known:
            row = _exact(known[model].get(tensor), replay.base, delta)
        rows.append(row)
    if all(isinstance(row, Tensor) for row in rows):
        return replay
    rule = {
        field.name: getattr(replay, field.name)
        for field in dataclasses.fields(replay)
        if field.name not in {"models", "base", "deltas"}
    }
    # A part of all task vectors would keep all of them in memory.
    rows = [row.clone() if isinstance(row, Tensor) else row for row in rows]
    unchanged = all(row is None for row in rows) and _absorbs_zeros(replay.base)
    return LowRankReplay(replay.models, replay.base, tuple(rows), rule, unchanged)


def whole(replay: TaskVectorReplay | LowRankReplay) -> TaskVectorReplay:
    """Return a replay with its task vectors in full."""
    return replay.whole() if isinstance(replay, LowRankReplay) else replay


def _exact(row: Factors | None, base: Tensor, delta: Tensor) -> Row:
    """Return the factors, with the elements that they miss.

    Where these are too many, return the whole task vector.
    """
    if row is not None and row.shape != base.shape:
        return delta
    differing = torch.zeros(base.numel(), dtype=torch.bool)
    for place in {base.device, torch.device("cpu")}:
        found = torch.empty_like(base, device=place)
        with _one_thread():
            _multiply(row, base.to(place), found)
        differing |= (_bits(found) != _bits(delta.to(place))).cpu()
    places = differing.nonzero().view(-1)
    if not len(places):
        return row
    if row is None or len(places) > _FEW * base.numel():
        return delta
    values = delta.reshape(-1)[places.to(delta.device)].cpu()
    return dataclasses.replace(row, places=places, values=values)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Multiply on one thread: the last bit of a product depends on their number.

    So a recording is valid for writers with any number of threads.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(_INTEGERS[tensor.element_size()])


def _absorbs_zeros(base: Tensor) -> bool:
    """Return whether adding zeros of either sign changes no bit."""
    return not bool((torch.signbit(base) & (base == 0)).any())
