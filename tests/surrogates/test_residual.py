"""Sums of bumps, those of version 1 against scikit-learn's process."""

import json

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mergekit_map.results.surrogate_file import IsotropicRecord


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
