"""The true values of a family's merges, anywhere in its box.

A ``Truth`` interpolates what ``contest_families.py`` measured, item by item (the loss
of a block of text, the log-likelihood of an answer): that is smooth even where the
metric, such as an accuracy, is not.

Notation: ``d`` coefficients, ``m`` tasks, ``X`` (k, d) merges, ``Y`` (k, m) values in
the tasks' own units and direction, ``b`` items of a task.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.metrics import r2_score

from mergekit_map.optimize.design import draw_sobol
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.samples import Itemised, compare_items
from mergekit_map.types import Measurement, Metric

Array = np.ndarray[Any, np.dtype[np.float64]]

LOSS = Metric(higher_is_better=False, lower=0.0, upper=None, unit="nats/token")
ACCURACY = Metric(higher_is_better=True, lower=0.0, upper=1.0)
UNSEEN = 500


# What is searched, by the number of models: families of losses, and of questions, of
# which as many are seen as the name ends with.
_SCENES = {
    2: "n2_shape n2_wide ties2 acc2_30 acc2_50 acc2_100 acc2_200",
    3: "n3 n3_wide n3_shape acc3_50 acc3_200",
    4: "n4",
    7: "n7",
}
SCENES = {name: d for d, names in _SCENES.items() for name in names.split()}
# Of real models, which ``unseen.py`` writes.
REAL = {f"smollm2_{d}": d for d in (2, 3, 4)}


def compared(front: Front, items: Sequence[Sequence[Array]]) -> Front:
    """Compare measured merges as ``run`` does, by what their values are means of.

    ``items`` has a row per merge of ``front.all_merges``, with arrays (b,), one a task.
    """

    def itemised(merge: Merge, x: Array) -> Itemised | None:
        known = tuple(("", i) for i in range(len(x)))
        whole = merge.is_measured(*front.tasks)
        return Itemised(known, (x - x.mean()) / len(x)) if whole else None

    columns = zip(front.tasks, zip(*items, strict=True), strict=True)
    differences = {
        task: compare_items([*map(itemised, front.all_merges, column)])
        for task, column in columns
    }
    return front.model_copy(update={"differences": differences})


@functools.cache
def scene(folder: Path, name: str) -> Truth:
    """Read the truth of a scene, from the folder of the families."""
    if not name.startswith("acc"):
        return Truth(folder / f"{name}.npz")
    family, _, questions = name.partition("_")
    return Truth(folder / f"{family}.npz", int(questions))


class Truth:
    """The values of any merge of a family, smooth between those that were measured."""

    def __init__(self, path: Path, questions: int | None = None, points: Any = ...):
        """Read ``NAME.npz``; of accuracies the first ``questions`` alone.

        ``points`` (indices) limits what is interpolated.
        """
        with np.load(path) as found:
            self.names = tuple(map(str, found["names"]))
            self.bounds: Array = found["bounds"]
            X, items = found["X"][points], found["items"][points]
        self.metric = LOSS if items.ndim == 3 else ACCURACY
        if self.metric is ACCURACY:
            items = items[:, :, :questions]
        self._shape = items.shape[1:]
        self._items = self._interpolator(X, items.reshape(len(X), -1))
        # Interpolation is linear in the data, so that a mean loss needs no items.
        self._losses = self._interpolator(X, values(items))

    def items(self, X: Array) -> Array:
        """Give what the metric is a mean of, (k, m, b): block losses, rights as 1."""
        items = self.scores(X)
        return items if self.metric is LOSS else _right(items)

    def scores(self, X: Array) -> Array:
        """Give losses (k, m, b), or log-likelihoods of answers (k, m, b, answers)."""
        return np.asarray(self._items(self._unit(X)).reshape(len(X), *self._shape))

    def predict(self, X: Array) -> Array:
        """Give the values of merges (k, d) in every task, (k, m)."""
        if self.metric is LOSS:
            return np.asarray(self._losses(self._unit(X)))
        return self.items(X).mean(axis=2)

    def utilities(self, X: Array) -> Array:
        """Give the same with larger better."""
        return self.metric.sign * self.predict(X)

    def stderr(self, X: Array) -> Array:
        """Give the standard errors of the values, (k, m), if items are independent."""
        items = self.items(X)
        return np.asarray(items.std(axis=2, ddof=1) / np.sqrt(items.shape[2]))

    def _unit(self, X: Array) -> Array:
        return X / self.bounds[:, 1]

    def _interpolator(self, X: Array, Y: Array) -> RBFInterpolator:
        return RBFInterpolator(self._unit(X), Y, kernel="quintic", degree=3)


def plain_design(bounds: Array, n: int, seed: int) -> Array:
    """Give the anchors of a box (d, 2) from 0, and Sobol points, (n, d)."""
    anchors = anchor_merges(len(bounds))
    rng = np.random.default_rng(seed)
    U = draw_sobol(max(n - len(anchors), 1), len(bounds), rng)
    return np.vstack([anchors, U * bounds[:, 1]])[:n]


def anchor_merges(d: int) -> Array:
    """Give the base, every single model, and the uniform soup; (d + 2, d)."""
    return np.vstack([np.zeros(d), np.eye(d), np.full(d, 1 / d)])


def unseen_merges(bounds: Array) -> Array:
    """Draw merges to predict, the same ones for all; (UNSEEN, d)."""
    rng = np.random.default_rng(12345)
    return np.asarray(draw_sobol(UNSEEN, len(bounds), rng)[:UNSEEN] * bounds[:, 1])


def keep_family(
    path: Path, names: Sequence[str], upper: float, X: Array, items: Array
) -> None:
    """Write ``NAME.npz``: items (k, m, b) of merges ``X`` in a box from 0."""
    bounds = np.array([[0.0, upper]] * X.shape[1])
    about = {"names": np.array(names), "bounds": bounds}
    np.savez(path, X=X, Y=values(items), items=items, **about)


def block_losses(texts: Iterable[Measurement]) -> Array:
    """List the losses of texts block by block, (m, b), whose mean is the value."""
    samples = [measured.samples for measured in texts]
    shortest = min(map(len, samples))
    rows = []
    for of_text in samples:
        blocks = of_text[:shortest]
        tokens = np.array([block["tokens"] for block in blocks])
        losses = np.array([block["loss"] for block in blocks])
        rows.append(losses * tokens / tokens.mean())
    return np.array(rows)


def values(items: Array) -> Array:
    """Average items (k, m, b), or the questions (k, m, b, answers) that are right."""
    return np.asarray((items if items.ndim == 3 else _right(items)).mean(axis=2))


def quality(path: Path) -> Array:
    """Score the interpolation on a tenth held out; R2 (m,)."""
    with np.load(path) as found:
        X, Y = found["X"], found["Y"]
    held_out = np.random.default_rng(0).permutation(len(X)) < len(X) / 10
    predicted = Truth(path, points=~held_out).predict(X[held_out])
    return r2_score(Y[held_out], predicted, multioutput="raw_values")


def _right(answers: Array) -> Array:
    """Tell which questions are answered rightly, 1 or 0; the first answer is right."""
    return np.asarray(answers[..., 0] > answers[..., 1:].max(axis=-1), np.float64)
