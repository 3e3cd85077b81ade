"""How good a search's predictions are on merges that it did not measure.

    python benchmarks/unseen.py RUN OUT.jsonl [--merges 40] [--family FILE.npz]

Measures the corners of the box and a Sobol design on the documents of the search in
RUN, and keeps them in OUT; what is there is not measured again. Prints R², the share
within 1.96 standard errors, and R² of other fits to the same measurements of the
search: the quadratic of the paper, a plain Gaussian process and a random forest.
``--family`` keeps the merges as a family of ``contest_truth.py``. Texts only.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contest_truth import Array, block_losses, keep_family, quality
from mergekit.options import MergeOptions
from records import append, markdown, read
from scipy.stats import qmc
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from mergekit_map.evaluation.evaluator import merges_in_memory
from mergekit_map.evaluation.project import finished_project
from mergekit_map.results.surrogates import (
    FinishedSearch,
    fit_all,
    is_fitted,
    locate_in,
    read_finished,
)
from mergekit_map.surrogates.fit import r_squared


def measure(run: Path, X: Array, out: Path) -> list[dict[str, Any]]:
    """Measure the merges X (k, d) of which the record has none yet."""
    if len(read(out)) >= len(X):
        return read(out)
    options = MergeOptions().model_copy(update={"device": None})  # that of the search
    project = finished_project(run, options, trust_run=True)
    with merges_in_memory(project) as merges:
        for x in X[len(read(out)) :]:
            named = dict(zip(project.space.names, map(float, x), strict=True))
            found = {name: task() for name, task in merges(named).items()}
            values = {name: one.value for name, one in found.items()}
            blocks = block_losses(found.values()).tolist()
            append(out, {"x": x.tolist(), "values": values, "blocks": blocks})
    return read(out)


def others() -> dict[str, Any]:
    """Return the fits of other methods."""
    kernel = ConstantKernel() * Matern([0.5], nu=2.5) + WhiteKernel(1e-3)
    process = {"normalize_y": True, "n_restarts_optimizer": 5, "random_state": 0}
    return {
        "quadratic": make_pipeline(PolynomialFeatures(2), LinearRegression()),
        "plain GP": GaussianProcessRegressor(kernel, **process),
        "forest": RandomForestRegressor(500, random_state=0),
    }


def row(
    search: FinishedSearch, task: str, X: Array, merges: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Compare predictions for a task with the values of unseen merges."""
    y = np.array([merge["values"][task] for merge in merges])
    front, usable = search.front, [*filter(is_fitted, search.evaluations)]
    # As this version fits, whatever found the front.
    at = locate_in(front, (e.coefficients for e in usable))
    bounds, metrics = front.axis_bounds, {task: front.metrics[task]}
    surrogate = fit_all(metrics, bounds, front.surrogate, at, usable)[task]
    predicted, stderr = surrogate.predict(X), surrogate.stderr(X)
    known = [e for e in search.evaluations if e.task == task and e.value is not None]
    fitted = locate_in(search.front, (e.coefficients for e in known))
    found = [r_squared(y, predicted)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fit in others().values():
            fit.fit(fitted, [e.value for e in known])
            found.append(r_squared(y, fit.predict(X)))
    covered = (abs(y - predicted) <= 1.96 * stderr).sum()
    rmse = np.sqrt(((y - predicted) ** 2).mean())
    texts = [f"{r2:.3f}" for r2 in found] + [f"{covered} of {len(y)}"]
    return [task, str(len(known)), *texts, f"{stderr.mean():.3f}", f"{rmse:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--merges", type=int, default=40)
    parser.add_argument("--family", type=Path)
    asked = parser.parse_args()
    search = read_finished(asked.run)
    low, high = np.array([*search.front.coefficients.values()]).T
    corners = np.array([*itertools.product((0.0, 1.0), repeat=len(low))])
    sobol = qmc.Sobol(len(low), seed=0).random_base2((asked.merges - 1).bit_length())
    design = np.vstack([corners, sobol])[: asked.merges]
    merges = measure(asked.run, low + design * (high - low), asked.out)
    if asked.family:
        names, items = [*merges[0]["values"]], [merge["blocks"] for merge in merges]
        X = np.array([merge["x"] for merge in merges])
        keep_family(asked.family, names, 1.0, X, np.array(items))
        print("R² of an interpolation on a tenth left out:", quality(asked.family))
    known = {
        tuple(np.round(x, 9))
        for x in locate_in(search.front, (e.coefficients for e in search.evaluations))
    }
    merges = [merge for merge in merges if tuple(np.round(merge["x"], 9)) not in known]
    X = np.array([merge["x"] for merge in merges])
    head = ["task", "fitted", "R²", *others(), "covered", "stderr", "rmse"]
    rows = [row(search, task, X, merges) for task in search.front.tasks]
    print("\n".join(markdown(head, rows)))


if __name__ == "__main__":
    main()
