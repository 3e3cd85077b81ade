"""New configurations: of a plain mergekit file, and what their JSON Schema takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from runs import invoke, set_at

from mergekit_map.errors import ConfigError
from mergekit_map.workflows.init import config_schema, extend_plain

PLAIN = """\
# My merge, as tuned by hand
merge_method: dare_ties
base_model: org/base     # from the Hub
models:
  - model: org/base
  - model: org/law-model
    parameters: {weight: 0.5, density: 0.5}   # law counts
  - model: org/medicine
    parameters:
      weight: 3e-1   # tried 0.2
      density: 0.5
  - model: org/third
dtype: bfloat16"""


def extended(text: str) -> str:
    Path("plain.yml").write_text(text)
    return extend_plain(Path("plain.yml"), {})


def test_only_weights_change_and_a_block_follows() -> None:
    text = extended(PLAIN)

    assert text.startswith(
        "# Searched by name: the weights of law-model (was 0.5), medicine (was 0.3)\n"
    )
    content = yaml.safe_load(text)
    weights = [e.get("parameters", {}).get("weight") for e in content["models"]]
    assert weights == [None, "law-model", "medicine", None]
    names = ("law-model", "medicine", "third")
    tasks = {name: {"perplexity": f"{name}.txt"} for name in names}
    assert content.pop("map") == {"tasks": tasks}
    was = yaml.safe_load(PLAIN)
    for entry in (*content["models"], *was["models"]):
        entry.get("parameters", {}).pop("weight", None)
    assert content == was
    odd = PLAIN.replace("weight: 0.5", "weight: .nan").replace("3e-1", "-1.5")
    search = yaml.safe_load(extended(odd))["map"]["search"]
    assert search == {"bounds": {"medicine": [-1.5, 1]}}
    by_ratio = odd.replace("dare_ties", "nuslerp")
    assert "search" not in yaml.safe_load(extended(by_ratio))["map"]
    # Of three models, normalised weights cannot be told apart.
    normalized = PLAIN.replace("3e-1", "30") + "\nparameters: {normalize: true}"
    assert yaml.safe_load(extended(normalized))["parameters"] == {"normalize": False}
    assert "bounds" not in extended(normalized)
    # A number is no name of a weight.
    assert "weight: 500-model" in extended(PLAIN.replace("medicine", "500"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("merge_method: ties\nmap: {}\nmodels: []", r"plain.yml:2: map: .*already"),
        ("merge_method: ties", r"'models:' with a 'model:' each was expected.*none"),
        ("base_model: a\nmodels: [{model: a}]", "'models:' with a 'model:' each"),
    ],
)
def test_what_cannot_be_extended_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        extended(text)


def test_init_writes_it_and_names_the_next_steps() -> None:
    Path("plain.yml").write_text(PLAIN)
    Path("fr.txt").touch()
    Path("point.txt").touch()  # the name of a column
    texts = ["--text", "fr.txt", "--text", "point.txt"]
    command = ["init", "plain.yml", "merge.yml", *texts, "--task", "bbh"]

    steps = ["  mergekit-map inspect merge.yml", "  mergekit-map run merge.yml OUT"]
    assert invoke(*command).stderr.splitlines() == ["wrote merge.yml", *steps]
    tasks = yaml.safe_load(Path("merge.yml").read_text())["map"]["tasks"]
    assert tasks.pop("taskpoint") == {"perplexity": "point.txt"}
    assert tasks == {"fr": {"perplexity": "fr.txt"}, "bbh": {"preset": "bbh"}}
    assert Path("plain.yml").read_text() == PLAIN


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
  select: {require: {math: 95 %, code: 2.5}, prefer: {own: 2}}
  merge: disk
  backend: {name: vllm, args: {gpu_memory_utilization: 0.8}}
"""

WRONG: dict[str, tuple[list[Any], Any]] = {
    "a method without weights": (["merge_method"], "slerp"),
    "a key mergekit would ignore": (["models", 0, "weigth"], 1.0),
    "a parameter of no method": (["models", 0, "parameters", "desnity"], 0.5),
    "a model that is a number": (["models", 0, "model"], 3),
    "a task that is no file name": (["map", "tasks", "a/b"], {"lm_eval": "x"}),
    "a preset of nothing": (["map", "tasks", "math"], {"preset": "gsm9k"}),
    "no tasks": (["map", "tasks"], {}),
    "a share of nothing": (["map", "select", "require", "math"], "0.0%"),
}


def test_takes_every_kind_of_key_and_asks_for_a_map_block() -> None:
    config = yaml.safe_load(CONFIG)
    jsonschema.validate(config, config_schema())
    del config["map"]

    with pytest.raises(jsonschema.ValidationError, match="'map' is a required"):
        jsonschema.validate(config, config_schema())


@pytest.mark.parametrize("case", WRONG)
def test_refuses(case: str) -> None:
    keys, value = WRONG[case]
    config = yaml.safe_load(CONFIG)
    set_at(config, value, *keys)

    assert not jsonschema.Draft202012Validator(config_schema()).is_valid(config)


def test_every_key_has_a_description() -> None:
    definitions = config_schema()["$defs"]
    ours = [name for name in definitions if name.endswith(("Spec", "Task", "Source"))]
    assert len(ours) == 9, "a new form of the configuration is counted here"

    for name in ours:
        for key, field in definitions[name]["properties"].items():
            assert "description" in field or "$ref" in field, f"{name}.{key}"
