"""The JSON Schema takes what our own reader takes, and refuses what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
import yaml

from mergekit_map.workflows.init import config_schema

CONFIG = """
merge_method: dare_linear
base_model: org/base
models:
  - model: org/a@main
    parameters: {density: 0.5, weight: [low, 0.2, high]}
  - model: org/b+org/adapter
    parameters: {density: 0.5, weight: [{filter: mlp, value: x}, {value: 0.3}]}
parameters: {normalize: false}
tokenizer: {source: union}
dtype: bfloat16
map:
  tasks:
    math: {lm_eval: gsm8k, metric: exact_match, filter: strict-match, limit: 200}
    code: {perplexity: {file: code.jsonl, field: content}, max_tokens: 1000}
    own: {python: "mine:f", direction: minimize, range: [0, null]}
    prose: {perplexity: prose.txt}
    choices: {preset: arc_easy, limit: null}
  search: {strategy: nested, order: [[low, high], x], bounds: {low: [0, 2]}}
  select: {require: {math: 95%, code: 2.5}, prefer: {own: 2}}
  merge: disk
  backend: {name: vllm, args: {gpu_memory_utilization: 0.8}}
"""

WRONG: dict[str, tuple[list[Any], Any]] = {
    "no such method": (["merge_method"], "dare_liner"),
    "a method without weights": (["merge_method"], "slerp"),
    "a key mergekit would ignore": (["models", 0, "weigth"], 1.0),
    "a parameter of no method": (["models", 0, "parameters", "desnity"], 0.5),
    "a model that is a number": (["models", 0, "model"], 3),
    "no such strategy": (["map", "search", "strategy"], "grid"),
    "a task that is no file name": (["map", "tasks", "a/b"], {"lm_eval": "x"}),
    "a preset of nothing": (["map", "tasks", "math"], {"preset": "gsm9k"}),
    "no tasks": (["map", "tasks"], {}),
    "a limit in words": (["map", "select", "require", "math"], "lots"),
    "a share of nothing": (["map", "select", "require", "math"], "0.0%"),
}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture
def config() -> Any:
    return yaml.safe_load(CONFIG)


def changed(config: Any, path: list[Any], value: Any) -> Any:
    config = copy.deepcopy(config)
    holder = config
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = value
    return config


def test_takes_every_kind_of_key_and_asks_for_a_map_block(
    validator: jsonschema.Draft202012Validator, config: Any
) -> None:
    validator.validate(config)
    del config["map"]

    with pytest.raises(jsonschema.ValidationError, match="'map' is a required"):
        validator.validate(config)


@pytest.mark.parametrize("case", WRONG)
def test_refuses(
    case: str, validator: jsonschema.Draft202012Validator, config: Any
) -> None:
    path, value = WRONG[case]

    assert not validator.is_valid(changed(config, path, value))


def test_every_key_has_a_description() -> None:
    definitions = config_schema()["$defs"]
    ours = [name for name in definitions if name.endswith(("Spec", "Task", "Source"))]
    assert len(ours) == 9, "a new form of the configuration is counted here"

    for name in ours:
        for key, field in definitions[name]["properties"].items():
            assert "description" in field or "$ref" in field, f"{name}.{key}"
