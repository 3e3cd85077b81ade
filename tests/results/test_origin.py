"""Code that a run folder names runs where it is trusted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from mergekit_map.cli.main import main

DATA = Path(__file__).parents[1] / "data" / "run_v1"
FUNCTION = {"python": "evil:score", "direction": "maximize"}
CODE = {
    "a function": {"tasks": {"greeting": FUNCTION}, "select": {}},
    "a file of tasks": {
        "tasks": {"greeting": {"lm_eval": "evil.yaml", "metric": "acc"}},
        "select": {},
    },
    "code of a model": {
        "tasks": {
            "greeting": {
                "lm_eval": "humaneval",
                "metric": "pass@1",
                "confirm_run_unsafe_code": True,
            }
        },
        "select": {},
    },
    "a backend": {"backend": {"name": "vllm"}, "merge": "disk"},
}


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work beside a copy of a run, with code that tells when it ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    Path("evil.yaml").write_text("task: evil\nprocess_docs: !function evil.score\n")
    return shutil.copytree(DATA / "run", tmp_path / "run")


def name_code(run: Path, kind: str = "a function") -> None:
    """Put code into the configuration of a run."""
    config = yaml.safe_load((run / "config.yml").read_text())
    config["map"] |= CODE[kind]
    config["map"]["search"]["gradients"] = False
    (run / "config.yml").write_text(yaml.safe_dump(config))
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    manifest["directory"] = str(Path.cwd())
    (run / "manifest.json").write_text(json.dumps(manifest))


def invoke(*arguments: str) -> str:
    result = click.testing.CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 2, result.output  # the models are not here, in any case
    return result.output


COMMANDS = {
    "merge": ["merge", "run", "out"],
    "compare": ["compare", "run"],
    "inspect": ["inspect", "run/config.yml"],
    "search": ["search", "run/config.yml", "again"],
    "run": ["run", "run/config.yml", "out"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_code_of_a_folder_from_elsewhere_is_not_run(run: Path, command: str) -> None:
    name_code(run)

    output = invoke(*COMMANDS[command])

    assert "names code that would run here: task 'greeting'" in output
    assert "--trust-run" in output
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_code_that_is_trusted_is_run(run: Path, command: str) -> None:
    name_code(run)

    assert "names code" not in invoke(*COMMANDS[command], "--trust-run")
    assert Path("ran").exists()


@pytest.mark.parametrize("kind", CODE)
def test_all_that_runs_is_asked_about(run: Path, kind: str) -> None:
    name_code(run, kind)

    assert "names code that would run here" in invoke(*COMMANDS["merge"])
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", ["select", "report"])
def test_choosing_and_looking_need_no_trust(run: Path, command: str) -> None:
    name_code(run)

    result = click.testing.CliRunner().invoke(main, [command, "run"])

    assert result.exit_code == 0, result.output
    assert not Path("ran").exists()
