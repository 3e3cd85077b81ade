"""Which room may import what (design section 5), each checked in a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "mergekit", "lm_eval", "peft", "datasets"}

MODULES = {
    "mergekit_map": set(),
    "mergekit_map.cli": set(),
    "mergekit_map.commands.import_evolve": set(),
    "mergekit_map.commands.push": set(),
    "mergekit_map.commands.report": set(),
    "mergekit_map.commands.select": set(),
    "mergekit_map.config.parsing": set(),
    "mergekit_map.study.import_csv": set(),
    "mergekit_map.measurement": set(),
    "mergekit_map.steps.select": set(),
    "mergekit_map.search.design": set(),
    "mergekit_map.search.nsga": set(),
    "mergekit_map.search.surrogate": set(),
    "mergekit_map.study.log": set(),
    "mergekit_map.study.results": set(),
    "mergekit_map.study.study": set(),
    "mergekit_map.publish.card": set(),
    "mergekit_map.publish.hub": set(),
    "mergekit_map.publish.plan": set(),
    "mergekit_map.publish.plots": set(),
    "mergekit_map.publish.report": set(),
    "mergekit_map.tasks.preparing": HEAVY - {"mergekit"},
    "mergekit_map.merging.resident": HEAVY - {"lm_eval"},
}


def imported_by(module: str) -> set[str]:
    """List the heavy packages that importing a module brings along."""
    script = f"import sys, {module}; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", script]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return HEAVY & {name.split(".")[0] for name in found.stdout.split()}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_no_more_than_it_may(module: str) -> None:
    assert imported_by(module) <= MODULES[module]


def test_the_check_can_fail() -> None:
    assert imported_by("mergekit_map.merging.methods") >= {"torch", "mergekit"}


def test_public_names_resolve() -> None:
    script = (
        "import mergekit_map as m, mergekit_map.steps.search\n"
        "assert all(callable(getattr(m, name)) for name in m.__all__)"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    subprocess.run(command, check=True, capture_output=True)
