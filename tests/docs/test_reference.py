"""What the pages have from the code and from kept results is as these have it."""

from __future__ import annotations

import pytest
from pages import PAGES, text
from reference import PARTS, made_parts, with_parts


@pytest.mark.parametrize("page", PAGES)
def test_what_is_made_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/docs/reference.py"


def test_all_that_is_made_stands_on_some_page() -> None:
    shown = {name for page in PAGES for name in made_parts(text(page))}

    assert shown == set(PARTS)
