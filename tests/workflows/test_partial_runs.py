"""Looking at a stopped search says what there is, and changes nothing of it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import files_of, invoke, lines, write, write_plain

from mergekit_map.errors import ArtifactError
from mergekit_map.results.log import open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.surrogates import read_finished
from mergekit_map.workflows.merge import merge_point
from mergekit_map.workflows.results import read_run
from mergekit_map.workflows.select import look_at, select_point

# Two tasks that stop the search where a file says so.
TASKS = """
from pathlib import Path

def level(model, sign):
    done = Path("asked.txt")
    count = len(done.read_text()) if done.exists() else 0
    if Path("stop.txt").exists() and count >= int(Path("stop.txt").read_text()):
        raise KeyboardInterrupt
    done.write_text("x" * (count + 1))
    x, y = (100 * model.lm_head.weight.float()[i].mean().item() for i in (3, 5))
    return [(sign * x + y**2 / 10) * (1 + k / 9) for k in range(12)]

def one(model, tokenizer):
    return level(model, 1)

def two(model, tokenizer):
    return level(model, -1)
"""
TWO = ("one", "two")


@pytest.fixture
def stopped(family: dict[str, Path]) -> Any:
    """Give what makes a search, ``run``, stopped after so many measurements."""

    def make(count: int, **search: Any) -> None:
        Path("stop.txt").write_text(str(count))
        config = write_plain(family, TWO, TASKS)
        config["map"]["search"] = search
        write(config)
        invoke("search", "config.yml", "run", code=130)
        Path("stop.txt").unlink()

    return make


def files(run: Path) -> dict[str, bytes]:
    """Read a run folder, without timings."""
    seconds = re.compile(rb'"seconds": ?[\d.e-]+')
    return {name: seconds.sub(b"", text) for name, text in files_of(run).items()}


def test_a_search_that_was_looked_at_ends_byte_for_byte_the_same(stopped: Any) -> None:
    stopped(9, evaluations=8)
    shutil.copytree("run", "before")
    shutil.copy("asked.txt", "before.txt")
    invoke("report", "run")
    invoke("select", "run", "--prefer", "one=2,two=1")
    invoke("select", "run", "--index", "0")
    invoke("merge", "run", "merged", "--trust-run")
    invoke("search", "config.yml", "run")
    for page in ("report.html", "surrogates.png"):
        Path("run", page).unlink(missing_ok=True)
    looked = files(Path("run"))
    assert read_finished(Path("run")).surrogates

    shutil.rmtree("run")
    Path("before").rename("run")
    Path("before.txt").rename("asked.txt")
    invoke("search", "config.yml", "run")

    plain = files(Path("run"))
    assert looked.keys() == plain.keys()
    # The log alone has what the merge has measured, too.
    different = [name for name in plain if looked[name] != plain[name]]
    assert different == ["evaluations.jsonl"]


def test_a_front_is_fitted_to_what_is_there_and_says_how_far(stopped: Any) -> None:
    stopped(11)
    log = Path("run/evaluations.jsonl")
    log.write_bytes(log.read_bytes() + b'{"version": 1, "coeff')  # by a kill
    before = log.read_bytes()

    result = invoke("select", "run")

    assert log.read_bytes() == before
    said = "5 of at most 18 merges are measured. To go on, type its command again."
    assert said in result.stderr
    assert not Path("run/.state/manifest.json").exists()
    front = RunFolder(Path("run")).read_front()
    assert front.unfinished is not None
    assert len(front.points) > len([m for m in front.points if m.is_measured(*TWO)])
    assert "The recipe is in run/recipe.yml" in result.stdout
    assert front.differences.keys() == {*TWO}
    assert re.search(r"(better|worse) by", result.stdout)


@pytest.mark.parametrize(
    ("count", "search", "why"),
    [
        (7, {}, "base, parents and soup are not measured on every task yet"),
        (9, {"strategy": "nested"}, "can be looked at when it is finished"),
    ],
)
def test_too_early_it_is_said_how_to_go_on(
    stopped: Any, count: int, search: Any, why: str
) -> None:
    stopped(count, **search)

    said = invoke("report", "run", code=2).stderr

    assert why in said
    assert "; type the command of the search again to go on\n" in said


def test_what_was_chosen_stays_until_the_search_has_measured_more(stopped: Any) -> None:
    stopped(11)
    invoke("select", "run", "--index", "1")
    invoke("merge", "run", "merged", "--trust-run")
    invoke("select", "run")
    front = RunFolder(Path("run")).read_front()
    assert front.selected == 1
    assert front.chosen.is_measured(*TWO)  # by the merge

    two, one = lines("run")[9:11]
    other = {**two, "coefficients": one["coefficients"]}
    with Path("run/evaluations.jsonl").open("a") as log:
        log.write(json.dumps(other) + "\n")
    invoke("select", "run")

    front = RunFolder(Path("run")).read_front()
    assert front.unfinished.measured == 6
    assert front.select.index is None  # the number means another point now
    invoke("select", "run", "--prefer", "one=2,two=1")
    # More is measured as planned, or there is another plan.
    more_lines = {"evaluations.jsonl": json.dumps(two), ".state/search.json": ""}
    for name, more in more_lines.items():
        with Path("run", name).open("a") as file:
            file.write(more + "\n")
        invoke("select", "run")
        assert bool(RunFolder(Path("run")).read_front().select.prefer) is bool(more)
    invoke("select", "run", "--index", "1")
    with Path("run/evaluations.jsonl").open("a") as log:
        log.write(json.dumps(other) + "\n")
    invoke("merge", "run", "again", "--trust-run")
    assert RunFolder(Path("run")).read_front().select.index == 1  # as it was shown
    invoke("select", "run")
    assert RunFolder(Path("run")).read_front().select.index is None  # measured more


def test_a_search_beyond_a_finished_one_can_be_looked_at(stopped: Any) -> None:
    stopped(11, evaluations=8)
    invoke("search", "config.yml", "run")
    with pytest.raises(ArtifactError, match="rum is not the folder of a search"):
        look_at("rum")
    assert look_at(Path("run")) == Path("run")
    assert RunFolder(Path("run")).read_front().unfinished is None
    assert not Path("run/.state/search.json").exists()

    config = Path("config.yml").read_text().replace("evaluations: 8", "evaluations: 12")
    Path("config.yml").write_text(config)
    Path("stop.txt").write_text(str(len(Path("asked.txt").read_text()) + 1))
    invoke("search", "config.yml", "run", code=130)

    with pytest.raises(ArtifactError, match="is of an earlier search into this folder"):
        read_run("run")
    assert look_at(Path("run")) == Path("run")
    assert read_run("run").front.unfinished.measured > 8

    plan = Path("run/.state/search.json")  # of a search that measured nothing yet
    plan.write_text(f"{plan.read_text()}\n")
    with pytest.raises(ArtifactError, match="is of an earlier search into this folder"):
        read_run("run")
    whole = plan.read_text()
    metric = {"higher_is_better": False, "lower": 0.0, "upper": -1.0, "unit": ""}
    for change, why in (
        ({"tasks": {"one": metric, "two": metric}}, "the range must rise, got"),
        ({"select": {"prefer": {"three": 1}}}, "select: the tasks are"),
        ({"documents": {"one": -1}}, "Input should be 'all', got -1"),
    ):
        plan.write_text(json.dumps(json.loads(whole) | change))
        with pytest.raises(ArtifactError, match=why):
            look_at("run")
    plan.write_text(whole)
    for file in (Path("run/front.json"), plan):
        text = re.sub(r"(\[\s*)0\.0(,\s*1\.0)", r"\g<1>-1e308\g<2>", file.read_text())
        file.write_text(text)
        with pytest.raises(ArtifactError, match="greater than or equal to -1000"):
            RunFolder(Path("run")).read_front() if file != plan else look_at("run")


def test_no_point_is_merged_during_a_search_or_from_an_old_front(stopped: Any) -> None:
    stopped(11, evaluations=8)
    partial, folder = select_point(look_at("run")), RunFolder(Path("run"))

    with open_log(folder):
        said = invoke("merge", "run", "merged", "--trust-run", code=2).stderr

    assert "another search is writing" in said
    assert "writing merged" not in said
    invoke("search", "config.yml", "run")
    before = Path("run/front.json").read_bytes()

    strange = partial.point.model_copy(
        update={"coefficients": {"of another search": 1}}
    )
    other = partial.front.with_point(partial.index, strange)
    for selection in (partial, replace(partial, front=other)):
        with pytest.raises(ArtifactError, match="has another front since"):
            merge_point("run", "merged", selection, trust_run=True)

    assert Path("run/front.json").read_bytes() == before
    assert not Path("merged").exists()
