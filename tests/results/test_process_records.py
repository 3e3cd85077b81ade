"""Processes in a file: every bit, and numbers that nobody fitted."""

import json

import numpy as np
import pytest
from pydantic import ValidationError

from mergekit_map.results.surrogate_file import ProcessRecord
from mergekit_map.surrogates.gaussian_process import Process, averaged, fit_process
from mergekit_map.surrogates.kernel import Rows

U = np.random.default_rng(0).uniform(-0.5, 0.5, size=(6, 2))


def fitted(sampling: float = 0.0) -> Process:
    errors = sampling * np.append(np.arange(6), [0, 0])
    rows = Rows(U, np.array([2]), np.ones(8), errors)
    z = np.append(np.sin(4 * U[:, 0]), [0.3, 0.1])
    return averaged(fit_process(rows, z, known_noise=False), known_noise=False)


@pytest.mark.parametrize("sampling", [0.0, 0.1 / 3])
def test_json_keeps_every_bit_of_a_process(sampling: float) -> None:
    process = fitted(sampling)

    text = ProcessRecord.of(process).model_dump_json()
    again = ProcessRecord.model_validate_json(text).value()

    for one, other in zip(again.predict(U), process.predict(U), strict=True):
        np.testing.assert_array_equal(one, other)
    assert ProcessRecord.of(again).model_dump_json() == text


@pytest.mark.parametrize(
    "change",
    [
        {"points": [[0.1, 0.2]] * 6, "noise": [0.0] * 8},  # no covariance has a root
        {"points": [[1e3, -1e3]] * 6, "theta": [20.0] * 8, "draws": [[20.0] * 8] * 2},
        {"theta": [-20.0] * 8, "draws": [[-20.0] * 8] * 2, "noise": [0.0] * 8},
        {"noise": [1e100] * 8, "seen": [1e100] * 8, "scale": 1e100, "offset": 1e100},
        {"seen": [1e100, -1e100] * 4, "scale": 1e-100, "weights": [0.0, 0.0]},
    ],
)
def test_numbers_that_nobody_fitted_still_predict_numbers(
    change: dict[str, object],
) -> None:
    data = ProcessRecord.of(fitted()).model_dump(mode="json")
    data |= {name: data[name][:2] for name in ("draws", "weights", "rough")}

    process = ProcessRecord.model_validate_json(json.dumps({**data, **change})).value()

    for numbers in process.predict(np.array([[0.0, 0.0], [0.5, -0.5]])):
        assert np.isfinite(numbers).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": [21.0] * 8}, "theta"),
        ({"seen": [0.0] * 7}, r"seen: numbers are \(8,\)"),
        ({"draws": [[0.0] * 7]}, r"draws: numbers are \(1, 8\)"),
        ({"sloped": [6]}, "sloped: there are 6 points"),
    ],
)
def test_a_damaged_process_names_what_is_wrong(
    change: dict[str, object], message: str
) -> None:
    data = ProcessRecord.of(fitted()).model_dump(mode="json")

    with pytest.raises(ValidationError, match=message):
        ProcessRecord.model_validate_json(json.dumps({**data, **change}))
