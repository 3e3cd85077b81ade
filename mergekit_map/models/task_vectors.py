"""Norms and angles of task vectors, and the warnings that follow from them.

The method assumes that task vectors are short: the paper gives the ratios of L1 norms
(section 3.1, table 1). All figures are sums over parameters, so that evenly spaced rows
estimate them for a model that would take minutes to read; a small one is read whole.
The choice of rows depends on nothing but the shapes. Warnings concern models whose
weights show that they are not fine-tunes of their base model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from mergekit_map.models.adapters import ModelWeights
from mergekit_map.models.facts import Finding, Severity, has_errors, some
from mergekit_map.models.files import TensorHeader, fingerprint

BUDGET = 1 << 27  # parameters of a model that are read; all, where it has no more
_PIECE = 1 << 16  # elements of a model in memory at a time, which stay in the cache
_GOLDEN = 0.6180339887498949  # spreads the pieces of one tensor after the other


@dataclass(frozen=True)
class VectorFigures:
    """The figures of one task vector; estimates where not all rows were read."""

    norm_ratio: float | None  # of L1 norms; None where the base model's is zero
    changed: float | None  # share of the parameters that differ
    not_finite: tuple[str, ...]  # tensors with NaN or infinity


@dataclass(frozen=True)
class PairFigures:
    """The figures of two task vectors; None where one of them is zero."""

    cosine: float | None
    sign_conflicts: float | None  # share of opposite signs where both are not zero


@dataclass(frozen=True)
class Figures:
    """The figures of a base model and models, by their references."""

    models: Mapping[str, VectorFigures]
    pairs: Mapping[tuple[str, str], PairFigures]
    base_not_finite: tuple[str, ...]
    n_read: int  # parameters of each model
    n_parameters: int  # of the base model

    @property
    def exact(self) -> bool:
        """Whether all parameters were read."""
        return self.n_read == self.n_parameters


def measure_vectors(
    base: ModelWeights,
    models: Mapping[str, ModelWeights],
    incomparable: Collection[str] = (),
    budget: int = BUDGET,
) -> Figures:
    """Compare models with the base model and with one another, tensor by tensor.

    Tensors that any model lacks or has in another shape are left out, and so are
    ``incomparable`` ones, whose rows are not those of the base model. All sums leave
    out NaN and infinity. About ``budget`` parameters of each model are read.
    """
    weights = [base, *models.values()]
    headers = {n: h for n, h in base.headers.items() if h.shape and h.n_bytes}
    shapes = [{n: h.shape for n, h in w.headers.items() if h.is_float} for w in weights]
    compared = {
        n: header
        for n, header in headers.items()
        if n not in incomparable and all(s.get(n) == header.shape for s in shapes)
    }
    n_compared = sum(header.n_elements for header in compared.values())
    share = min(1.0, budget / n_compared) if n_compared else 1.0
    sums = _Sums(len(models))
    for number, (name, header) in enumerate(compared.items()):
        for place in _rows(header, share, number * _GOLDEN % 1):
            rows = [model.read(name, *place).view(-1) for model in weights]
            sums.add(name, torch.stack(rows))
    for name in sorted(headers.keys() - compared.keys()):
        for found, model in zip(sums.not_finite, weights, strict=True):
            own = model.headers.get(name)
            places = _rows(own, share, 0.0) if own and own.shape and own.n_bytes else ()
            if not all(model.read(name, *rows).isfinite().all() for rows in places):
                found[name] = None
    numbers = {model: number for number, model in enumerate(models)}
    return Figures(
        models={m: sums.of_model(i) for m, i in numbers.items()},
        pairs={
            (one, other): sums.of_pair(numbers[one], numbers[other])
            for one, other in combinations(numbers, 2)
        },
        base_not_finite=tuple(sums.not_finite[0]),
        n_read=sums.n_read,
        n_parameters=sum(header.n_elements for header in headers.values()),
    )


def _rows(
    header: TensorHeader, share: float, offset: float
) -> Iterator[tuple[int, int]]:
    """Spread pieces of rows evenly over a tensor; ``offset`` in [0, 1) shifts them."""
    size = max(1, _PIECE // header.width)
    pieces = math.ceil(header.shape[0] / size)
    count = math.ceil(share * pieces)
    for number in range(count):
        start = int((number + offset) * pieces / count) * size
        yield start, min(start + size, header.shape[0])


class _Sums:
    """Sums over parameters of a base model and the task vectors of n models."""

    def __init__(self, n: int):
        self.n_read = 0
        self.l1 = np.zeros(n + 1)  # of the base model first
        # (n, n): products of elements, equal signs less opposite ones, and elements
        # that both change.
        self.products, self.agreeing, self.shared = np.zeros((3, n, n))
        self.not_finite: list[dict[str, None]] = [{} for _ in range(n + 1)]  # tensors

    def add(self, name: str, weights: Tensor) -> None:
        """Add some elements of a tensor, (n + 1, k), those of the base model first."""
        vectors = weights - weights[0]
        vectors[0] = weights[0]
        lengths = vectors.abs().sum(dim=1)
        # No sum is finite of numbers that are not, which takes long to look at.
        if not lengths.isfinite().all():
            odd = ~weights.isfinite()
            for row in odd.any(dim=1).nonzero().flatten().tolist():
                self.not_finite[row][name] = None
            vectors.masked_fill_(odd | odd[0], 0.0)
            lengths = vectors.abs().sum(dim=1)
        own = vectors[1:]
        signs = own.sign()
        changes = signs.abs()
        self.n_read += weights.shape[1]
        self.l1 += lengths.double().numpy()
        self.products += (own @ own.T).double().numpy()
        self.agreeing += (signs @ signs.T).double().numpy()
        self.shared += (changes @ changes.T).double().numpy()

    def of_model(self, i: int) -> VectorFigures:
        return VectorFigures(
            norm_ratio=float(self.l1[i + 1] / self.l1[0]) if self.l1[0] else None,
            changed=float(self.shared[i, i] / self.n_read) if self.n_read else None,
            not_finite=tuple(self.not_finite[i + 1]),
        )

    def of_pair(self, i: int, j: int) -> PairFigures:
        norms = math.sqrt(self.products[i, i] * self.products[j, j])
        shared = float(self.shared[i, j])
        opposite = (shared - float(self.agreeing[i, j])) / 2
        return PairFigures(
            cosine=float(self.products[i, j]) / norms if norms else None,
            sign_conflicts=opposite / shared if shared else None,
        )


# Of L1 norms, five times the largest ratio in the paper. Its quadratics are the first
# terms of a series around the base model. At 0.2 to 0.3 we have seen them fit, and
# merges that keep little of each model.
LARGEST_RATIO = 0.1

# Task vectors of models that were tuned apart from one base are almost orthogonal.
_ALIKE = 0.9
# Of L1 norms: about 1.4 where two models are independent and of one scale. Noise as
# large as the base itself has 1.
_UNRELATED = 1.1


def weight_findings(
    base: str, figures: Figures, names: Mapping[str, str]
) -> dict[str, list[Finding]]:
    """List findings from the figures, by reference; ``base`` is the base model's."""
    found: dict[str, list[Finding]] = {model: [] for model in (base, *figures.models)}
    found[base] += _not_finite(figures.base_not_finite)
    for model, figure in figures.models.items():
        found[model] += _not_finite(figure.not_finite)
        if figure.changed == 0:
            nothing = "its coefficient would change nothing"
            found[model].append(_equal(base, model, figures, names, nothing))
        else:
            found[model] += _far_away(figure.norm_ratio or 0.0, names[base])
    for (one, other), pair in figures.pairs.items():
        changed = figures.models[one].changed and figures.models[other].changed
        if not changed or has_errors([*found[one], *found[other]]):
            continue
        if pair.cosine is not None and pair.cosine > _ALIKE:
            ratios = {figures.models[model].norm_ratio for model in (one, other)}
            if len(ratios) == 1 and pair.cosine > 1 - 1e-6:  # of rounding
                both = "one coefficient does for both"
                found[other].append(_equal(one, other, figures, names, both))
            else:
                found[other].append(_alike(names[one], names[base], pair.cosine))
    return found


def _equal(
    one: str, other: str, figures: Figures, names: Mapping[str, str], result: str
) -> Finding:
    same = figures.exact or fingerprint(one) == fingerprint(other)
    cause = f"it does not differ from {names[one]} in any of the {figures.n_read} "
    cause += "parameters that were compared"
    cause += f", so {result}" if same else ""
    severity: Severity = "error" if same else "warning"
    return Finding("same-weights", severity, cause, "leave one of them out")


def _not_finite(tensors: Sequence[str]) -> Iterator[Finding]:
    if tensors:
        cause = f"{len(tensors)} of its tensors hold NaN or infinity "
        cause += f"({some(tensors)}), and so would every merge"
        advice = "download the model again, or take an earlier checkpoint of it"
        yield Finding("weights-not-finite", "error", cause, advice)


def _far_away(ratio: float, base: str) -> Iterator[Finding]:
    if ratio > _UNRELATED:
        cause = f"its weights differ from those of {base} by {ratio:.1f} times their "
        cause += "norm, so it is not a fine-tune of the same model"
        yield Finding("unrelated", "error", cause, "merge models of one base")
    elif ratio > LARGEST_RATIO:
        cause = (
            f"its norm ratio is {ratio:.2f}, against 0.01 to 0.02 in the paper: so far "
            "from the base, predictions may be off, and merges may keep little of each "
            "model"
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
