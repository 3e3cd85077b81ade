"""Every package that is imported is declared, not only brought by another one."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import mergekit_map

PACKAGE = Path(mergekit_map.__file__).parent


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text().partition("\ntest = [")[0]
    declared = set(map(normal, re.findall(r'^    "([\w.-]+)[<>=]', project, re.M)))
    found = {name for path in PACKAGE.rglob("*.py") for name in imported(path)}
    packages = found - sys.stdlib_module_names - {"mergekit_map"}
    brought_by = packages_distributions()

    missing = {
        package
        for package in packages
        if declared.isdisjoint(map(normal, brought_by.get(package, [package])))
    }

    assert len(packages) > 20
    assert not missing
