"""What the pages have from the code and from kept results is as these have it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from figures import RESULTS, kept_table
from mergekit_map.study.log import Evaluation, open_log
from mergekit_map.study.results import front_content
from pages import PAGES, text
from reference import PARTS, made_parts, with_parts
from run_folder_forms import EvaluationLine, Front

from mergekit_map.compare.adamerging import STEPS
from mergekit_map.config.specs import SearchSpec, SelectSpec
from mergekit_map.files import plain
from mergekit_map.measurement import Metric
from mergekit_map.search.links import Link
from mergekit_map.search.sectors import n_bins
from mergekit_map.search.surrogate import fit_surrogate
from mergekit_map.study.bayesian import MAX_COEFFICIENTS, N_ROUND, N_START
from mergekit_map.study.nested import EVALUATIONS
from mergekit_map.study.study import Study, StudyResult


@pytest.mark.parametrize("page", PAGES)
def test_what_is_made_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/docs/reference.py"


def test_all_that_is_made_stands_on_some_page() -> None:
    shown = {name for page in PAGES for name in made_parts(text(page))}

    assert shown == set(PARTS)


def test_a_stale_table_is_noticed() -> None:
    stale = "<!-- made: opponents -->`random`<!-- end -->"

    assert with_parts(stale) != stale


def evaluation(a: float, value: float, role: str = "design") -> Evaluation:
    return Evaluation(
        coefficients={"a": a},
        task="one",
        role=role,  # type: ignore[arg-type]  # one of the roles, below
        value=value,
        stderr=0.1,
        n=1,
        seconds=0.0,
        merge="now",
        definition="",
        gradient={"a": math.nan},
        error=None if math.isfinite(value) else "failed",
    )


def test_a_written_front_has_the_documented_form() -> None:
    study = Study(
        bounds={"a": (0.0, 1.0)},
        anchors={"base": {"a": 0.0}},
        tasks={"one": Metric(higher_is_better=True, lower=None, upper=None)},
        definitions={"one": ""},
        merge="now",
        search=SearchSpec(),
        select=SelectSpec(),
    )
    X = np.linspace(0, 1, 5)[:, None]
    surrogate = fit_surrogate(
        X, X[:, 0] ** 2, stderr=None, link=Link(-math.inf, math.inf), bounds=study.box
    )
    result = StudyResult({"one": surrogate}, [{"a": 0.4}], 0)
    log = [evaluation(a, a) for a in (0.0, 0.3, 0.4)]

    content = front_content(study, result, log)

    front = Front.model_validate_json(json.dumps(plain(content)))
    assert (len(front.points), len(front.anchors), len(front.merges)) == (1, 1, 1)


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_a_written_line_of_the_log_has_the_documented_form(
    tmp_path: Path, value: float
) -> None:
    with open_log(tmp_path / "evaluations.jsonl") as log:
        log.append(evaluation(0.1, value, role="baseline"))

    line = EvaluationLine.model_validate_json(log.path.read_text(encoding="utf-8"))

    assert line.coefficients == {"a": 0.1}
    assert (line.error is None) == math.isfinite(value)


def test_what_is_said_of_the_family_of_eight_is_what_was_kept() -> None:
    kept = " ".join((RESULTS / "fewer_evaluations.md").read_text().split())
    page = " ".join(text("docs/strategies.md").split())

    for figure in (
        "a base and eight fine-tunes of 282 k parameters",
        "64 unseen",
        "about three times as long",
    ):
        assert figure in kept
        assert figure in page
    scatter = re.findall(r"scatter by ([\d.]+)%", kept)
    assert [float(value) > 3 for value in scatter] == [False] * 3 + [True] * 2


def test_botorch_was_stopped_where_the_page_says_and_ahead_until_then() -> None:
    for models in (2, 3, 4):
        tables = (RESULTS / "fewer_evaluations.md").read_text(encoding="utf-8")
        _, part = tables.split(f"## N = {models}\n")
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in part.split("\n## ")[0].splitlines()
            if line.startswith("| ")
        ]
        header = next(line for line in lines if line[0] == "hypervolume after")
        column = header.index("40")
        opponents = lines[lines.index(header) + 2 :]
        after = {line[0]: float(line[column]) for line in opponents}
        assert max(after, key=lambda name: after[name]) == "qlognehvi"
    _, *needs = kept_table("fewer_evaluations.md", "")
    (stopped,) = [line[1:] for line in needs if line[0].startswith("qlognehvi")]
    assert stopped == ["40", "> 40", "> 40", "", ""]


def test_numbers_of_the_strategies_are_those_of_the_code() -> None:
    page = " ".join(text("docs/strategies.md").split())

    assert MAX_COEFFICIENTS == 3
    assert "up to three coefficients" in page
    assert f"anchors and {N_START} uniform merges, then {N_ROUND} at a time" in page
    assert f"({n_bins(2)} of two coefficients, {n_bins(3)} of three)" in page
    assert f"`evaluations` merges ({EVALUATIONS} by default)" in page
    assert f"after {STEPS} steps of Adam" in text("docs/comparing.md")
