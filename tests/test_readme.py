"""The README is true: commands exist, examples are accepted, tables are fresh."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from readme_reference import in_readme, reference

from mergekit_map.cli import main
from mergekit_map.steps.schema import config_schema

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
COMMANDS = main.list_commands(click.Context(main))
COMMAND_LINES = re.findall(
    r"^    (mergekit-map [^#\n]*)|`(mergekit-map [^`]*)`", TEXT, re.M
)
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.M | re.S)


def parse(line: str) -> str:
    """Parse a command line as click would, without running it; gives the command."""
    words = shlex.split(line.split(" > ")[0])[1:]
    context = click.Context(main)
    name, command, rest = main.resolve_command(context, words)
    assert name is not None
    assert command is not None
    if rest:
        command.make_context(name, rest, parent=context)
    return name


def test_every_command_line_of_the_readme_is_accepted() -> None:
    parsed = {parse(next(filter(None, found))) for found in COMMAND_LINES}

    # The demo's stands in the command that installs everything.
    assert parsed | {"demo"} == set(COMMANDS)


def test_a_wrong_command_line_is_noticed() -> None:
    with pytest.raises(click.UsageError, match="--preefr"):
        parse("mergekit-map select my-search --preefr math=2")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_is_accepted(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help is not None
    example = re.search(r"^ *Example: (mergekit-map .*)$", command.help, re.M)
    assert example is not None, command.help

    assert parse(example[1]) == name


def test_the_reference_is_that_of_the_specs() -> None:
    assert in_readme(TEXT) == reference(), "run: python tests/readme_reference.py"


def test_whole_configurations_of_the_readme_are_valid() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    whole = [c for c in map(yaml.safe_load, BLOCKS) if "merge_method" in c]
    assert len(whole) >= 2

    for config in whole:
        validator.validate(config)


def test_parts_of_configurations_in_the_readme_are_valid() -> None:
    parts: list[dict[str, Any]] = [yaml.safe_load(block) for block in BLOCKS]
    parts = [part for part in parts if "merge_method" not in part]
    task = {"python": "mine:f", "direction": "maximize"}
    whole = {"merge_method": "linear"}
    validator = jsonschema.Draft202012Validator(config_schema())
    assert parts

    for part in parts:
        validator.validate({**whole, "map": {"tasks": {"t": task}, **part}})


def test_every_link_inside_the_repository_leads_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", TEXT)
    assert targets

    for target in targets:
        assert (README.parent / target).exists(), target


def test_every_link_inside_the_readme_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, re.M)
    known = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
    targets = re.findall(r"\]\(#([^)]+)\)", TEXT)

    assert set(targets) <= known
