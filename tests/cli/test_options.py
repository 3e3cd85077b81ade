"""How much the command line says: quiet, more, into a file, for programs."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from fakes import front_of, logged
from runs import invoke, write_plain

from mergekit_map.results.answer import answer


@pytest.fixture(scope="module")
def searched(family: dict[str, Path], module_folder: Path) -> Path:
    """A folder with a finished search, ``run``, and another one beside it."""
    write_plain(family)
    invoke("search", "config.yml", "run")
    shutil.copytree("run", "other.run")
    return module_folder


pytestmark = pytest.mark.usefixtures("place")


def test_quiet_commands_print_the_path_of_what_they_made_and_nothing_else() -> None:
    said = {
        ("search", "config.yml", "run"): "run",
        ("select", "run", "--prefer", "one=1"): "run/recipe.yml",
        ("report", "run"): "run/report.html",
        ("merge", "run", "merged", "--trust-run"): "merged",
        ("run", "config.yml", "other"): "other",
    }
    for command, path in said.items():
        result = invoke(*command, "--quiet")

        assert result.output == f"{path}\n", command
        assert Path(path).exists()
    merge = ("merge", "run", "bare", "--trust-run", "--no-write-model-card")
    invoke(*merge, "--quiet", "--log-file", "merge.log")
    assert not Path("bare/README.md").exists()
    assert answer(front_of(Path("run"))).headline in Path("merge.log").read_text()
    Path("config.yml").write_text("merge_method: none")
    for command in (("search", "config.yml", "run"), ("inspect", "config.yml")):
        result = invoke(*command, "--quiet", "--log-file", "/dev/full", code=2)

        assert not result.stdout
        assert re.match("error: .*config.yml", result.stderr)  # which everybody needs


def test_more_says_stages_and_each_measurement_with_its_value_and_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))  # not recorded yet
    shutil.rmtree("run")

    result = invoke("search", "config.yml", "run", "-v", "--log-file", "all.log")

    log = logged(Path("run"))
    kept = Path("all.log").read_text()
    for e in log:
        weights = " ".join(f"{n}={v:.4g}" for n, v in e.coefficients.items())
        said = f"{e.role} {weights}: {e.task} {e.reading} in {e.seconds:.1f} s"
        assert said in result.stderr
        assert said in kept
    times = [line.split()[0] for line in kept.splitlines()]
    assert times == sorted(times)
    assert all(datetime.fromisoformat(time).tzinfo for time in times)
    assert re.search(r"reading the models base, a, b \([\d.]+ [kM]B\)", result.stderr)
    stages = ["checking models and tasks of config.yml ...", "reading the models"]
    stages += [
        "loading a model that takes the weights of each merge (",
        "preparing the tasks one, two ...",
    ]
    places = [result.stderr.index(text) for text in stages]
    assert places == sorted(places)


def test_a_program_gets_one_object_and_people_nothing_less() -> None:
    plain = invoke("search", "config.yml", "run")

    result = invoke("search", "config.yml", "run", "--json")

    content = json.loads(result.stdout)
    front = front_of(Path("run"))
    assert content["version"] == 2
    assert content["run"] == "run"
    assert content["finished"] is True
    assert content["chosen"]["index"] == front.selected
    assert content["chosen"]["coefficients"] == front.chosen.coefficients
    assert content["findings"]
    assert content["missed"] == ""
    limit = ["--require", "one=300%", "--json"]
    content = json.loads(invoke("search", "config.yml", "run", *limit).stdout)
    assert content["missed"].startswith("one at ")
    for line in plain.stdout.splitlines():
        assert line.strip() in result.stderr
