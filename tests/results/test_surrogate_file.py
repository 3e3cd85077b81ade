"""Surrogates as JSON: every bit, and numbers that nobody fitted."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from surrogate_data import IDENTITY, LINKS, fit, noisy_data, noisy_fit

from mergekit_map.results.surrogate_file import (
    ProcessRecord,
    QuadraticRecord,
    SurrogateRecord,
)
from mergekit_map.surrogates.gaussian_process import Process, averaged, fit_process
from mergekit_map.surrogates.kernel import Rows
from mergekit_map.surrogates.links import Link

U = np.random.default_rng(0).uniform(-0.5, 0.5, size=(6, 2))


def fitted(sampling: float = 0.0) -> Process:
    rows, z = Rows(U, np.ones(6), sampling * np.arange(6)), np.sin(4 * U[:, 0])
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
        {"points": [[0.1, 0.2]] * 6, "noise": [0.0] * 6},  # no covariance has a root
        {"points": [[1e3, -1e3]] * 6, "theta": [20.0] * 7, "draws": [[20.0] * 7] * 2},
        {"theta": [-20.0] * 7, "draws": [[-20.0] * 7] * 2, "noise": [0.0] * 6},
        {"noise": [1e100] * 6, "seen": [1e50] * 6, "scale": 1e50, "offset": 1e50},
        {"seen": [1e50, -1e50] * 3, "scale": 1e-100, "weights": [0.0, 0.0]},
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


def quadratic(**change: object) -> dict[str, object]:
    made = QuadraticRecord(intercept=0.0, linear=[1.0, 2.0], hessian=[[0.0] * 2] * 2)
    return {"quadratic": {**made.model_dump(), **change}}


@pytest.mark.parametrize(
    ("record", "change", "message"),
    [
        (ProcessRecord, {"theta": [21.0] * 7}, "theta"),
        (ProcessRecord, {"seen": [0.0] * 7}, r"seen: numbers are \(6,\)"),
        (ProcessRecord, {"draws": [[0.0] * 8]}, r"draws: numbers are \(1, 7\)"),
        (SurrogateRecord, {"process": None}, "process"),
        (SurrogateRecord, {"bounds": [[0.0, 1.0]]}, r"points: numbers are \(14, 1\)"),
        (SurrogateRecord, quadratic(linear=[1.0]), r"linear: .* \(2,\), got \(1,\)"),
        (SurrogateRecord, quadratic(hessian=[[1.0, 2.0], [3.0]]), "hessian: .*2, 2"),
        (SurrogateRecord, quadratic(intercept="x"), "intercept"),
    ],
)
def test_a_damaged_file_names_what_is_wrong(
    record: Any, change: dict[str, object], message: str
) -> None:
    made = fitted() if record is ProcessRecord else noisy_fit(IDENTITY)
    data = record.of(made).model_dump(mode="json")

    with pytest.raises(ValidationError, match=message):
        record.model_validate_json(json.dumps({**data, **change}))


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("n", "kind"), [(6, "quadratic"), (14, "residual_gp")])
def test_json_keeps_every_bit(link: Link, n: int, kind: str) -> None:
    X, y = noisy_data(link, n=n)
    bounds = np.array([[-0.3, 1.7], [0.1, 0.7]])
    fitted = fit(X, y, link, kind, bounds=bounds)
    Z = np.random.default_rng(1).normal(size=(30, 2))

    text = SurrogateRecord.of(fitted).model_dump_json()
    loaded = SurrogateRecord.model_validate_json(text).value()

    assert loaded.predict(Z).tobytes() == fitted.predict(Z).tobytes()
    assert loaded.stderr(Z).tobytes() == fitted.stderr(Z).tobytes()
    assert loaded.link == fitted.link
    np.testing.assert_equal(asdict(loaded.quality), asdict(fitted.quality))
    assert SurrogateRecord.of(loaded).model_dump_json() == text


def test_a_file_speaks_the_users_units() -> None:
    X = np.random.default_rng(0).uniform(-1, 3, size=(10, 2))
    y = 1 + 2 * X[:, 0] - X[:, 1] + 3 * X[:, 0] * X[:, 1] + 0.5 * X[:, 1] ** 2

    fitted = fit(X, y, bounds=np.array([[-1.0, 3.0]] * 2))
    record = SurrogateRecord.of(fitted).model_dump()

    data = record["quadratic"]
    assert data["intercept"] == pytest.approx(1)
    assert data["linear"] == pytest.approx([2, -1])
    np.testing.assert_allclose(data["hessian"], [[0, 3], [3, 1]], atol=1e-10)
    assert record["link"] == {"lower": None, "upper": None}
