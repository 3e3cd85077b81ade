"""The repository stays as small as it is: figures here are lowered, never raised."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = {"mergekit_map": 25_532, "tests": 19_203, "benchmarks": 9_903}
MOST_MODULES = 108


@pytest.mark.parametrize("folder", MOST_LINES)
def test_no_folder_has_more_lines_of_python_than_it_had(folder: str) -> None:
    paths = list((ROOT / folder).rglob("*.py"))
    assert paths

    lines = sum(len(path.read_bytes().splitlines()) for path in paths)

    assert lines <= MOST_LINES[folder]


def test_the_package_has_no_more_modules_than_it_had() -> None:
    modules = [p for p in (ROOT / "mergekit_map").rglob("*.py") if p.stem[:2] != "__"]

    assert 0 < len(modules) <= MOST_MODULES
