"""A loss with a step, measured exactly on documents that all merges share.

Its standard error is that of the documents, and explains nothing of what a smooth fit
leaves: the same merge would give the same loss again.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fakes import line, make_study
from scipy.stats import qmc

from mergekit_map.results.front import Front
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import write_samples
from mergekit_map.search.finish import found_front
from mergekit_map.search.study import StudyResult
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link
from mergekit_map.types import Answers, Measurement, Metric
from mergekit_map.workflows.holdout import with_differences

LOSS = Metric(higher_is_better=False, lower=None, upper=None, unit="nats/token")
N = 40
HARD = np.linspace(-1, 1, N)  # what blocks have more or less than the others
STUDY = make_study("ab", ["loss"], ("base",), LOSS)


def blocks(a: float, b: float) -> np.ndarray:
    """Losses per block (N,): a valley, and a step on which each block falls by 0.3."""
    valley = 2 + 0.2 * (a - 0.6) ** 2 + 0.2 * (b - 0.5) ** 2
    return valley + HARD * (1 + a / 50) + 0.3 * (a < 0.52)


def step_front(folder: Path) -> Front:
    """Fit 12 merges and the anchor; the chosen point is just below the step."""
    chosen = {"a": 0.51, "b": 0.55}
    rows = [np.zeros(2), *qmc.Sobol(2, seed=1).random(16)[:12]]
    places = [*map(STUDY.named, rows), chosen]
    values, log = [], []
    for place in places:
        losses = blocks(**place)
        samples = [{"block": i, "loss": x, "tokens": 9} for i, x in enumerate(losses)]
        answers = Answers(tuple(range(N)), tuple(losses.tolist()), (9.0,) * N)
        measured = Measurement(0.0, None, 9, samples=tuple(samples), answers=answers)
        write_samples(folder / "loss", place, measured)
        values.append(float(losses.mean()))
        stderr = float(losses.std(ddof=1)) / math.sqrt(N)
        log.append(line(place, "loss", values[-1], stderr=stderr, n=N))
    fitted = fit_surrogate(
        np.array(rows),
        np.array(values[:-1]),
        stderr=None,
        link=Link(-math.inf, math.inf),
        bounds=STUDY.box,
    )
    return found_front(STUDY, StudyResult({"loss": fitted}, [chosen], 0), log)


@pytest.mark.parametrize("records", ["with records per item", "without"])
def test_a_step_is_told_as_a_wrong_shape_and_a_miss(
    tmp_path: Path, records: str
) -> None:
    front = step_front(tmp_path)
    measured = front.chosen.measured["loss"]
    predicted = front.chosen.readings("predicted")["loss"].value or 0.0
    values = [m.measured["loss"].value or 0.0 for m in front.known]
    missed = abs((measured.value or 0.0) - predicted) / np.ptp(values)
    assert missed > 0.25
    assert missed * np.ptp(values) < 2 * (measured.stderr or 0.0)  # no excuse

    if records == "with records per item":
        front = with_differences(front, tmp_path, RunFolder(tmp_path))
        assert front.differences["loss"].items == N

    words = " ".join(front.verdicts)
    assert "measure more documents" not in words
    assert "Predictions of loss are not reliable" in words
