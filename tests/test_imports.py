"""What a room brings along at run time, each in a fresh process.

Which room may import which, and who may name mergekit, lm_eval and torch, is held by
import-linter (pyproject.toml); here is what other packages import in turn.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "mergekit", "lm_eval", "peft", "datasets"}

# A module, or a room with all of its modules -> what it may bring along.
MAY_IMPORT = {
    "mergekit_map": set(),
    "mergekit_map.cli": set(),
    "mergekit_map.commands.import_evolve": set(),
    "mergekit_map.commands.push": set(),
    "mergekit_map.commands.report": set(),
    "mergekit_map.commands.select": set(),
    "mergekit_map.config.*": set(),
    "mergekit_map.search.*": set(),
    "mergekit_map.study.*": set(),
    "mergekit_map.publish.*": set(),
    "mergekit_map.tasks.preparing": HEAVY - {"mergekit"},
    "mergekit_map.merging.resident": HEAVY - {"lm_eval"},
}

ROOM = """
import importlib, pkgutil, {room}
for module in pkgutil.iter_modules({room}.__path__, "{room}."):
    importlib.import_module(module.name)
"""


def imported_by(module: str) -> set[str]:
    """List the heavy packages that importing a module or a room brings along."""
    room = module.removesuffix(".*")
    script = f"import {module}" if room == module else ROOM.format(room=room)
    script += "\nimport sys; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", script]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return HEAVY & {name.split(".")[0] for name in found.stdout.split()}


@pytest.mark.parametrize("module", MAY_IMPORT)
def test_a_module_brings_along_no_more_than_it_may(module: str) -> None:
    assert imported_by(module) <= MAY_IMPORT[module]


def test_the_check_can_fail() -> None:
    assert imported_by("mergekit_map.merging.methods") >= {"torch", "mergekit"}
    assert imported_by("mergekit_map.merging.*") >= {"torch", "mergekit"}


def test_public_names_resolve() -> None:
    script = (
        "import mergekit_map as m, mergekit_map.steps.search\n"
        "assert all(callable(getattr(m, name)) for name in m.__all__)"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    subprocess.run(command, check=True, capture_output=True)
