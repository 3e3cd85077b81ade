"""A run folder of version 1, moved elsewhere: opened, selected from, gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fakes import front_of
from quick_fronts import fronts_of_few_points
from runs import invoke, read

import mergekit_map
from mergekit_map.results.log import by_merge
from mergekit_map.results.surrogates import read_finished
from mergekit_map.utils.files import append_durably

pytestmark = pytest.mark.usefixtures("moved")


def log() -> list[bytes]:
    return Path("run/evaluations.jsonl").read_bytes().splitlines()


def test_what_was_chosen_last_is_still_chosen() -> None:
    recipe = Path("run/recipe.yml").read_text()
    Path("run/recipes/006.yml").write_text("gone")  # only the first is read
    front = front_of(Path("run"))

    selection = mergekit_map.select_point(Path("run"))

    assert selection.index == front.selected == 6
    assert selection.recipe == Path("run/recipe.yml").read_text()
    # Above are the reason, the version, and how many points there were.
    assert selection.recipe.splitlines()[2:] == recipe.splitlines()[2:]
    now = front_of(Path("run"))
    for part in ("points", "anchors", "merges", "reason", "tasks"):
        assert getattr(now, part) == getattr(front, part), part


@pytest.mark.parametrize(
    ("choice", "index"),
    [
        (("--prefer", "greeting=1"), 9),
        # Of the points alone: that version fitted otherwise.
        (("--require", "greeting=0.5"), 5),
        (("--require", "code=50%"), 2),
    ],
)
def test_another_point_can_be_selected(choice: tuple[str, ...], index: int) -> None:
    before, measured = front_of(Path("run")).points, log()

    shown = invoke("select", "run", *choice, "--verbose").stdout

    points = front_of(Path("run")).points
    assert points[:10] == before
    assert log() == measured
    assert Path("run/recipe.yml").read_text() in shown
    assert front_of(Path("run")).selected == index
    recipe = yaml.safe_load(Path("run/recipe.yml").read_text())
    weights = [model["parameters"]["weight"] for model in recipe["models"]]
    assert weights == list(points[index].coefficients.values())


def test_a_failure_replaces_no_value_of_the_same_merge() -> None:
    failed = {"value": None, "stderr": None, "role": "front", "error": "lost"}
    line = json.dumps(json.loads(log()[0]) | failed)
    append_durably(Path("run/evaluations.jsonl"), f"{line}\n".encode())

    latest = by_merge(read_finished(Path("run")).evaluations).values()
    assert not any(e.failed for tasks in latest for e in tasks.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "measured_anew"),
    [
        # As it was meant then: a design of so many merges.
        ("evaluations: 9, refine: false,", {"design": 2}),
        # As it is meant now: after a first design of six, at most so many in all.
        ("evaluations: 9,", {"refinement": 2}),
    ],
)
def test_a_search_goes_on_and_measures_nothing_again(
    asked: str, measured_anew: dict[str, int]
) -> None:
    before = log()
    config = Path("config.yml").read_text()
    assert "evaluations: 7," in config
    Path("config.yml").write_text(config.replace("evaluations: 7,", asked))

    with fronts_of_few_points():
        said = invoke("search", "config.yml", "run").output

    after = log()
    assert after[: len(before)] == before
    every = [json.loads(line) for line in after]
    # Both models, and their average, were not measured as they are on disk.
    lines = [line for line in every if "base" not in line["coefficients"]]
    assert len(every) - len(lines) == 2 * 3
    keys = [(tuple(line["coefficients"].items()), line["task"]) for line in lines]
    assert len(set(keys)) == len(keys)
    assert {line["merge"] for line in lines} == {read("run/manifest.json")["merge"]}
    assert "kept but not used" not in said
    # Which point of the new front is measured may differ between machines.
    roles = [line["role"] for line in lines[len(before) :] if line["role"] != "front"]
    ((role, count),) = measured_anew.items()
    assert roles == [role] * 2 * count
    assert len(lines) - len(before) - len(roles) <= 2 * (1 + 1)  # and the chosen one
    fitted = read("run/front.json")["tasks"]["code"]["fit"]["n"]
    allowed = int(asked.split(",")[0].removeprefix("evaluations: "))
    assert allowed <= fitted <= len(lines) / 2


@pytest.mark.usefixtures("at_home")
def test_a_model_with_files_that_version_1_did_not_look_at_is_told_what_to_do() -> None:
    for config in Path("hub").rglob("config.json"):
        config.with_name("chat_template.jinja").write_text("{}")

    said = " ".join(invoke("merge", "run", "out", code=2).output.split())

    assert "changed since the search" in said
    assert "Earlier versions looked at other files" in said
