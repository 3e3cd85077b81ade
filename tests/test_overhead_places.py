"""The benchmark of what is not a forward pass names functions of this package."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


def test_the_functions_that_are_booked_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    benchmarks = Path(__file__).with_name("benchmarks")
    monkeypatch.syspath_prepend(benchmarks)
    overhead = importlib.import_module("overhead")
    for functions in overhead.PLACES.values():
        for function in functions:
            module, _, path = function.partition(":")
            owner = importlib.import_module(module)
            for name in path.split("."):
                owner = getattr(owner, name)
            assert callable(owner), function
