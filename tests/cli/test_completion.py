"""What TAB offers in a shell, and that it takes no time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class

from mergekit_map.cli.main import main

COMPLETE = """
import atexit, sys
from mergekit_map.cli.main import main
known = sys.stdlib_module_names
atexit.register(lambda: print(
    "loaded", *{name.split(".")[0] for name in sys.modules} - known, file=sys.stderr
))
main(prog_name="mergekit-map")
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["se"], {"search": "plain", "select": "plain"}),
        (["search", "--imp"], {"--import": "plain"}),
        (
            ["search", "--evaluations", "3", "--lora-merge-d"],
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
    shell = get_completion_class("bash")
    assert shell is not None
    *before, last = words

    offered = shell(main, {}, "mergekit-map", "").get_completions(before, last)

    assert {item.value: item.type for item in offered} == expected


def test_tab_loads_nothing_heavy() -> None:
    line = {"COMP_WORDS": "mergekit-map search --imp", "COMP_CWORD": "2"}
    environment = {"_MERGEKIT_MAP_COMPLETE": "bash_complete", **line}

    found = complete(**environment)

    assert found.stdout == "plain,--import\n"
    loaded = set(found.stderr.split())
    assert "loaded" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "scipy", "mergekit"}


def complete(**variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", COMPLETE]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    )
