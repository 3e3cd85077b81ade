"""Documents that a search never sees, from the configuration to the first lines."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from fakes import front_of, killed_at
from runs import invoke, lines, read, write_plain

from mergekit_map.results.gains import gains
from mergekit_map.workflows.callbacks import Callback
from mergekit_map.workflows.search import search_front

# Of each document the square of how far the output layer is from one of its own.
OWN = """
import os, torch

SIZE = 20

def misses(model, tokenizer, documents=None):
    head = model.lm_head.weight.float()
    wanted = range(SIZE) if documents is None else documents
    with open("asked.jsonl", "a") as file:
        file.write(str(list(wanted)) + chr(10))
    found = []
    for number in wanted:
        assert documents is None or not os.path.exists(f"fails at {number}")
        goal = torch.randn(head.shape, generator=torch.Generator().manual_seed(number))
        found.append(((head - 0.05 * goal) ** 2).mean().item() * 100)
    return found
"""
TASKS = {
    "text": {"perplexity": {"file": "text.txt"}, "block": 8},
    "own": {"python": "mine:misses", "direction": "minimize"},
}
SHARE = 0.3


def configure(family: Mapping[str, Path], **search: Any) -> None:
    Path("text.txt").write_text("hello world def return plus one two three " * 12)
    write_plain(family, TASKS, OWN, **search)


@pytest.fixture(scope="module")
def searched(family: dict[str, Path], module_folder: Path) -> Path:
    configure(family, holdout=SHARE)
    invoke("search", "config.yml", "run")
    return module_folder


@pytest.fixture
def run(place: Path) -> Path:
    return place / "run"


def records(run: Path, task: str, *, held_out: bool) -> dict[str, dict[str, Any]]:
    found = {}
    for folder in sorted((run / ".state/samples").iterdir()):
        if folder.name.endswith("-holdout") == held_out:
            for path in sorted((folder / task).glob("*.json")):
                found[path.name] = json.loads(path.read_text())
    return found


def numbers(record: Mapping[str, Any]) -> list[int]:
    [key] = {"block", "document"} & record["samples"][0].keys()
    return [sample[key] for sample in record["samples"]]


def split(log: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    ours = [e for e in log if e["role"] != "holdout"]
    return ours, [e for e in log if e["role"] == "holdout"]


@pytest.mark.parametrize("task", TASKS)
def test_a_search_and_its_confirmation_share_no_document(run: Path, task: str) -> None:
    seen, confirmed = (records(run, task, held_out=flag) for flag in (False, True))
    searched = {tuple(numbers(record)) for record in seen.values()}
    rest = {tuple(numbers(record)) for record in confirmed.values()}

    [ours], [theirs] = searched, rest  # the same for every merge
    assert len(seen) > 5
    assert len(confirmed) >= 3
    assert sorted(ours + theirs) == list(range(len(ours) + len(theirs)))
    assert len(theirs) == round(SHARE * len(ours + theirs))
    for record in seen.values():
        assert record["answers"]["ids"] == list(range(len(ours)))
    log = lines(run)
    first, second = (
        {(e["definition"], e["n"]) for e in part if e["task"] == task}
        for part in split(log)
    )
    assert len(first) == len(second) == 1
    assert first != second
    assert log == [e for part in split(log) for e in part]  # what confirms is last
    places = [(str(e["coefficients"]), e["task"]) for e in split(log)[1]]
    assert len(places) == len({*places})  # the chosen merge may be a reference point


def test_the_paired_difference_is_that_of_the_documents(run: Path) -> None:
    kept = records(run, "own", held_out=True)
    of = {json.dumps(r["coefficients"]): r["answers"]["values"] for r in kept.values()}
    chosen = read(f"{run}/front.json")
    point = chosen["points"][chosen["selected"]]["coefficients"]
    anchors = {a["label"]: a["coefficients"] for a in chosen["anchors"]}

    found = [tasks["own"] for tasks in gains(front_of(run)).rivals.values()]

    assert {"a", "base", "soup"} == {gain.other for gain in found}
    for gain in found:
        pair = [of[json.dumps(c)] for c in (point, anchors[gain.other])]
        ahead = np.array(pair[1]) - np.array(pair[0])
        assert gain.amount == pytest.approx(ahead.mean())
        error = ahead.std(ddof=1) / np.sqrt(len(ahead))
        assert gain.stderr == pytest.approx(error, rel=1e-4)


def test_the_only_parent_is_found_where_the_soup_is_the_same_model(
    family: dict[str, Path],
) -> None:
    configure(family, names="a", method="ties", density=0.5, holdout=SHARE)

    invoke("search", "config.yml", "run")

    found = gains(front_of(Path("run"))).rivals.values()
    assert {tasks["own"].other for tasks in found} == {"a", "base", "soup"}


def test_a_search_that_was_killed_goes_on_and_counts_what_it_has(run: Path) -> None:
    log = run / "evaluations.jsonl"
    front, text = (run / "front.json").read_bytes(), log.read_text()
    whole = text.splitlines(keepends=True)
    count = len(split(lines(run))[1])
    assert count >= 6
    for left in (1, 2, count + 1):  # nothing, some and all of it is left to confirm
        log.write_text("".join(whole[:-left]) + (whole[-left][:40] if left > 1 else ""))
        (run / ".state/manifest.json").unlink()
        callback = Mock(spec=Callback)

        search_front("config.yml", run, callbacks=[callback])

        (started,) = callback.on_start.call_args.args
        assert len(started.known) == len(whole) - left
        assert started.total >= len(whole)
        keys = ("coefficients", "task", "role", "value", "stderr", "n", "definition")
        assert [[e[k] for k in keys] for e in lines(run)] == [
            [json.loads(line)[k] for k in keys] for line in whole
        ]
        assert (run / "front.json").read_bytes() == front


def test_another_choice_is_confirmed_when_it_is_merged(run: Path) -> None:
    front = front_of(run)
    other = next(i for i, p in enumerate(front.points) if not p.is_measured("own"))

    selected = invoke("select", "run", f"--index={other}")

    assert "The values of this merge are predicted" in selected.output
    assert set(gains(front_of(run)).sources.values()) == {"predicted"}

    said = " ".join(invoke("merge", "run", "out", "--trust-run").output.split())

    assert "Measured on held-out data" in said
    card = Path("out/README.md").read_text()
    assert "Measured on held-out data" in card.partition("<details>")[0]
    assert set(gains(front_of(run)).sources.values()) == {"held-out"}
    count = len(lines(run))
    shutil.rmtree("out")
    invoke("merge", "run", "out", "--trust-run")
    assert {e["role"] for e in lines(run)[count:]} == {"checkpoint"}

    back = invoke("select", "run", f"--index={front.selected}")
    assert "Measured on held-out data" in " ".join(back.output.split())


def test_held_out_documents_that_cannot_be_measured_cost_no_front(run: Path) -> None:
    held_out = numbers(next(iter(records(run, "own", held_out=True).values())))
    Path(f"fails at {held_out[0]}").touch()

    said = " ".join(invoke("search", "config.yml", "other").output.split())

    assert "held-out documents: task 'own' cannot be measured" in said
    assert front_of(Path("other")).points == front_of(run).points
    invoke("merge", "other", "out", "--trust-run")


@pytest.mark.usefixtures("run")
def test_a_merge_of_an_unfinished_search_is_compared_on_its_documents() -> None:
    with killed_at(16):
        invoke("search", "config.yml", "other", code=130)

    said = " ".join(invoke("merge", "other", "out", "--trust-run").output.split())

    assert "Measured on the data that the search used" in said
    assert "base" in said
    assert not split(lines("other"))[1]


def test_subsets_are_drawn_among_what_is_left(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "TASKS", {"own": {**TASKS["own"], "documents": 8}})
    configure(family, holdout=SHARE, evaluations=8)

    invoke("search", "config.yml", "run")

    ours, confirmed = split(lines("run"))
    assert {e["n"] for e in ours} == {8, 14}
    assert {e["n"] for e in ours if "sampling" in e} == {8}
    assert {e["n"] for e in confirmed} == {6}
    rest, seen = (records(tmp_path / "run", "own", held_out=h) for h in (True, False))
    held_out = {number for record in rest.values() for number in numbers(record)}
    assert len(held_out) == 6
    for record in seen.values():
        assert not held_out & {*numbers(record)}
        assert max(record["answers"]["ids"]) < 14
    # All were asked for once, to learn how many there are; and then to confirm.
    asked = [*map(json.loads, Path("asked.jsonl").read_text().splitlines())]
    touching = [some for some in asked if held_out & {*some}]
    assert touching[0] == list(range(20))
    assert touching[1:] == [sorted(held_out)] * len(confirmed)


@pytest.mark.usefixtures("run")
def test_what_was_measured_elsewhere_is_refused() -> None:
    Path("more.csv").write_text("a,b,text,own\n0.2,0.3,5.1,0.4\n")

    result = invoke("search", "config.yml", "run", "--import", "more.csv", code=2)

    assert "may be of documents that 'holdout' keeps apart" in result.output
