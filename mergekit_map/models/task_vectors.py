"""Norms and angles of task vectors, and the warnings that follow from them.

The method assumes that task vectors are short: the paper gives the ratios of L1 norms
(section 3.1, table 1). All figures are sums over parameters, so that evenly spaced rows
estimate them for a model that would take minutes to read; a small one is read whole.
The choice of rows depends on nothing but the shapes. Warnings concern models whose
weights show that they are not fine-tunes of their base model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from mergekit_map.models.adapters import AdaptedWeights
from mergekit_map.models.config_checks import Finding, Severity, has_errors, some
from mergekit_map.models.safetensors_headers import TensorHeader

BUDGET = 1 << 27  # parameters of a model that are read; all, where it has no more
_BLOCK = 1 << 16  # elements read in one piece
_CHUNK = 1 << 17  # elements of a model in memory at a time, which stay in the cache
_GOLDEN = 0.6180339887498949  # spreads the pieces of one tensor after the other


@dataclass(frozen=True)
class StoredWeights:
    """The weights of a model on disk."""

    headers: Mapping[str, TensorHeader]

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows as float32; (stop - start, width)."""
        return self.headers[name].read(start, stop)


Weights: TypeAlias = StoredWeights | AdaptedWeights


@dataclass(frozen=True)
class VectorFigures:
    """The figures of one task vector; estimates where not all rows were read."""

    norm_ratio: float | None  # of L1 norms; None where the base model's is zero
    changed: float | None  # share of the parameters that differ
    # Matrices that differ by more than their norm, and their share of all matrices,
    # in parameters, those of the vocabulary aside.
    estranged: tuple[str, ...]
    estranged_share: float
    not_finite: tuple[str, ...]  # tensors with NaN or infinity
    n_read: int
    n_parameters: int  # that can be compared with the base model's


@dataclass(frozen=True)
class PairFigures:
    """The figures of two task vectors; None where one of them is zero."""

    cosine: float | None
    # Share of opposite signs where both are not zero.
    sign_conflicts: float | None
    equal: bool  # in all that was read


@dataclass(frozen=True)
class Figures:
    """The figures of a base model and models, by their references."""

    models: Mapping[str, VectorFigures]
    pairs: Mapping[tuple[str, str], PairFigures]
    base_not_finite: tuple[str, ...]
    n_read: int  # parameters of the base model
    n_parameters: int

    @property
    def exact(self) -> bool:
        """Whether all parameters were read."""
        return self.n_read == self.n_parameters


def measure_vectors(
    base: Weights,
    models: Mapping[str, Weights],
    vocabulary: Collection[str] = (),
    incomparable: Mapping[str, Collection[str]] | None = None,
    budget: int = BUDGET,
) -> Figures:
    """Compare models with the base model and with one another, tensor by tensor.

    Tensors of other shapes are not compared, nor ``incomparable`` ones, whose rows are
    not those of the base model. All sums leave out NaN and infinity. About ``budget``
    parameters of each model are read; rows of ``vocabulary`` are tokens.
    """
    headers = {n: h for n, h in base.headers.items() if h.is_float and h.n_elements}
    total = sum(header.n_elements for header in headers.values())
    share = min(1.0, budget / total) if total else 1.0
    tensors = []
    for index, (name, header) in enumerate(headers.items()):
        compared = {
            reference: weights
            for reference, weights in models.items()
            if name not in (incomparable or {}).get(reference, ())
            and _is_like(weights.headers.get(name), header)
        }
        sums = _TensorSums(name, header, tuple(compared))
        for start, stop in _rows(header, share, index * _GOLDEN % 1):
            theta = base.read(name, start, stop).view(-1)
            others = [w.read(name, start, stop).view(-1) for w in compared.values()]
            sums.add(theta, others)
        tensors.append(sums)
    return Figures(
        models={model: _of_model(model, tensors, vocabulary) for model in models},
        pairs={pair: _of_pair(pair, tensors) for pair in combinations(models, 2)},
        base_not_finite=tuple(t.name for t in tensors if t.base["bad"]),
        n_read=sum(t.n_read for t in tensors),
        n_parameters=total,
    )


def _is_like(one: TensorHeader | None, other: TensorHeader) -> bool:
    return one is not None and one.is_float and one.shape == other.shape


def _rows(
    header: TensorHeader, share: float, offset: float
) -> Iterator[tuple[int, int]]:
    """Spread batches of rows evenly over a tensor; ``offset`` in [0, 1) shifts them."""
    if share == 1:
        step = max(1, _CHUNK // header.width)
        for start in range(0, header.n_rows, step):
            yield start, min(start + step, header.n_rows)
        return
    wanted = math.ceil(header.n_rows * share)
    piece = min(wanted, max(1, _BLOCK // header.width))
    count = min(math.ceil(wanted / piece), header.n_rows // piece)
    free = header.n_rows - count * piece  # rows between the pieces
    for number in range(count):
        start = number * piece + int((number + offset) * free / count)
        yield start, start + piece


_OF_MODELS = ("l1", "square", "changed", "bad")
_OF_PAIRS = ("products", "agreeing", "shared", "different")


class _TensorSums:
    """Sums over the rows read of one tensor, which n models share."""

    def __init__(self, name: str, header: TensorHeader, compared: Sequence[str]):
        n = len(compared)
        self.name, self.header, self.compared = name, header, compared
        self.n_read = 0
        self.base = dict.fromkeys(("l1", "square", "bad"), 0.0)
        self.sums = {key: np.zeros(n) for key in _OF_MODELS}
        self.sums |= {key: np.zeros((n, n)) for key in _OF_PAIRS}

    @property
    def factor(self) -> float:
        """Return the size of the tensor relative to the part that was read."""
        return self.header.n_elements / self.n_read

    def add(self, theta: Tensor, others: list[Tensor]) -> None:
        """Add elements to the sums: ``theta`` (k,) of the base, others (k,) each."""
        self.n_read += len(theta)
        length = theta.abs().sum()
        bad = None
        if not length.isfinite():
            bad = ~torch.isfinite(theta)
            theta = theta.masked_fill(bad, 0.0)
            length = theta.abs().sum()
            self.base["bad"] += int(bad.sum())
        self.base["l1"] += float(length)
        self.base["square"] += float(theta.square().sum())
        if others:
            self._add_models(theta, torch.stack(others), bad)

    def _add_models(self, theta: Tensor, weights: Tensor, bad: Tensor | None) -> None:
        vectors = weights - theta
        lengths = vectors.abs().sum(dim=1)
        # No sum is finite of numbers that are not, which takes long to look at.
        if bad is not None or not lengths.isfinite().all():
            wrong = ~torch.isfinite(weights)
            self.sums["bad"] += wrong.sum(dim=1).numpy()
            vectors.masked_fill_(wrong if bad is None else wrong | bad, 0.0)
            lengths = vectors.abs().sum(dim=1)
        signs = vectors.sign()
        filled = signs.abs()
        new = {
            "l1": lengths,
            "square": vectors.square().sum(dim=1),
            "changed": filled.sum(dim=1),
            "products": vectors @ vectors.T,
            "agreeing": signs @ signs.T,  # equal signs less opposite ones
            "shared": filled @ filled.T,
        }
        for key, value in new.items():
            self.sums[key] += value.double().numpy()
        different = self.sums["different"]
        for i, j in combinations(range(len(weights)), 2):
            if not different[i, j]:
                different[i, j] = not torch.equal(vectors[i], vectors[j])


def _of_model(
    model: str, tensors: Sequence[_TensorSums], vocabulary: Collection[str]
) -> VectorFigures:
    own = [(t, t.compared.index(model)) for t in tensors if model in t.compared]
    elements = sum(t.header.n_elements for t, _ in own)
    base = sum(t.factor * t.base["l1"] for t, _ in own)
    l1, changed = (
        sum(t.factor * float(t.sums[key][i]) for t, i in own)
        for key in ("l1", "changed")
    )
    matrices = [(t, i) for t, i in own if len(t.header.shape) > 1]
    far = [t for t, i in matrices if t.sums["square"][i] > t.base["square"] > 0]
    compared, distant = (
        sum(t.header.n_elements for t in group if t.name not in vocabulary)
        for group in ([t for t, _ in matrices], far)
    )
    return VectorFigures(
        norm_ratio=l1 / base if base else None,
        changed=changed / elements if elements else None,
        estranged=tuple(t.name for t in far),
        estranged_share=distant / compared if compared else 0.0,
        not_finite=tuple(t.name for t, i in own if t.sums["bad"][i]),
        n_read=sum(t.n_read for t, _ in own),
        n_parameters=elements,
    )


def _of_pair(pair: tuple[str, str], tensors: Sequence[_TensorSums]) -> PairFigures:
    total = dict.fromkeys(("one", "other", *_OF_PAIRS), 0.0)
    for tensor in [t for t in tensors if set(pair) <= set(t.compared)]:
        i, j = (tensor.compared.index(model) for model in pair)
        for key in _OF_PAIRS:
            total[key] += tensor.factor * float(tensor.sums[key][i, j])
        for key, k in (("one", i), ("other", j)):
            total[key] += tensor.factor * float(tensor.sums["square"][k])
    norms = math.sqrt(total["one"] * total["other"])
    shared = total["shared"]
    return PairFigures(
        cosine=total["products"] / norms if norms else None,
        sign_conflicts=(1 - total["agreeing"] / shared) / 2 if shared else None,
        equal=not total["different"],
    )


# Of L1 norms, five times the largest ratio in the paper. Its quadratics are the first
# terms of a series around the base model. At 0.2 to 0.3 we have seen them fit, and
# merges that keep little of each model.
LARGEST_RATIO = 0.1

# Task vectors of models that were tuned apart from one base are almost orthogonal.
_ALIKE = 0.9
# Of the parameters in matrices; where fewer are strange, these few were made anew.
_MOST = 0.5


def weight_findings(
    base: str,
    figures: Figures,
    names: Mapping[str, str],
    same_files: Callable[[str, str], bool],
    *,
    has_base: bool,
) -> dict[str, list[Finding]]:
    """List findings from the figures, by reference; ``base`` is that of the base model.

    Where a sample of rows shows no difference, ``same_files`` compares the files. Where
    the first is no base model, there are no task vectors to judge.
    """
    found: dict[str, list[Finding]] = {model: [] for model in (base, *figures.models)}

    def equal(one: str, other: str) -> Finding:
        parts = [figures.models[m].n_read for m in (one, other) if m != base]
        sure = min(parts) == figures.n_parameters or same_files(one, other)
        return _equal(names[one], (min(parts), figures.n_parameters), sure=sure)

    found[base] += _not_finite(figures.base_not_finite)
    for model, figure in figures.models.items():
        found[model] += _not_finite(figure.not_finite)
        if figure.changed == 0:
            found[model].append(equal(base, model))
            continue
        if figure.estranged_share > _MOST:
            found[model].append(_unrelated(figure, names[base]))
        elif has_base:
            found[model] += _far_away(figure, names[base])
    for (one, other), pair in figures.pairs.items():
        changed = figures.models[one].changed and figures.models[other].changed
        if not changed or has_errors([*found[one], *found[other]]):
            continue
        if pair.equal:
            found[other].append(equal(one, other))
        elif has_base and pair.cosine is not None and pair.cosine > _ALIKE:
            found[other].append(_alike(names[one], names[base], pair.cosine))
    return found


def _not_finite(tensors: Sequence[str]) -> Iterator[Finding]:
    if tensors:
        cause = f"{len(tensors)} of its tensors hold NaN or infinity "
        cause += f"({some(tensors)}), and so would every merge"
        advice = "download the model again, or take an earlier checkpoint of it"
        yield Finding("weights-not-finite", "error", cause, advice)


def _equal(other: str, counts: tuple[int, int], *, sure: bool) -> Finding:
    text = f"it does not differ from {other} in any of the {counts[0]} parameters that "
    text += f"were compared, of {counts[1]}"
    if sure:
        text = f"it has the same content as {other}: no weight differs, so its "
        text += "coefficient changes nothing that can be measured"
    severity: Severity = "error" if sure else "warning"
    return Finding("same-weights", severity, text, "leave one of them out")


def _unrelated(figure: VectorFigures, base: str) -> Finding:
    cause = f"its weights differ from those of {base} by {figure.norm_ratio:.1f} times "
    text = f"{cause}their norm, so it is not a fine-tune of the same model"
    return Finding("unrelated", "error", text, "merge models of one base")


def _far_away(figure: VectorFigures, base: str) -> Iterator[Finding]:
    if figure.estranged:
        count = len(figure.estranged)
        cause = f"{count} of its matrices have nothing in common with those of {base} "
        advice = "they were made anew; merge them with a filter of their own, or not"
        text = f"{cause}({some(figure.estranged)})"
        yield Finding("matrices-unrelated", "warning", text, advice)
    elif figure.norm_ratio is not None and figure.norm_ratio > LARGEST_RATIO:
        cause = (
            f"its norm ratio is {figure.norm_ratio:.2f}, against 0.01 to 0.02 in the "
            "paper: so far from the base, predictions may be off, and merges may keep "
            "little of each model"
        )
        advice = (
            f"check that {base} is the model it was tuned from; if the search reports "
            "poor predictions, narrow 'bounds' or allow more 'evaluations', and trust "
            "measured merges"
        )
        yield Finding("norm-ratio", "warning", cause, advice)


def _alike(other: str, base: str, cosine: float) -> Finding:
    cause = (
        f"its task vector points where that of {other} does (cosine {cosine:.2f}): "
        "they are much the same model, or both were tuned from another base than "
        f"{base}"
    )
    advice = "leave one out, or write the model that both were tuned from as base_model"
    return Finding("alike", "warning", cause, advice)
