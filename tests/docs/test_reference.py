"""What the pages have from the code and from kept results is as these have it."""

from __future__ import annotations

import re

import pytest
from figures import RESULTS, kept_table
from pages import PAGES, text
from reference import PARTS, made_parts, with_parts

from mergekit_map.compare.contest import ComparisonSpec
from mergekit_map.search.sectors import n_bins
from mergekit_map.study.bayesian import MAX_COEFFICIENTS, N_ROUND, N_START
from mergekit_map.study.nested import EVALUATIONS


@pytest.mark.parametrize("page", PAGES)
def test_what_is_made_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/docs/reference.py"


def test_all_that_is_made_stands_on_some_page() -> None:
    shown = {name for page in PAGES for name in made_parts(text(page))}

    assert shown == set(PARTS)


def test_a_stale_table_is_noticed() -> None:
    stale = "<!-- made: opponents -->`random`<!-- end -->"

    assert with_parts(stale) != stale


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
    assert f"after {ComparisonSpec().steps} steps of Adam" in text("docs/comparing.md")
