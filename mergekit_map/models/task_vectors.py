"""Norms and angles of task vectors, and the warnings that follow from them.

The method assumes that task vectors are short: the paper gives the ratios of L1 norms
(section 3.1, table 1). All figures are sums over parameters, so that evenly spaced rows
estimate them for a model that would take minutes to read; a small one is read whole.
The choice of rows depends on nothing but the shapes. Warnings concern models whose
weights show that they are not fine-tunes of their base model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from mergekit_map.models.adapters import ModelWeights
from mergekit_map.models.facts import Finding, Severity, has_errors, some
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
    incomparable: Mapping[str, Collection[str]] = MappingProxyType({}),
    budget: int = BUDGET,
) -> Figures:
    """Compare models with the base model and with one another, tensor by tensor.

    Tensors of other shapes are not compared, nor ``incomparable`` ones, whose rows are
    not those of the base model. All sums leave out NaN and infinity. About ``budget``
    parameters of each model are read.
    """
    headers = {n: h for n, h in base.headers.items() if h.is_float and h.n_elements}
    total = sum(header.n_elements for header in headers.values())
    share = min(1.0, budget / total) if total else 1.0
    sums = _Sums(1 + len(models))
    for tensor, (name, header) in enumerate(headers.items()):
        compared = {0: base}
        for row, (model, weights) in enumerate(models.items(), 1):
            own = weights.headers.get(name)
            is_like = own is not None and own.is_float and own.shape == header.shape
            if is_like and name not in incomparable.get(model, ()):
                compared[row] = weights
        places = _rows(header, share, tensor * _GOLDEN % 1)
        sums.add(name, header, compared, places)
    rows = {model: row for row, model in enumerate(models, 1)}
    return Figures(
        models={model: sums.of_model(row) for model, row in rows.items()},
        pairs={
            (a, b): sums.of_pair(rows[a], rows[b]) for a, b in combinations(rows, 2)
        },
        base_not_finite=tuple(sums.not_finite[0]),
        n_read=int(sums.n_read[0]),
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
    """Sums over n models; row 0 is the base, row i what model i adds to it.

    Those of a tensor are scaled by the share of it that was read, so that they estimate
    the sums over all parameters.
    """

    def __init__(self, n: int):
        self.n_read = np.zeros(n)
        self.n_parameters = np.zeros(n)  # of the tensors that were compared
        self.not_finite: list[list[str]] = [[] for _ in range(n)]  # tensors
        # (n, n): over the tensors that both models of a pair have.
        self.of_pairs = {key: np.zeros((n, n)) for key in _SUMS}

    def add(
        self,
        name: str,
        header: TensorHeader,
        models: Mapping[int, ModelWeights],
        places: Iterable[tuple[int, int]],
    ) -> None:
        """Read some rows of one tensor of these models, and add their sums."""
        rows, n_read, bad = [*models], 0, np.zeros(len(models))
        sums = {key: np.zeros((len(rows), len(rows))) for key in _SUMS}
        for place in places:
            read = [weights.read(name, *place).view(-1) for weights in models.values()]
            found, of_no_use = _sums_of(torch.stack(read))
            for key, value in found.items():
                sums[key] += value.double().numpy()
            n_read += len(read[0])
            bad += of_no_use.numpy()
        for row, count in zip(rows, bad, strict=True):
            self.not_finite[row] += [name] if count else []
        self.n_read[rows] += n_read
        self.n_parameters[rows] += header.n_elements
        for key, total in self.of_pairs.items():
            total[np.ix_(rows, rows)] += header.n_elements / n_read * sums[key]

    def of_model(self, row: int) -> VectorFigures:
        """Return the figures of one task vector."""
        l1, elements = self.of_pairs["l1"], self.n_parameters[row]
        changed = self.of_pairs["shared"][row, row]
        return VectorFigures(
            norm_ratio=float(l1[row, 0] / l1[0, row]) if l1[0, row] else None,
            changed=float(changed / elements) if elements else None,
            not_finite=tuple(self.not_finite[row]),
            n_read=int(self.n_read[row]),
            n_parameters=int(elements),
        )

    def of_pair(self, one: int, other: int) -> PairFigures:
        """Return the figures of two task vectors, over the tensors that both have."""
        total = {key: float(sums[one, other]) for key, sums in self.of_pairs.items()}
        norms = math.sqrt(total["square"] * self.of_pairs["square"][other, one])
        shared = total["shared"]
        return PairFigures(
            cosine=total["product"] / norms if norms else None,
            sign_conflicts=(1 - total["agreeing"] / shared) / 2 if shared else None,
            equal=not total["different"],
        )


# Of a pair of models: of the first alone, as of the second they stand at its transpose,
# or of both.
_SUMS = ("l1", "square", "product", "agreeing", "shared", "different")


def _sums_of(weights: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
    """Return sums of pairs, (n, n), and the elements that are not finite, (n,).

    ``weights`` (n, k) are some elements of n models, the base first.
    """
    n = len(weights)
    vectors = weights - weights[0]
    vectors[0] = weights[0]
    lengths, bad = vectors.abs().sum(dim=1), torch.zeros(n)
    # No sum is finite of numbers that are not, which takes long to look at.
    if not lengths.isfinite().all():
        odd = ~torch.isfinite(weights)
        bad = odd.sum(dim=1)
        vectors.masked_fill_(odd | odd[0], 0.0)
        lengths = vectors.abs().sum(dim=1)
    own = vectors[1:]
    signs = own.sign()
    nonzero = signs.abs()
    different = torch.zeros(n - 1, n - 1)
    for one, other in combinations(range(n - 1), 2):
        different[one, other] = not torch.equal(own[one], own[other])
    of_models = {
        "product": own @ own.T,
        "agreeing": signs @ signs.T,  # equal signs less opposite ones
        "shared": nonzero @ nonzero.T,  # of a model with itself: what it changes
        "different": different,
    }
    return {
        "l1": lengths[:, None].expand(n, n),
        "square": vectors.square().sum(dim=1, keepdim=True).expand(n, n),
        **{key: pad(value, (1, 0, 1, 0)) for key, value in of_models.items()},
    }, bad


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
    base: str, figures: Figures, names: Mapping[str, str], *, has_base: bool
) -> dict[str, list[Finding]]:
    """List findings from the figures, by reference; ``base`` is that of the base model.

    Where the first is no base model, there are no task vectors to judge.
    """
    found: dict[str, list[Finding]] = {model: [] for model in (base, *figures.models)}

    def equal(one: str, other: str) -> Finding:
        read = min(figures.models[m].n_read for m in (one, other) if m != base)
        cause = f"it does not differ from {names[one]} in any of the {read} parameters "
        same = read == figures.n_parameters or fingerprint(one) == fingerprint(other)
        cause += "that were compared"
        cause += ", so its coefficient would change nothing" if same else ""
        severity: Severity = "error" if same else "warning"
        return Finding("same-weights", severity, cause, "leave one of them out")

    found[base] += _not_finite(figures.base_not_finite)
    for model, figure in figures.models.items():
        found[model] += _not_finite(figure.not_finite)
        if figure.changed == 0:
            found[model].append(equal(base, model))
            continue
        found[model] += _far_away(
            figure.norm_ratio or 0.0, names[base], has_base=has_base
        )
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


def _far_away(ratio: float, base: str, *, has_base: bool) -> Iterator[Finding]:
    if ratio > _UNRELATED:
        cause = f"its weights differ from those of {base} by {ratio:.1f} times their "
        cause += "norm, so it is not a fine-tune of the same model"
        yield Finding("unrelated", "error", cause, "merge models of one base")
    elif has_base and ratio > LARGEST_RATIO:
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
