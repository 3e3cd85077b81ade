"""Which room may import what (design section 5), each checked in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mergekit_map

HEAVY = {"torch", "transformers", "mergekit", "lm_eval", "peft", "datasets"}

LIGHT = (
    "mergekit_map",
    "mergekit_map.cli",
    "mergekit_map.commands.migrating",
    "mergekit_map.commands.pushing",
    "mergekit_map.commands.reporting",
    "mergekit_map.commands.selecting",
    "mergekit_map.config",
    "mergekit_map.importing",
    "mergekit_map.measurement",
    "mergekit_map.selection",
    "mergekit_map.search.design",
    "mergekit_map.search.front",
    "mergekit_map.search.surrogate",
    "mergekit_map.study.log",
    "mergekit_map.study.results",
    "mergekit_map.study.study",
    "mergekit_map.publish.card",
    "mergekit_map.publish.hub",
    "mergekit_map.publish.plan",
    "mergekit_map.publish.plots",
    "mergekit_map.publish.report",
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
    assert "mergekit" not in imported_by("mergekit_map.tasks.preparing").popitem()[1]


@pytest.mark.slow  # imports mergekit anew
def test_models_are_merged_without_lm_eval() -> None:
    found = imported_by("mergekit_map.merging.resident").popitem()[1]

    assert "lm_eval" not in found
    assert found >= {"torch", "mergekit"}  # the check can fail


@pytest.mark.parametrize("name", mergekit_map.__all__)
def test_public_names_resolve(name: str) -> None:
    # Whatever was imported before: a module of that name must not hide the function.
    assert callable(getattr(mergekit_map, name))
