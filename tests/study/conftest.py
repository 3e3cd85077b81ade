"""Searches of functions: their fronts have few points where no test asks for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quick_fronts import fronts_of_few_points


@pytest.fixture(autouse=True)
def _quick_fronts(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("whole_front"):
        yield
        return
    with fronts_of_few_points(31):
        yield
