"""Code that a run folder names runs where the folder was written, or is trusted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from mergekit_map.cli import main
from mergekit_map.results.origin import seal

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


def name_code(run: Path, *, sealed: bool, kind: str = "a function") -> None:
    """Put code into the configuration of a run, and its seal on it."""
    config = yaml.safe_load((run / "config.yml").read_text())
    config["map"] |= CODE[kind]
    config["map"]["search"]["gradients"] = False
    text = yaml.safe_dump(config)
    (run / "config.yml").write_text(text)
    manifest: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    manifest["directory"] = str(Path.cwd())
    manifest["seal"] = seal(text, str(Path.cwd())) if sealed else None
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
    name_code(run, sealed=False)

    output = invoke(*COMMANDS[command])

    assert "was not written on this machine" in output
    assert "task 'greeting'" in output
    assert "--trust-run" in output
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_code_that_is_trusted_is_run(run: Path, command: str) -> None:
    name_code(run, sealed=False)

    assert "was not written" not in invoke(*COMMANDS[command], "--trust-run")
    assert Path("ran").exists()


@pytest.mark.parametrize("kind", CODE)
def test_all_that_runs_is_asked_about(run: Path, kind: str) -> None:
    name_code(run, sealed=False, kind=kind)

    assert "was not written on this machine" in invoke(*COMMANDS["merge"])
    assert not Path("ran").exists()


def test_code_of_an_own_folder_is_run(run: Path) -> None:
    name_code(run, sealed=True)

    assert "was not written" not in invoke(*COMMANDS["merge"])
    assert Path("ran").exists()


def test_a_seal_is_of_one_configuration_place_and_machine(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_code(run, sealed=True)
    config = (run / "config.yml").read_text()

    (run / "config.yml").write_text(f"{config}\n")
    assert "was not written on this machine" in invoke(*COMMANDS["merge"])
    (run / "config.yml").write_text(config)
    monkeypatch.setenv("MERGEKIT_MAP_HOME", "another machine")
    assert "was not written on this machine" in invoke(*COMMANDS["merge"])
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", ["select", "report"])
def test_choosing_and_looking_need_no_trust(run: Path, command: str) -> None:
    name_code(run, sealed=False)

    result = click.testing.CliRunner().invoke(main, [command, "run"])

    assert result.exit_code == 0, result.output
    assert not Path("ran").exists()


def test_without_a_place_for_the_key_nothing_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("MERGEKIT_MAP_HOME", "file")

    assert seal("a", "b") is None


def test_the_key_is_its_owners_alone() -> None:
    assert seal("a", "b") != seal("a", "c")
    assert seal("ab", "c") != seal("a", "bc")
    assert Path("home/seal.key").stat().st_mode & 0o077 == 0
    assert [path.name for path in Path("home").iterdir()] == ["seal.key"]
