"""The sentences of wrong values, by what pydantic says of them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from mergekit_map.config.problems import mistakes
from mergekit_map.config.schema import BackendSpec, SearchSpec
from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PresetTask
from mergekit_map.results.front import Front
from mergekit_map.results.records import in_one_sentence
from mergekit_map.results.run_folder import Manifest


@pytest.mark.parametrize("record", [Front, Manifest])
def test_damaged_records_are_told_in_a_sentence(record: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="validation error") as caught:
        record.model_validate_json("{")

    assert "Invalid JSON: EOF" in in_one_sentence(caught.value)


HALF = {"lm_eval": "a", "metric": "b", "documents": "some"}
LIST = {"preset": "bbh", "limit": []}


@pytest.mark.parametrize(
    ("model", "content", "place", "text"),
    [
        (
            SearchSpec,
            {"evaluations": 0},
            "evaluations",
            "greater than or equal to 1, g",
        ),
        (SearchSpec, {"bounds": [0, "x"]}, "bounds 1", "a valid number, got 'x'"),
        (SearchSpec, {"bounds": {"a": [0]}}, "bounds a", "item 2 of the list is miss"),
        (SearchSpec, {"bounds": 3}, "bounds", "a valid tuple, or a valid dictionary"),
        (LmEvalTask, {}, "", "the keys 'lm_eval' and 'metric' are required and miss"),
        (LmEvalTask, HALF, "documents", "'all', or a valid integer, got 'some'"),
        (PerplexityTask, {"perplexity": 3}, "perplexity", "a valid dictionary, got 3"),
        (PresetTask, LIST, "limit", "a valid integer, or a valid number, got []"),
        (BackendSpec, {"name": "a", "args": [1]}, "args", "a valid dictionary, got"),
    ],
)
def test_says_what_was_wanted_and_got(
    model: type[BaseModel], content: Any, place: str, text: str
) -> None:
    with pytest.raises(ValidationError, match="validation error") as caught:
        model.model_validate(content)

    (found,) = mistakes(caught.value.errors(), content, model).items()

    assert " ".join(map(str, found[0])) == place
    assert found[1].removeprefix("Input should be ").startswith(text)
