from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mergekit_map.errors import ArtifactError
from mergekit_map.hub.sanitize import PublicNames, public_names
from mergekit_map.hub.upload_files import PublicFile, checkpoint_files, run_files

HOME = "/home/jane"
BASE, TUNED = f"{HOME}/models/base", f"{HOME}/models/tuned"
CONFIG = f"""# What jane searches
merge_method: linear
models:
- model: models/base  # my favourite
- model: x/one
map:
  tasks:
    mine: {{perplexity: {{file: {HOME}/texts/mine.txt}}}}
    other: {{perplexity: {{file: ../other.txt}}}}
    short: {{perplexity: ../texts/short.txt}}
    hub: {{perplexity: {{dataset: org/text}}}}
    own: {{lm_eval: ./tasks/own.yaml, metric: acc}}
    known: {{lm_eval: gsm8k, metric: acc}}
  backend: {{name: vllm, args: {{download_dir: {HOME}/cache}}}}
"""
RECIPE = f"""# mergekit-map 0.1.0, point 1 of 2.
# Merge it with: mergekit-yaml my/run/recipes/001.yml OUT --lora-merge-cache {HOME}/l
merge_method: linear
models:
- model: {BASE}
  parameters:
    weight: 0.30999940935401793
"""


@pytest.fixture
def names() -> PublicNames:
    return public_names([BASE, TUNED, "x/one"], places=[HOME], directory=HOME)


def put(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def texts(files: list[PublicFile]) -> dict[str, str]:
    return {
        f.path: f.content.decode()
        if isinstance(f.content, bytes)
        else f.content.read_text()
        for f in files
    }


def test_only_files_that_hold_paths_are_rewritten(
    tmp_path: Path, names: PublicNames
) -> None:
    put(tmp_path, "config.json", json.dumps({"_name_or_path": TUNED, "x": 1e-5}))
    put(tmp_path, "generation_config.json", '{"a": [1,\n2]}')
    put(tmp_path, "model.safetensors", f"weights {BASE}")
    put(tmp_path, "mergekit_config.yml", RECIPE)

    files = checkpoint_files(tmp_path, names)

    kept = {f.path: f.content for f in files if not f.rewritten}
    assert kept == {
        n: tmp_path / n for n in ("generation_config.json", "model.safetensors")
    }
    assert json.loads(texts(files)["config.json"]) == {
        "_name_or_path": "tuned",
        "x": 1e-5,
    }


def test_a_text_that_models_are_prompted_with_stays_to_the_letter(
    tmp_path: Path, names: PublicNames
) -> None:
    template = f"Write to {HOME}/out and {TUNED}/notes.txt"
    tokenizer = {"chat_template": template, "name_or_path": TUNED}
    put(tmp_path, "tokenizer_config.json", json.dumps(tokenizer))
    put(tmp_path, "processor_config.json", json.dumps({"chat_template": template}))
    put(tmp_path, "chat_template.jinja", template)

    files = checkpoint_files(tmp_path, names)

    assert [f.path for f in files if f.rewritten] == ["tokenizer_config.json"]
    public = json.loads(texts(files)["tokenizer_config.json"])
    assert public == {"chat_template": template, "name_or_path": "tuned"}


def test_paths_of_parents_are_named_at_any_depth_of_a_configuration(
    tmp_path: Path, names: PublicNames
) -> None:
    parts = [{"base_model_name_or_path": f"{HOME}/elsewhere/lora"}]
    config = {"text_config": {"_name_or_path": BASE}, "parts": parts}
    put(tmp_path, "config.json", json.dumps(config))

    public = json.loads(texts(checkpoint_files(tmp_path, names))["config.json"])

    assert public == {
        "text_config": {"_name_or_path": "base"},
        "parts": [{"base_model_name_or_path": "lora"}],
    }


def test_a_recipe_keeps_its_numbers_and_says_how_to_merge_it_here(
    tmp_path: Path, names: PublicNames
) -> None:
    put(tmp_path, "mergekit_config.yml", RECIPE)

    text = texts(checkpoint_files(tmp_path, names))["mergekit_config.yml"]

    assert text.splitlines()[:2] == [
        "# mergekit-map 0.1.0, point 1 of 2.",
        "# Merge it with: mergekit-yaml mergekit_config.yml OUT --lora-merge-cache l",
    ]
    private, public = yaml.safe_load(RECIPE), yaml.safe_load(text)
    private["models"][0]["model"] = "base"
    assert public == private


def test_tokens_that_look_like_paths_stay(tmp_path: Path, names: PublicNames) -> None:
    put(tmp_path, "tokenizer.json", json.dumps({HOME: 1, f"{HOME}/x": 2}))

    assert not checkpoint_files(tmp_path, names)[0].rewritten


def test_a_damaged_file_is_named(tmp_path: Path, names: PublicNames) -> None:
    put(tmp_path, "config.json", "{")

    with pytest.raises(ArtifactError, match=r"config\.json cannot be read: .*merge"):
        checkpoint_files(tmp_path, names)


def test_a_search_goes_along_without_samples_and_checkpoints(
    tmp_path: Path, names: PublicNames
) -> None:
    kept = [
        "config.yml",
        "evaluations.jsonl",
        "front.csv",
        "front.json",
        "front.png",
        "manifest.json",
        "nested/pair-1.yml",
        "nested/pair-1/front.json",
        "nested/pair-1/recipes/000.yml",
        "recipes/000.yml",
        "compare/fronts.md",
    ]
    left = [
        ".mergekit-map.lock",
        "samples/abc/task/0.json",
        "nested/merged/pair-1/model.safetensors",
        "nested/pair-1/samples/abc/task/0.json",
        "my-notes.txt",
        "recipes/.000.yml.partial",
    ]
    for path in (*kept, *left):
        put(tmp_path, path, "{}\n")

    files = run_files(tmp_path, names)

    assert sorted(f.path for f in files) == sorted(f"mergekit-map/{p}" for p in kept)


def test_a_configuration_keeps_of_paths_the_names(
    tmp_path: Path, names: PublicNames
) -> None:
    put(tmp_path, "config.yml", CONFIG)

    text = texts(run_files(tmp_path, names))["mergekit-map/config.yml"]

    public = yaml.safe_load(text)
    assert [m["model"] for m in public["models"]] == ["base", "x/one"]
    tasks = public["map"]["tasks"]
    assert tasks["mine"]["perplexity"] == {"file": "mine.txt"}
    assert tasks["other"]["perplexity"] == {"file": "other.txt"}
    assert tasks["short"]["perplexity"] == "short.txt"
    assert tasks["hub"]["perplexity"] == {"dataset": "org/text"}
    assert tasks["own"]["lm_eval"] == "own.yaml"
    assert tasks["known"]["lm_eval"] == "gsm8k"
    assert public["map"]["backend"]["args"] == {"download_dir": "cache"}
    assert text.startswith("# What jane searches\n")
    assert "favourite" not in text


def test_records_lose_their_paths_and_nothing_else(
    tmp_path: Path, names: PublicNames
) -> None:
    failed = {"value": None, "error": f"task 'x' on model '{TUNED}': {HOME}/a/b.txt"}
    lines = [json.dumps({"value": 0.1 + 0.2}), json.dumps(failed)]
    put(tmp_path, "evaluations.jsonl", "\n".join(lines) + "\n")
    put(tmp_path, "manifest.json", json.dumps({"directory": HOME, "m": {BASE: "f"}}))

    public = texts(run_files(tmp_path, names))

    first, second = public["mergekit-map/evaluations.jsonl"].splitlines()
    assert first == lines[0]
    assert json.loads(second)["error"] == "task 'x' on model 'tuned': b.txt"
    manifest = json.loads(public["mergekit-map/manifest.json"])
    assert manifest == {"directory": ".", "m": {"base": "f"}}


def test_a_picture_that_may_show_a_path_is_left_out(
    tmp_path: Path, names: PublicNames
) -> None:
    put(tmp_path, "front.json", json.dumps({"anchors": [{"label": BASE}]}))
    for path in ("front.png", "nested/pair-1/front.png"):
        put(tmp_path, path, "")
    put(tmp_path, "nested/pair-1/front.json", json.dumps({"anchors": []}))

    paths = [f.path.removeprefix("mergekit-map/") for f in run_files(tmp_path, names)]

    assert paths == [
        "front.json",
        "nested/pair-1/front.json",
        "nested/pair-1/front.png",
    ]
