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
from numpy.typing import NDArray
from torch import Tensor

from mergekit_map.models.adapters import ModelWeights
from mergekit_map.models.facts import Finding, has_errors, some
from mergekit_map.models.files import TensorHeader, fingerprint

BUDGET = 1 << 27  # parameters of a model that are read; all, where it has no more
_BLOCK = 1 << 16  # elements read in one piece
_CHUNK = 1 << 17  # elements of a model in memory at a time, which stay in the cache
_GOLDEN = 0.6180339887498949  # spreads the pieces of one tensor after the other


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
    base: ModelWeights,
    models: Mapping[str, ModelWeights],
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
    sums = _Sums(headers, 1 + len(models))
    for tensor, (name, header) in enumerate(headers.items()):
        compared = {0: base}
        for row, (model, weights) in enumerate(models.items(), 1):
            own = weights.headers.get(name)
            is_like = own is not None and own.is_float and own.shape == header.shape
            if is_like and name not in (incomparable or {}).get(model, ()):
                compared[row] = weights
        for start, stop in _rows(header, share, tensor * _GOLDEN % 1):
            read = [w.read(name, start, stop).view(-1) for w in compared.values()]
            sums.add(tensor, [*compared], torch.stack(read))
    rows = {model: row for row, model in enumerate(models, 1)}
    return Figures(
        models={model: sums.of_model(row, vocabulary) for model, row in rows.items()},
        pairs={
            (a, b): sums.of_pair(rows[a], rows[b]) for a, b in combinations(rows, 2)
        },
        base_not_finite=sums.named(sums.of_rows["bad"][:, 0] > 0),
        n_read=int(sums.n_read.sum()),
        n_parameters=total,
    )


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


class _Sums:
    """Sums over what is read of T tensors; row 0 is the base, row i is model i.

    The base itself, and what each model adds to it, are summed up.
    """

    def __init__(self, headers: Mapping[str, TensorHeader], n: int):
        self.names, t = [*headers], len(headers)
        self.sizes = np.array([h.n_elements for h in headers.values()], dtype=float)
        self.matrices = np.array([len(h.shape) > 1 for h in headers.values()], bool)
        self.n_read = np.zeros(t)
        self.compared = np.zeros((t, n), dtype=bool)
        self.of_rows = {key: np.zeros((t, n)) for key in ("l1", "square", "bad")}
        keys = ("products", "agreeing", "shared", "different")
        self.of_pairs = {key: np.zeros((t, n, n)) for key in keys}

    def add(self, tensor: int, rows: list[int], weights: Tensor) -> None:
        """Add elements of a tensor, (rows, k), to its sums."""
        self.n_read[tensor] += weights.shape[1]
        self.compared[tensor, rows] = True
        vectors = weights - weights[0]
        vectors[0] = weights[0]
        lengths = vectors.abs().sum(dim=1)
        # No sum is finite of numbers that are not, which takes long to look at.
        if not lengths.isfinite().all():
            bad = ~torch.isfinite(weights)
            self.of_rows["bad"][tensor, rows] += bad.sum(dim=1).numpy()
            vectors.masked_fill_(bad | bad[0], 0.0)
            lengths = vectors.abs().sum(dim=1)
        of_rows = {"l1": lengths, "square": vectors.square().sum(dim=1)}
        for key, value in of_rows.items():
            self.of_rows[key][tensor, rows] += value.double().numpy()
        models, vectors = rows[1:], vectors[1:]
        signs = vectors.sign()
        nonzero = signs.abs()
        different = torch.zeros(len(models), len(models))
        for one, other in combinations(range(len(models)), 2):
            different[one, other] = not torch.equal(vectors[one], vectors[other])
        of_pairs = {
            "products": vectors @ vectors.T,
            "agreeing": signs @ signs.T,  # equal signs less opposite ones
            "shared": nonzero @ nonzero.T,  # of a model with itself: what it changes
            "different": different,
        }
        for key, value in of_pairs.items():
            self.of_pairs[key][tensor][np.ix_(models, models)] += value.double().numpy()

    def named(self, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the names of some tensors; ``chosen`` (T,)."""
        return tuple(name for name, one in zip(self.names, chosen, strict=True) if one)

    def whole(self, sums: NDArray[np.float64]) -> float:
        """Estimate the sum over all parameters from what was read; ``sums`` (T,)."""
        return float(self.sizes / self.n_read @ sums)

    def of_model(self, row: int, vocabulary: Collection[str]) -> VectorFigures:
        """Return the figures of one task vector."""
        own = self.compared[:, row]
        squares = self.of_rows["square"]
        far = self.matrices & (squares[:, row] > squares[:, 0]) & (squares[:, 0] > 0)
        inner = self.matrices & own & ~np.isin(self.names, [*vocabulary])
        elements, distant, inside = (
            float(self.sizes @ chosen) for chosen in (own, far & inner, inner)
        )
        base = self.whole(self.of_rows["l1"][:, 0] * own)
        l1 = self.whole(self.of_rows["l1"][:, row])
        changed = self.whole(self.of_pairs["shared"][:, row, row])
        return VectorFigures(
            norm_ratio=l1 / base if base else None,
            changed=changed / elements if elements else None,
            estranged=self.named(far),
            estranged_share=distant / inside if inside else 0.0,
            not_finite=self.named(self.of_rows["bad"][:, row] > 0),
            n_read=int(self.n_read @ own),
            n_parameters=int(elements),
        )

    def of_pair(self, one: int, other: int) -> PairFigures:
        """Return the figures of two task vectors, over the tensors that both have."""
        total = {k: self.whole(v[:, one, other]) for k, v in self.of_pairs.items()}
        squares, both = self.of_rows["square"], self.compared[:, [one, other]].all(1)
        norms = math.sqrt(
            self.whole(squares[:, one] * both) * self.whole(squares[:, other] * both)
        )
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
    base: str, figures: Figures, names: Mapping[str, str], *, has_base: bool
) -> dict[str, list[Finding]]:
    """List findings from the figures, by reference; ``base`` is that of the base model.

    Where the first is no base model, there are no task vectors to judge.
    """
    found: dict[str, list[Finding]] = {model: [] for model in (base, *figures.models)}
    advice = "leave one of them out"

    def equal(one: str, other: str) -> Finding:
        read = min(figures.models[m].n_read for m in (one, other) if m != base)
        if read == figures.n_parameters or fingerprint(one) == fingerprint(other):
            cause = f"it has the same content as {names[one]}: no weight differs, so "
            cause += "its coefficient changes nothing that can be measured"
            return Finding("same-weights", "error", cause, advice)
        cause = f"it does not differ from {names[one]} in any of the {read} parameters "
        cause += f"that were compared, of {figures.n_parameters}"
        return Finding("same-weights", "warning", cause, advice)

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
