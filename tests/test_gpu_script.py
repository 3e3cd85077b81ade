"""The script for a GPU, in miniature on what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def run(*code: str) -> str:
    done = subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, cwd=SCRIPT.parent
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def table(text: str) -> dict[str, str]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    return {cells[0]: cells[1] for cells in rows if len(cells) == 2}


@pytest.mark.slow
def test_every_method_has_mergekits_bytes_and_every_part_ends() -> None:
    found = table(run(str(SCRIPT), "--size", "tiny", "--minutes", "60"))

    methods = [row for what, row in found.items() if what.startswith("same bytes")]
    assert len(methods) == 11
    assert set(methods) == {"yes"}
    assert not [row for row in found.values() if row.startswith("failed")]
    assert {f"{part}, all of it" for part in ("likelihoods", "answers")} <= {*found}


@pytest.mark.slow
def test_a_part_that_fails_is_a_row_and_leaves_the_others() -> None:
    code = (
        "import sys, gpu\n"
        "def broken(scale, folder):\n"
        "    yield 'before', 'fine'\n"
        "    raise RuntimeError('no more memory')\n"
        "gpu.contract_1 = broken\n"
        "gpu.likelihoods = lambda scale, folder: iter([('after', 'fine too')])\n"
        "sys.argv = ['gpu.py', '--size', 'tiny', '--parts', 'ac']\n"
        "gpu.main()\n"
    )

    found = table(run("-c", code))

    assert found["before"] == "fine"
    assert found["broken"] == "failed: RuntimeError: no more memory"
    assert found["after"] == "fine too"
