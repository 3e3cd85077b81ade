"""No mistake is told in pydantic's words, whatever it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mergekit.config import MergeConfiguration
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticKnownError
from pydantic_core._pydantic_core import list_all_errors

from mergekit_map.config.problems import in_words, mistakes, parse_map_block, validated
from mergekit_map.config.schema import BackendSpec, SearchSpec, SelectSpec
from mergekit_map.config.tasks import (
    LmEvalTask,
    PerplexityTask,
    PresetTask,
    PythonTask,
    TextSource,
)
from mergekit_map.config.yaml_file import YamlFile, read_yaml
from mergekit_map.merging.validation import check_merge
from mergekit_map.results.front import Front
from mergekit_map.results.records import in_one_sentence
from mergekit_map.results.run_folder import Manifest

KNOWN = list_all_errors()
OWN = {"value_error", "assertion_error"}  # their text is that of whoever raised them

GOOD: dict[type[BaseModel], dict[str, Any]] = {
    SearchSpec: {},
    SelectSpec: {},
    BackendSpec: {"name": "vllm"},
    PerplexityTask: {"perplexity": "a.txt"},
    TextSource: {"file": "a.txt"},
    LmEvalTask: {"lm_eval": "arc_easy", "metric": "acc"},
    PresetTask: {"preset": "gsm8k"},
    PythonTask: {"python": "a:b", "direction": "maximize"},
}
VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 2.5, float("nan"), float("inf"), "", "words", "1e2"),
    *([], [1], [1, "x"], [1, 2, 3], ["auto"], [None, "x"], [[1]], {}, {"x": 1}),
    *({"x": "y"}, {"x": [0, "y"]}, {"file": 3}, {"file": "a.csv"}, {"text": None}),
    *({"x": None}, {"x": {"y": []}}, {"dataset": []}, [{"x": 1}], {"name": []}),
]


def phrases() -> Iterator[str]:
    """List what pydantic says, without what it fills in."""
    for error in KNOWN:
        if error["type"] in OWN or error["type"] == "json_invalid":
            continue
        for part in re.split(r"\{[^}]*\}|'[^']*'", error["message_template_python"]):
            if len(part.strip()) > 13:
                yield part.strip()
    yield from ("Input should", "input should", "valid dictionary", "Field required")
    yield from ("instance of", "Extra inputs", "validation error", "union_tag")


PHRASES = sorted(set(phrases()))


def refuse_phrases(text: str) -> None:
    assert not [phrase for phrase in PHRASES if phrase.lower() in text.lower()], text
    assert text.strip(), "a sentence is there"
    assert not re.search(r"\{[a-z_]+\}", text), "nothing is left to fill in"


def test_there_are_phrases_to_look_for() -> None:
    assert len(KNOWN) > 90
    assert len(PHRASES) > 60
    with pytest.raises(AssertionError, match="valid integer"):
        refuse_phrases("Input should be a valid integer, got 'x'")


@pytest.mark.parametrize("kind", [e["type"] for e in KNOWN if e["type"] not in OWN])
def test_every_kind_of_error_has_a_sentence_of_ours(kind: str) -> None:
    (error,) = (error for error in KNOWN if error["type"] == kind)
    context = error.get("example_context") or {}
    detail: Any = {"type": kind, "loc": ("key",), "input": [1], "ctx": context}
    detail["msg"] = PydanticKnownError(kind, context or None).message()

    text = in_words(detail)

    refuse_phrases(text.replace(str(context.get("error", "-")), ""))


@pytest.mark.parametrize("model", GOOD)
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_wrong_values_of_keys_are_told_in_our_words(
    model: type[BaseModel], number: int
) -> None:
    value = VALUES[number]
    for key in [*model.model_fields, "unknown"]:
        _, problems = validated(model, {**GOOD[model], key: value}, ("map",))
        for problem in problems:
            refuse_phrases(problem.message)
            assert problem.key[:1] == ("map",)


def test_wrong_values_of_mergekits_keys_are_told_in_our_words() -> None:
    merge = {"merge_method": "ties", "base_model": "b", "models": [{"model": "a"}]}
    seen = 0
    for key in MergeConfiguration.model_fields:
        for value in VALUES:
            for problem in check_merge({**merge, key: value}):
                refuse_phrases(problem.message)
                seen += 1
    for value in VALUES:
        for part in ({"model": value}, {"model": "a", "parameters": value}, value):
            for problem in check_merge({**merge, "models": [part]}):
                refuse_phrases(problem.message)
                seen += 1
        parameters = {"model": "a", "parameters": {"weight": value}}
        for problem in check_merge({**merge, "models": [parameters]}):
            refuse_phrases(problem.message)
    assert seen > 100


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_wrong_blocks_and_tasks_are_told_in_our_words(
    number: int, tmp_path: Path
) -> None:
    for block in (
        VALUES[number],
        {"tasks": VALUES[number]},
        {"tasks": {"a": VALUES[number]}},
        {"tasks": {"a": {"perplexity": VALUES[number]}}},
        {"tasks": {"a": {"preset": VALUES[number]}}},
        {"tasks": {"a": {"perplexity": "a.txt"}}, "search": VALUES[number]},
    ):
        for problem in parse_map_block(written(tmp_path, {"map": block}))[2]:
            refuse_phrases(problem.message)


def written(folder: Path, content: Any) -> YamlFile:
    (folder / "a.yml").write_text(yaml.safe_dump(content))
    return read_yaml(folder / "a.yml")


@pytest.mark.parametrize("record", [Front, Manifest])
def test_damaged_records_are_told_in_our_words(record: type[BaseModel]) -> None:
    for key in record.model_fields:
        for value in VALUES:
            with pytest.raises(ValidationError, match="validation error") as caught:
                record.model_validate({key: value})
            refuse_phrases(in_one_sentence(caught.value))
    with pytest.raises(ValidationError, match="validation error") as caught:
        record.model_validate_json("{")
    assert "it is no JSON: EOF" in in_one_sentence(caught.value)


HALF = {"lm_eval": "a", "metric": "b", "documents": "some"}


@pytest.mark.parametrize(
    ("model", "content", "place", "text"),
    [
        (SearchSpec, {"evaluations": 0}, "evaluations", "a number from 1 was expected"),
        (SearchSpec, {"bounds": [0, "x"]}, "bounds 1", "a number was expected, got 'x"),
        (SearchSpec, {"bounds": {"a": [0]}}, "bounds a", "item 2 of the list is miss"),
        (SearchSpec, {"bounds": 3}, "bounds", "a list or a mapping was expected"),
        (LmEvalTask, {}, "", "the keys 'lm_eval' and 'metric' are required and miss"),
        (LmEvalTask, HALF, "documents", "'all' or a whole number was expected, got 's"),
        (PerplexityTask, {"perplexity": 3}, "perplexity", "a mapping was expected, g"),
        (PresetTask, {"preset": "bbh", "limit": []}, "limit", "a number was expected"),
        (BackendSpec, {"name": "a", "args": [1]}, "args", "a mapping was expected, g"),
    ],
)
def test_says_what_was_wanted_and_got(
    model: type[BaseModel], content: Any, place: str, text: str
) -> None:
    with pytest.raises(ValidationError, match="validation error") as caught:
        model.model_validate(content)

    (found,) = mistakes(caught.value.errors(), content, model).items()

    assert " ".join(map(str, found[0])) == place
    assert found[1].startswith(text)


def test_what_left_may_be_named_where_it_was_off() -> None:
    off = {"gradients": False, "checkpoint_activations": False}

    assert SearchSpec.model_validate({"seed": 3, **off}) == SearchSpec(seed=3)
