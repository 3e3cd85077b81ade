"""Surrogates as JSON: every bit, in the user's units."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from pydantic import ValidationError
from surrogate_data import IDENTITY, LINKS, noisy_data, noisy_fit

from mergekit_map.results.surrogate_file import SurrogateRecord
from mergekit_map.surrogates.fit import fit_surrogate
from mergekit_map.surrogates.links import Link


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("n", [6, 14])
def test_json_keeps_every_bit(link: Link, n: int) -> None:
    X, y = noisy_data(link, n=n)
    bounds = np.array([[-0.3, 1.7], [0.1, 0.7]])
    fitted = fit_surrogate(X, y, stderr=None, link=link, bounds=bounds)
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

    fitted = fit_surrogate(
        X, y, stderr=None, link=IDENTITY, bounds=np.array([[-1.0, 3.0]] * 2)
    )
    data = SurrogateRecord.of(fitted).model_dump()

    assert data["intercept"] == pytest.approx(1)
    assert data["linear"] == pytest.approx([2, -1])
    np.testing.assert_allclose(data["hessian"], [[0, 3], [3, 1]], atol=1e-10)
    assert data["link"] == {"lower": None, "upper": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"covariance": None}, "covariance"),
        ({"linear": [1.0]}, r"linear: numbers are \(2,\), got \(1,\)"),
        ({"hessian": [[1.0, 2.0], [3.0]]}, r"hessian: numbers are \(2, 2\)"),
        ({"intercept": "x"}, "intercept"),
    ],
)
def test_a_damaged_file_names_what_is_wrong(
    change: dict[str, object], message: str
) -> None:
    data = SurrogateRecord.of(noisy_fit(IDENTITY)).model_dump(mode="json")

    with pytest.raises(ValidationError, match=message):
        SurrogateRecord.model_validate_json(json.dumps({**data, **change}))
