"""What a report holds: its data, its page as text, its pictures; no browser here."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import lines, read

from mergekit_map.errors import ArtifactError
from mergekit_map.report.overlay import write_fronts_report
from mergekit_map.report.page import (
    SCRIPTS,
    build_page,
    predict_surfaces,
    report_content,
    write_report,
)
from mergekit_map.results.surrogates import FinishedSearch, locate_in, read_finished

Make = Callable[[str], Path]


def content_of(run: Path | FinishedSearch) -> dict[str, Any]:
    """What the page gets, through JSON."""
    read = read_finished(run) if isinstance(run, Path) else run
    return json.loads(json.dumps(report_content(read)))


def test_a_page_takes_the_place_of_a_page_and_of_no_other_file(two: Path) -> None:
    pages = [write_report(two).read_bytes() for _ in range(2)]
    assert pages[0] == pages[1]

    log = two / "evaluations.jsonl"
    before = log.read_bytes()
    for write in (write_report, lambda run, page: write_fronts_report([run], page)):
        with pytest.raises(ArtifactError, match=r"no name of a page; end it in \.html"):
            write(two, log)
    assert log.read_bytes() == before


def test_says_which_recipe_is_missing(two: Path) -> None:
    (two / "recipes/003.yml").unlink()

    with pytest.raises(ArtifactError, match=r"recipes/003\.yml cannot be read.*again"):
        write_report(two)
    assert not (two / "report.html").exists()


def test_the_page_may_run_its_own_two_scripts_and_fetch_nothing(two: Path) -> None:
    page = build_page("report.html", SCRIPTS, content_of(two))

    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="(.*?)"', page
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()) for s in scripts]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [f"'sha256-{h.decode()}'" for h in hashes]
    assert len(scripts) == 2
    assert "unsafe" not in rules["script-src"]
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not re.findall(r"https?://|@import|url\(", page.replace(scripts[0], ""))


@pytest.mark.slow
def test_numbers_that_choose_are_exact_and_recipes_are_those_of_the_files(
    finished_run: Make,
) -> None:
    run = finished_run("three")
    front = read(run / "front.json")

    content = content_of(run)

    parents = [anchor["coefficients"] for anchor in front["anchors"]]
    points = zip(front["points"], content["points"], strict=True)
    for index, (point, shown) in enumerate(points):
        predicted = [[*reading.values()] for reading in point["predicted"].values()]
        assert shown["predicted"] == predicted
        assert not (shown["recommended"] and point["coefficients"] in parents)
        assert shown["recipe"] == (run / f"recipes/{index:03d}.yml").read_text()
    assert [a["kind"] for a in content["anchors"]] == ["base", *["model"] * 3, "soup"]


def test_a_merge_that_is_measured_again_later_is_fitted_as_before(two: Path) -> None:
    with (two / "evaluations.jsonl").open("r+") as log:
        lines = [line for line in map(json.loads, log) if line["role"] == "design"]
        log.write(json.dumps({**lines[0], "role": "front"}) + "\n")  # as merge does

    assert read_finished(two).surrogates


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [("one", "curve", (101,)), ("two", "contour", (41, 41)), ("three", "slices", None)],
)
def test_surfaces_are_what_the_surrogates_predict(
    finished_run: Make, name: str, kind: str, shape: tuple[int, ...] | None
) -> None:
    run = read_finished(finished_run(name))

    surfaces = predict_surfaces(run)

    assert surfaces["kind"] == kind
    nodes, values, stderrs = (
        np.array(surfaces[n]) for n in ("nodes", "value", "stderr")
    )
    for task, value, stderr in zip(run.front.tasks, values, stderrs, strict=True):
        surrogate = run.surrogates[task]
        if kind == "slices":
            assert value.shape == nodes.shape
            point = locate_in(run.front, [run.front.chosen.coefficients])
            point[0, 1] = nodes[1, 7]
            found = value[1, 7], stderr[1, 7]
        else:
            assert value.shape == shape
            place = (5, 17)[: value.ndim]
            # The first index is that of the last axis.
            along = zip(nodes, place[::-1], strict=True)
            point = np.array([[axis[i] for axis, i in along]])
            found = value[place], stderr[place]
        np.testing.assert_allclose(found[0], surrogate.predict(point)[0], rtol=1e-7)
        np.testing.assert_allclose(found[1], surrogate.stderr(point)[0], rtol=1e-7)


@pytest.mark.slow
def test_measured_merges_are_listed_with_their_predictions(finished_run: Make) -> None:
    run = finished_run("failing")
    log = lines(run)

    content = content_of(run)

    merges = content["merges"]
    assert len(merges) == len({str(e["coefficients"]) for e in log})
    assert [m["label"] for m in merges[:4]] == ["base", "a", "b", "soup"]
    failed = [e for e in log if e["value"] is None]
    errors = [error for merge in merges for error in merge["errors"] if error]
    assert errors == [e["error"] for e in failed]
    assert "<b>grader</b>" in errors[0]
    measured = [reading for merge in merges for reading in merge["measured"] if reading]
    assert len(measured) == len(log) - len(failed)
    checked = [m for m in merges if m["point"] is not None and m["roles"] == ["front"]]
    assert checked
    for merge in checked:
        point = content["points"][merge["point"]]
        np.testing.assert_allclose(merge["predicted"], point["predicted"], rtol=1e-7)
        assert merge["measured"] == point["measured"]
    # Of one merge, a task may be fitted that was measured at first, and another not.
    for t, task in enumerate(content["tasks"]):
        assert sum(merge["fitted"][t] for merge in merges) == task["fit"]["n"]


def test_a_merge_measured_on_some_documents_has_their_number(two: Path) -> None:
    log = lines(two)
    one = next(line for line in log if line["role"] in {"design", "refinement"})
    one |= {"n": 2, "stderr": 0.25, "sampling": 0.2}
    log.append({**one, "role": "opponent", "coefficients": {"a": 0.1, "b": 0.9}})
    text = "".join(json.dumps(line) + "\n" for line in log)
    (two / "evaluations.jsonl").write_text(text)

    content = content_of(two)

    t = [task["name"] for task in content["tasks"]].index(one["task"])
    found = [merge["measured"][t] for merge in content["merges"]]
    assert [r for r in found if r and len(r) > 2] == [[one["value"], 0.25, 2]]
