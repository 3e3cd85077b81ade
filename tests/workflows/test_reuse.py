"""What was measured of a recipe is used wherever a search has that recipe."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from fakes import killed_at
from runs import invoke, lines, read, untimed, write_plain
from task_files import write_jsonl

from mergekit_map.utils.files import digest, write_json

# Values of 20 documents each, with noise, so that merges are compared item by item.
MODULE = """
import torch

def _away(model, wanted):
    rows = model.lm_head.weight.float()[:20]
    with open("asked", "a") as file:
        file.write(f"{wanted}\\n")
    return (rows - wanted).square().mean().item()

def low(model, tokenizer):
    return _away(model, -0.01)

def high(model, tokenizer):
    return _away(model, 0.02)
"""
TASKS = ("low", "high")
pytestmark = pytest.mark.usefixtures("place")
Models = dict[str, Path]


@pytest.fixture(scope="module")
def searched(family: Models, module_folder: Path) -> Path:
    """A folder with a search of two models, ``run``."""
    search(family, "ab")
    Path("asked").unlink()
    return module_folder


def search(
    models: Models, names: str, run: str = "run", *, code: int = 0, **more: Any
) -> str:
    """Search, and give what is said, in one line."""
    merge = {"names": names, "method": "ties", "density": 0.5}
    spec = {"evaluations": 10, "remeasure": 2, **more}
    write_plain(models, TASKS, MODULE, **merge, **spec)
    return " ".join(invoke("search", "config.yml", run, code=code).output.split())


def merges(evaluations: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((digest(e["coefficients"]), e["task"]) for e in evaluations)


def of_search(evaluations: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the models themselves, which are weighed with the base."""
    return [e for e in evaluations if "base" not in e["coefficients"]]


def test_adding_a_model_takes_over_all_that_was_measured(family: Models) -> None:
    before = lines("run")
    old = of_search(before)[0]
    record = Path("run/.state/samples", old["merge"], "low")
    definition = old["definition"]
    record = record / f"{digest([old['coefficients'], definition])}.json"
    content = {"coefficients": old["coefficients"], "definition": definition}
    write_json(record, content)

    said = search(family, "abc", evaluations=16)

    count = f"{len(before)} measurements of {len(before) // 2} merges"
    assert f"{count} of an earlier search are fitted, too" in said
    assert "kept but not used" not in said
    taken = [e for e in lines("run") if "taken" in e]
    assert sorted((e["value"], *e["coefficients"].values()) for e in taken) == sorted(
        (e["value"], *e["coefficients"].values(), 0.0) for e in before
    )
    own = [e for e in lines("run")[len(before) :] if "taken" not in e]
    assert len(Path("asked").read_text().split()) == len(own) > 0
    (merge,) = {e["merge"] for e in of_search(own)}
    assert {e["merge"] for e in of_search(taken)} == {merge}
    assert set(merges([*taken, *own]).values()) == {1}  # nothing twice
    front = read("run/front.json")
    assert list(front["coefficients"]) == ["a", "b", "c"]
    for task in TASKS:  # and all of it is fitted
        assert front["tasks"][task]["fit"]["n"] == len(of_search([*own, *taken])) // 2
    assert front["ending"]["evaluations"] <= 16
    # Records of items go along.
    coefficients = {**old["coefficients"], "c": 0.0}
    copied = Path("run/.state/samples", merge, "low")
    copied = copied / f"{digest([coefficients, definition])}.json"
    assert read(copied) == {**content, "coefficients": coefficients}
    # What is taken over is what would have been measured.
    search(family, "abc", "fresh", evaluations=8)
    taken_values, measured = (
        {(digest(e["coefficients"]), e["task"]): e["value"] for e in evaluations}
        for evaluations in (taken, lines("fresh"))
    )
    both = taken_values.keys() & measured.keys()
    assert len(both) >= 6  # base and two single models, at least
    assert {k: taken_values[k] for k in both} == {k: measured[k] for k in both}


def test_stopped_while_taking_over_or_later_it_ends_the_same(family: Models) -> None:
    shutil.copytree("run", "whole")
    search(family, "abc", "whole")
    Path("asked").unlink()
    n_before = len(lines("run"))

    for count in (1, n_before - 1, 3):
        with killed_at(len(lines("run")) + count):
            search(family, "abc", code=130)
    search(family, "abc")

    assert untimed(Path("run")) == untimed(Path("whole"))
    for name in ("front.json", "recipe.yml"):
        ours, theirs = (Path(run, name).read_text() for run in ("run", "whole"))
        assert ours.replace("run/", "") == theirs.replace("whole/", "")


def test_in_a_wider_and_a_narrower_box_what_is_measured_stays(family: Models) -> None:
    n_before = len({digest(e["coefficients"]) for e in of_search(lines("run"))})

    search(family, "ab", bounds={"a": [0, 1.4], "b": [0, 1.4]})

    log = lines("run")
    assert set(merges(log).values()) == {1}
    found = {digest(e["coefficients"]): e["coefficients"] for e in of_search(log)}
    assert read("run/front.json")["tasks"]["low"]["fit"]["n"] == len(found) > n_before
    inside = sum(max(c.values()) <= 0.8 for c in found.values())

    search(family, "ab", bounds={"a": [0, 0.8], "b": [0, 0.8]})

    assert read("run/front.json")["tasks"]["low"]["fit"]["n"] >= inside > 0
    assert set(merges(lines("run")).values()) == {1}


def test_models_that_were_renamed_are_the_same(family: Models) -> None:
    for value in (0.001, 0.002):  # which is the right one
        Path("more.csv").write_text(f"a,b,low,high\n0.25,0.75,{value},{value}\n")
        invoke("search", "config.yml", "run", "--import", "more.csv")
    names, before = {"x": "a", "y": "b"}, lines("run")
    for line, role in zip(before[-2:], ("front", "opponent"), strict=True):
        line["role"] = role
        del line["foretold"]  # so that it only judged
    write_jsonl(Path("run/evaluations.jsonl"), before)
    renamed = {new: shutil.copytree(family[old], new) for new, old in names.items()}

    said = search({**family, **renamed}, "xy")

    n = len(before) - 2 - 2
    assert f"{n} measurements of {n // 2} merges of an earlier" in said
    taken = [line for line in lines("run") if "taken" in line]
    assert len(taken) == n
    assert [e["value"] for e in taken if e["role"] == "imported"] == [0.002, 0.002]
