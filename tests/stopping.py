"""Searches that are stopped on the way, and then go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest
from fakes import Recorder

from mergekit_map.search.study import Evaluator
from mergekit_map.types import Measurement

Found = TypeVar("Found")


def stopped_and_resumed(
    search: Callable[[Evaluator], Found], evaluate: Recorder, stop: int
) -> Found:
    """Interrupt a search after ``stop`` measurements, and start it once more.

    Returns what it finds in the end; ``evaluate`` has seen the measurements of both.
    """

    def stopping(coefficients: Mapping[str, float], task: str) -> Measurement:
        if len(evaluate.calls) == stop:
            raise KeyboardInterrupt("stopped")
        return evaluate(coefficients, task)

    with pytest.raises(KeyboardInterrupt, match="stopped"):
        search(stopping)
    return search(evaluate)
