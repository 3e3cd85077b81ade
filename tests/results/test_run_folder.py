"""Run folders of strangers: code that is not run, numbers that no search writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from fronts import NOT_MEASURED, make_front, write_folder
from nested_runs import invoke
from run_v1 import DATA

from mergekit_map.errors import ArtifactError
from mergekit_map.results.log import read_log
from mergekit_map.results.recipe_rendering import recipe_of
from mergekit_map.results.run_folder import RunFolder

FUNCTION = {"python": "evil:score", "direction": "maximize"}


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a copy of a run, with code that tells when it ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    return shutil.copytree(DATA / "run", tmp_path / "run")


def name_code(run: Path, **block: Any) -> None:
    """Put code into the configuration of a run, by default a function of a task."""
    config = yaml.safe_load((run / "config.yml").read_text())
    block = block or {"tasks": {"greeting": FUNCTION}}
    config["map"] |= {"select": {}, **block}
    del config["map"]["search"]["gradients"]
    (run / "config.yml").write_text(yaml.safe_dump(config))
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    manifest["directory"] = str(Path.cwd())
    (run / "manifest.json").write_text(json.dumps(manifest))


COMMANDS = {
    "merge": ["merge", "run", "out"],
    "compare": ["compare", "run"],
    "inspect": ["inspect", "run/config.yml"],
    "search": ["search", "run/config.yml", "again"],
    "run": ["run", "run/config.yml", "out"],
}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
def test_code_of_a_folder_from_elsewhere_runs_where_it_is_trusted(
    run: Path, command: str, trusted: bool
) -> None:
    name_code(run)
    more = ["--trust-run"] if trusted else []

    output = invoke(*COMMANDS[command], *more, code=2).output  # without the models

    said = "names code that would run here: task 'greeting'"
    assert trusted or (said in output and "--trust-run" in output)
    assert ("names code" in output) != trusted
    assert Path("ran").exists() == trusted


def test_a_backend_is_asked_about(run: Path) -> None:
    name_code(run, backend={"name": "vllm"}, merge="disk")

    assert "names code that would run here" in invoke(*COMMANDS["merge"], code=2).output


@pytest.mark.parametrize("command", ["select", "report"])
def test_choosing_and_looking_need_no_trust(run: Path, command: str) -> None:
    name_code(run)

    invoke(command, "run")

    assert not Path("ran").exists()


def put(content: Any, place: str, value: str) -> str:
    """Write JSON with something else in one place."""
    *path, last = (int(p) if p.isdigit() else p for p in place.split("/"))
    part = content
    for key in path:
        part = part[key]
    assert last in part or isinstance(last, int)
    part[last] = "HERE"
    return json.dumps(content).replace('"HERE"', value)


FAR = ("1e308", "-1e308", "1e51", "NaN", "Infinity")


@pytest.mark.parametrize("number", ["value", "stderr"])
def test_a_front_predicts_finite_numbers(number: str, run: Path) -> None:
    text = (run / "front.json").read_text()
    task = next(iter(json.loads(text)["tasks"]))
    place = f"points/0/predicted/{task}/{number}"
    for value in (*FAR, "null") if number == "value" else FAR:
        (run / "front.json").write_text(put(json.loads(text), place, value))

        result = invoke("report", "run", code=2)

        assert f"front.json cannot be used: points.0.predicted.{task}" in result.output


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("value", FAR),  # of a failed measurement it is null
        ("stderr", (*FAR, "-0.1", '"0.1"')),
        ("coefficients/NAME", (*FAR, "null")),
        ("seconds", (*FAR, "null")),
        ("n", (*FAR, "null", "-1")),
    ],
)
def test_a_log_holds_finite_numbers(
    place: str, values: tuple[str, ...], run: Path
) -> None:
    first, *others = (run / "evaluations.jsonl").read_text().splitlines()
    for value in values:
        line = json.loads(first)
        path = place.replace("NAME", next(iter(line["coefficients"])))
        text = "\n".join([put(line, path, value), *others]) + "\n"
        (run / "evaluations.jsonl").write_text(text)

        with pytest.raises(ArtifactError, match=r"jsonl:1: not an evaluation: [a-z]+"):
            list(read_log(run / "evaluations.jsonl"))


FRONT = make_front([([(0.5, 0.1), (2.0, 0.1)], NOT_MEASURED)] * 3)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    write_folder(tmp_path, FRONT)
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("configuration", {"x": [1e999]}, "identity: Out of range float values"),
        ("models", {"a\x1b": "1"}, r"models.a\\x1b.\[key\]: a line of text"),
        ("models", {"a": 1}, "models.a"),
        ("coefficients", {"a": [["models", -1]]}, "coefficients.a.0.1"),
        ("configuration", [], "configuration"),
    ],
)
def test_an_identity_is_finite_printable_and_of_its_shape(
    folder: RunFolder, key: str, value: Any, message: str
) -> None:
    content = json.loads(folder.manifest.read_text())
    content["identity"][key] = value
    folder.manifest.write_text(json.dumps(content))

    with pytest.raises(ArtifactError, match=message):
        folder.read_manifest()


def test_a_recipe_is_read_wherever_its_models_lie(folder: RunFolder) -> None:
    path = folder.recipe(0)
    path.write_text(path.read_text().replace("model: one", "model: /elsewhere/one"))

    assert "/elsewhere/one" in recipe_of(folder, FRONT, 1)


def test_what_is_left_of_1_is_the_last_weight_of_a_recipe(folder: RunFolder) -> None:
    content = json.loads(folder.manifest.read_text())
    identity, path = content["identity"], folder.recipe(0)
    identity["remainder"] = identity["coefficients"].pop("b")
    folder.manifest.write_text(json.dumps(content))
    path.write_text(path.read_text().replace("weight: 0.5", "weight: 1.0"))

    recipe = yaml.safe_load(recipe_of(folder, FRONT, 1))

    assert [model["weight"] for model in recipe["models"]] == [0.01, 1 - 0.01]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("weight: 0.5", "weight: &w 0.5\nx: *w", "an alias in it"),
        ("merge_method: linear", "[" * 100_000, "it is nested too deep"),
        ("- model: other\n  weight: 0.5", "", "no recipe of this search"),
    ],
)
def test_a_recipe_that_is_damaged_is_refused(
    folder: RunFolder, before: str, after: str, message: str
) -> None:
    path = folder.recipe(0)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))

    with pytest.raises(ArtifactError, match=message):
        recipe_of(folder, FRONT, 1)
