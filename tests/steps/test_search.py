"""In which order a search writes what it found."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest
from nested_runs import invoke, write

from mergekit_map.cli import main


def test_a_run_is_finished_when_all_of_it_is_there(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def one(model, tokenizer):\n    return model.lm_head.weight.std().item()\n"
    )
    task = {"python": "mine:one", "direction": "minimize"}
    search = {"evaluations": 7, "remeasure": 0}
    write(
        {
            "merge_method": "linear",
            "models": [{"model": str(family[name])} for name in "ab"],
            "map": {"tasks": {"one": task}, "search": search},
        }
    )
    invoke("search", "config.yml", "run")
    manifest = Path("run/manifest.json")
    finished = manifest.read_bytes()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # the last that is written before it
        patch.setattr("mergekit_map.steps.search.save_front", stop)
        again = ["search", "config.yml", "run"]
        assert click.testing.CliRunner().invoke(main, again).exit_code == 130

    assert not manifest.exists()
    invoke("search", "config.yml", "run")
    assert manifest.read_bytes() == finished


def test_a_search_of_too_few_merges_is_warned_of_before_it_starts(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "def one(model, tokenizer):\n    return model.lm_head.weight.std().item()\n"
    )
    task = {"python": "mine:one", "direction": "minimize"}
    write(
        {
            "merge_method": "linear",
            "models": [{"model": str(family[name])} for name in "ab"],
            "map": {
                "tasks": {"one": task},
                "search": {"evaluations": 3, "remeasure": 0},
            },
        }
    )

    result = click.testing.CliRunner().invoke(main, ["search", "config.yml", "run"])

    assert result.exit_code == 0, result.output
    warning = "only 3 merges will be measured for 1 coefficient: below 4 a front"
    assert 0 < result.output.index(warning) < result.output.index("0/4 anchor")
