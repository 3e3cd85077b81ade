"""What the pages have from the code and from kept results is as these have it."""

from __future__ import annotations

import pytest
from pages import PAGES, text
from reference import with_parts


@pytest.mark.parametrize("page", PAGES)
def test_what_is_made_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/docs/reference.py"
