"""What the pages have from the code and from kept results is as these have it."""

from __future__ import annotations

import pytest
from pages import PAGES, text
from reference import PARTS, made_parts, with_parts

from mergekit_map.search.angular_bins import n_bins
from mergekit_map.search.bayesian import MAX_COEFFICIENTS, N_ROUND, N_START
from mergekit_map.search.nested import EVALUATIONS


@pytest.mark.parametrize("page", PAGES)
def test_what_is_made_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/docs/reference.py"


def test_all_that_is_made_stands_on_some_page() -> None:
    shown = {name for page in PAGES for name in made_parts(text(page))}

    assert shown == set(PARTS)


def test_numbers_of_the_strategies_are_those_of_the_code() -> None:
    page = " ".join(text("docs/strategies.md").split())

    assert MAX_COEFFICIENTS == 3
    assert "up to three coefficients" in page
    assert f"anchors and {N_START} uniform merges, then {N_ROUND} at a time" in page
    assert f"({n_bins(2)} of two coefficients, {n_bins(3)} of three)" in page
    assert f"`evaluations` merges ({EVALUATIONS} by default)" in page
