"""Standard errors of differences, as ``front.json`` keeps them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from fronts import as_json, from_json, make_front
from pydantic import ValidationError

from mergekit_map.results.paired import Differences

ROW = ([(0.5, 0.1), (2.0, 0.1)],) * 2


def test_a_triangle_is_kept_and_gives_the_symmetric_array_back() -> None:
    square = np.array([[0, 0.123456, 2], [0.123456, 0, 3e-9], [2, 3e-9, 0]])

    kept = Differences.of([0, 2, 3], square, 7, answers=True)
    content = json.dumps(kept.model_dump(mode="json"))
    five = np.arange(5)
    array = Differences.model_validate_json(content).between(five[:, None], five)

    assert kept.answers
    assert kept.stderr == ((0.12346,), (2.0, 3e-9))  # five digits
    assert np.isnan(array[[1, 4]]).all()
    np.testing.assert_array_equal(array, array.T)
    np.testing.assert_allclose(array[np.ix_([0, 2, 3], [0, 2, 3])], square, rtol=5e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merges": [1, 0]}, "in order"),
        ({"merges": [0, 0]}, "in order"),
        ({"stderr": [[0.1, 0.2]]}, "no triangle"),
    ],
)
def test_what_is_no_triangle_of_merges_is_refused(
    change: dict[str, Any], message: str
) -> None:
    content = {"items": 3, "merges": [0, 1], "stderr": [[0.1]], **change}

    with pytest.raises(ValidationError, match=message):
        Differences.model_validate_json(json.dumps(content))


def test_a_front_refuses_differences_of_merges_and_tasks_that_it_lacks() -> None:
    content = {"items": 3, "merges": [0, 1], "stderr": [[0.1]]}

    found = make_front([ROW], {"base": ROW[0]}, differences={"math": content})

    pair = np.array([0]), np.array([1])
    assert found.differences["math"].between(*pair).tolist() == [0.1]
    assert not found.differences["math"].answers  # of items nothing else is known of
    for others in ({"text": content}, {"math": {**content, "merges": [0, 2]}}):
        with pytest.raises(ValidationError, match="no such task, or merge"):
            make_front([ROW], {"base": ROW[0]}, differences=others)


def test_a_front_without_the_later_keys_is_written_as_it_was_read() -> None:
    content = as_json(make_front([ROW]))

    assert not {"differences", "border"} & content.keys()
    assert "foretold" not in content["points"][0]
    assert as_json(from_json(content)) == content
