"""What TAB offers in a shell, and that it takes no time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

# What the shell runs on TAB, and which packages that loads.
COMPLETE = """
import atexit, sys
from mergekit_map.cli import main
known = sys.stdlib_module_names
atexit.register(lambda: print(
    "loaded", *{name.split(".")[0] for name in sys.modules} - known, file=sys.stderr
))
main(prog_name="mergekit-map")
"""


def press_tab(*words: str) -> tuple[dict[str, str], set[str]]:
    """Complete the last word as bash does: what is offered by kind, what is loaded."""
    line = {"COMP_WORDS": " ".join(["mergekit-map", *words]), "COMP_CWORD": ""}
    line["COMP_CWORD"] = str(len(words))
    environment = {**os.environ, "_MERGEKIT_MAP_COMPLETE": "bash_complete", **line}
    command = [sys.executable, "-W", "ignore", "-c", COMPLETE]
    found = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    )
    offered = [row.partition(",") for row in found.stdout.split()]
    (loaded,) = (s for s in found.stderr.splitlines() if s.startswith("loaded"))
    return {value: kind for kind, _, value in offered}, set(loaded.split()[1:])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["se"], {"search": "plain", "select": "plain"}),
        (["search", "--imp"], {"--import": "plain"}),
        (
            ["search", "--points", "3", "--lora-merge-d"],
            {"--lora-merge-dtype": "plain"},
        ),
        (["select", "r", "--scalarization", "a"], {"achievement": "plain"}),
        (["inspect", "me"], {"me": "file"}),
        (["select", "my"], {"my": "dir"}),
        (["report", "my"], {"my": "dir"}),
        (["compare", "one", "my"], {"my": "dir"}),
        (["merge", "run", "my"], {"my": "dir"}),
    ],
)
def test_tab_offers_what_may_stand_there(
    words: list[str], expected: dict[str, str]
) -> None:
    offered, loaded = press_tab(*words)

    assert offered == expected
    assert not loaded & {"torch", "transformers", "numpy", "scipy", "mergekit"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_is_to_read_is_printed(shell: str) -> None:
    environment = {**os.environ, "_MERGEKIT_MAP_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-W", "ignore", "-c", COMPLETE]
    shown = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout

    assert f"_MERGEKIT_MAP_COMPLETE={shell}_complete" in shown
    if interpreter := shutil.which(shell):
        subprocess.run([interpreter, "-n"], input=shown, text=True, check=True)
