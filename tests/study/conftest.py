"""Searches of functions find fronts of 31 points, but for a mark that asks for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quick_fronts import fronts_of_few_points, whole_fronts


@pytest.fixture(autouse=True)
def _quick_fronts(request: pytest.FixtureRequest) -> Iterator[None]:
    whole = request.node.get_closest_marker("whole_front")
    with whole_fronts() if whole else fronts_of_few_points(31):
        yield
