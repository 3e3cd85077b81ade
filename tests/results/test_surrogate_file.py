"""Surrogates as JSON: every bit, and numbers that nobody fitted."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from surrogate_data import IDENTITY, LINKS, fit, noisy_data, noisy_fit

from mergekit_map.results.surrogate_file import (
    IsotropicRecord,
    ProcessRecord,
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
        {"noise": [1e100] * 6, "seen": [1e100] * 6, "scale": 1e100, "offset": 1e100},
        {"seen": [1e100, -1e100] * 3, "scale": 1e-100, "weights": [0.0, 0.0]},
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
    ("record", "change", "message"),
    [
        (ProcessRecord, {"theta": [21.0] * 7}, "theta"),
        (ProcessRecord, {"seen": [0.0] * 7}, r"seen: numbers are \(6,\)"),
        (ProcessRecord, {"draws": [[0.0] * 8]}, r"draws: numbers are \(1, 7\)"),
        (ProcessRecord, {"sloped": []}, r"theta: numbers are \(8,\)"),
        (SurrogateRecord, {"covariance": None}, "covariance"),
        (SurrogateRecord, {"linear": [1.0]}, r"linear: numbers are \(2,\), got \(1,\)"),
        (
            SurrogateRecord,
            {"hessian": [[1.0, 2.0], [3.0]]},
            r"hessian: numbers are \(2",
        ),
        (SurrogateRecord, {"intercept": "x"}, "intercept"),
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
@pytest.mark.parametrize("n", [6, 14])
def test_json_keeps_every_bit(link: Link, n: int) -> None:
    X, y = noisy_data(link, n=n)
    bounds = np.array([[-0.3, 1.7], [0.1, 0.7]])
    fitted = fit(X, y, link, bounds=bounds)
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
    data = SurrogateRecord.of(fitted).model_dump()

    assert data["intercept"] == pytest.approx(1)
    assert data["linear"] == pytest.approx([2, -1])
    np.testing.assert_allclose(data["hessian"], [[0, 3], [3, 1]], atol=1e-10)
    assert data["link"] == {"lower": None, "upper": None}


@pytest.mark.parametrize("sloped", [[], [2]])
def test_a_process_that_could_know_slopes_is_read_if_it_knows_none(
    sloped: list[int],
) -> None:
    X, y = noisy_data(IDENTITY, n=8)
    fitted = fit(X, y, kind="residual_gp")
    data = SurrogateRecord.of(fitted).model_dump(mode="json")
    process = data["process"] | {"sloped": sloped}
    for theta in (process["theta"], *process["draws"]):
        theta.insert(4, -2.3)
    for name in ("seen", "noise"):
        process[name] = process[name] + [0.5, 0.5] * len(sloped)
    text = json.dumps(data | {"process": process})

    read = SurrogateRecord.model_validate_json(text).value()

    assert read.predict(X).tobytes() == fitted.predict(X).tobytes()
    errors = fitted.stderr(X) if not sloped else np.full(8, np.nan)
    np.testing.assert_array_equal(read.stderr(X), errors)


def test_a_process_of_version_1_predicts_what_it_did() -> None:
    rng = np.random.default_rng(0)
    points, U = rng.uniform(-0.5, 0.5, size=(12, 2)), rng.uniform(-1, 1, size=(30, 2))
    left, scale = rng.normal(size=12), 0.7
    theta = np.log([1.3, 0.4, 0.02])
    kernel = ConstantKernel(1.3) * RBF(0.4) + WhiteKernel(0.02)
    process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)

    data = {"points": points.tolist(), "left": left.tolist(), "theta": theta.tolist()}
    record = IsotropicRecord.model_validate_json(json.dumps({**data, "scale": scale}))
    found = record.value().predict(U)

    expected = scale * process.fit(points, left / scale).predict(U)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_process_of_version_1_that_nobody_fitted_still_predicts_numbers() -> None:
    data = {"points": [[0.1]] * 3, "left": [1.0, 2.0, 3.0], "scale": 1.0}
    for theta in ([0.0, 0.0, -100.0], [100.0] * 3, [-100.0] * 3, [100.0, -100.0, 0.0]):
        text = json.dumps({**data, "theta": theta})
        found = IsotropicRecord.model_validate_json(text).value()
        assert np.isfinite(found.predict(np.array([[0.1], [0.4]]))).all()
