"""Table 1 and figure 3: how short the task vectors are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import yaml

from mergekit_map.compare.tables import Column, Table
from mergekit_map.evaluation.project import read_draft
from mergekit_map.models.preflight import inspect_models
from mergekit_map.models.task_vectors import Weights
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.utils.files import write_atomically
from paper.drawing import PREDICTED, new_figure
from paper.kept import Result
from paper.published import LARGEST_ENTRY, MEAN_ENTRY, NORM_RATIOS
from paper.runs import Runs

_BUFFERS = ("running_mean", "running_var")  # of batch norms: no parameters
_BINS = np.linspace(-9, 0, 181)  # of the decimal logarithm of an entry


@dataclass
class _Entries:
    """What is known of the entries of a task vector."""

    name: str
    base: float = 0.0  # 1-norm
    vector: float = 0.0  # 1-norm
    largest: float = 0.0
    count: int = 0
    counts: FloatArray | float = 0.0  # by bin


def _entries(runs: Runs) -> list[_Entries]:
    """Read base and models whole, tensor by tensor."""
    runs.folder.mkdir(parents=True, exist_ok=True)
    config = runs.folder / "vectors.yml"
    content = runs.content(runs.models)
    write_atomically(config, yaml.safe_dump(content, sort_keys=False))
    draft = read_draft(config)
    assert draft.merge is not None, draft.problems
    base, *models = inspect_models(draft.merge, draft.options, download=False).models
    found = []
    for name, model in zip(runs.models, models, strict=True):
        assert base.weights is not None
        assert model.weights is not None
        found.append(_of_model(name, base.weights, model.weights))
    return found


def _of_model(name: str, base: Weights, model: Weights) -> _Entries:
    found = _Entries(name)
    for theta, weights in _tensors(base, model):
        vector = np.abs(weights - theta)
        found.base += float(np.abs(theta).sum())
        found.vector += float(vector.sum())
        found.largest = max(found.largest, float(vector.max(initial=0)))
        found.count += vector.size
        logarithms = np.log10(vector[vector > 0])
        found.counts += np.histogram(logarithms, _BINS)[0]
    return found


def _tensors(base: Weights, model: Weights) -> Iterator[tuple[FloatArray, FloatArray]]:
    for name, header in base.headers.items():
        other = model.headers.get(name)
        if name.endswith(_BUFFERS) or other is None:
            continue
        if header.is_float and other.shape == header.shape:
            pair = (w.read(name, 0, header.n_rows) for w in (base, model))
            one, two = (tensor.double().numpy().ravel() for tensor in pair)
            yield one, two


def table1(runs: Runs) -> Result:
    """Hold the 1-norms of the task vectors against that of the base model."""
    found = _entries(runs)
    ratios = [entries.vector / entries.base for entries in found]
    rows = [
        [e.name, round(e.base), round(e.vector), ratio]
        for e, ratio in zip(found, ratios, strict=True)
    ]
    low, high = min(NORM_RATIOS.values()), max(NORM_RATIOS.values())
    names = ", ".join(f"{name} {ratio} %" for name, ratio in NORM_RATIOS.items())
    return Result(
        title="Table 1: how long task vectors are beside the base model",
        headline=(
            f"1-norms of {100 * min(ratios):.2f} to {100 * max(ratios):.2f} % of the "
            "base model's "
            f"(paper: {low} to {high} %)."
        ),
        tables=[
            Table(
                name="norm_ratios",
                title="1-norms",
                caption="Of all parameters that base and fine-tune have in one shape.",
                columns=[
                    Column("model"),
                    Column("base"),
                    Column("task vector"),
                    Column("ratio", digits=2, percent=True),
                ],
                rows=rows,
            )
        ],
        notes=[f"The paper's: {names}."],
        data={"ratios": {e.name: r for e, r in zip(found, ratios, strict=True)}},
    )


def figure3(runs: Runs) -> Result:
    """Draw how large the entries of the task vectors are."""
    found = _entries(runs)
    figure, (axes,) = new_figure(1, 1, size=6)
    middles = 10 ** ((_BINS[:-1] + _BINS[1:]) / 2)
    shades = np.linspace(1, 0.35, len(found))
    for entries, shade in zip(found, shades, strict=True):
        density = np.asarray(entries.counts) / entries.count / np.diff(_BINS)
        axes.plot(middles, density, color=PREDICTED, alpha=shade, label=entries.name)
    largest = max(e.largest for e in found)
    mean = sum(e.vector for e in found) / sum(e.count for e in found)
    axes.axvline(mean, color="black", linestyle="--", linewidth=1, label="mean of all")
    axes.set_xscale("log")
    axes.set_xlim(min(mean, MEAN_ENTRY) / 1e3, 2 * largest)
    axes.set_xlabel("absolute value of an entry of a task vector")
    axes.set_ylabel("density, per factor of ten")
    axes.legend(frameon=False, fontsize=8)
    rows = [[e.name, e.largest, e.vector / e.count] for e in found]
    return Result(
        title="Figure 3: how large the entries of task vectors are",
        headline=(
            f"The largest is {largest:.5f}, the mean {mean:.3g} (paper: "
            f"{LARGEST_ENTRY} and {MEAN_ENTRY})."
        ),
        figure=figure,
        caption="Densities of the absolute values; entries that are 0 are left out.",
        tables=[
            Table(
                name="entries",
                title="Entries of task vectors",
                caption="Absolute values; entries that are 0 count in the means.",
                columns=[Column("model"), Column("largest", 5), Column("mean", 7)],
                rows=rows,
            )
        ],
        data={"largest": largest, "mean": mean},
    )
