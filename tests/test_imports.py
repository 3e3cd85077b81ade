"""What a package brings along at run time, each in a fresh process.

Which package may import which, and who may name mergekit, lm_eval and torch, is held by
import-linter (pyproject.toml); here is what other packages import in turn.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import mergekit_map

HEAVY = {"torch", "transformers", "mergekit", "lm_eval", "peft", "datasets"}

COMMANDS = ("push", "report", "select")
PACKAGES = ("config", "hub", "optimize", "report", "results", "search", "surrogates")
LIGHT = (
    "mergekit_map",
    "mergekit_map.cli.main",
    *(f"mergekit_map.cli.commands.{name}" for name in COMMANDS),
    *(
        module.name
        for package in PACKAGES
        for module in pkgutil.iter_modules(
            [str(Path(mergekit_map.__file__).parent / package)],
            f"mergekit_map.{package}.",
        )
    ),
)


def imported_by(*modules: str) -> dict[str, set[str]]:
    """List the heavy packages that are there after each import, in a fresh process."""
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    print(*sys.modules)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, *modules]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [line.split() for line in found.stdout.splitlines()]
    return {
        module: HEAVY & {name.split(".")[0] for name in row}
        for module, row in zip(modules, rows, strict=True)
    }


@pytest.mark.slow  # a process of its own
def test_most_modules_import_nothing_heavy() -> None:
    # The first of those with something beside it is the one to blame.
    assert imported_by(*LIGHT) == {module: set() for module in LIGHT}


@pytest.mark.slow  # imports lm-eval anew
def test_tasks_are_measured_without_mergekit() -> None:
    assert "mergekit" not in imported_by("mergekit_map.tasks.loading").popitem()[1]


@pytest.mark.slow  # imports mergekit anew
def test_models_are_merged_without_lm_eval() -> None:
    found = imported_by("mergekit_map.merging.in_memory").popitem()[1]

    assert "lm_eval" not in found
    assert found >= {"torch", "mergekit"}  # the check can fail


@pytest.mark.parametrize("name", mergekit_map.__all__)
def test_public_names_resolve(name: str) -> None:
    # Whatever was imported before: a module of that name must not hide the function.
    assert callable(getattr(mergekit_map, name))
