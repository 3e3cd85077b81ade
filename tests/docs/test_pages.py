"""The pages are true: what they name exists, their examples are accepted."""

from __future__ import annotations

import ast
import json
import re
import shlex

import click
import jsonschema
import pytest
import yaml
from pages import PAGES, ROOT, blocks, command_lines, headings, links, text
from reference import with_parts
from runs import invoke

from mergekit_map.cli.main import main
from mergekit_map.cli.options import CONFIG, RUN

PACKAGE = ROOT / "mergekit_map"
_NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yml|toml))(?::(\w+))?`")
COMMANDS = main.list_commands(click.Context(main))
COMMAND_LINES = [(page, line) for page in PAGES for line in command_lines(page)]


def parse(line: str) -> str:
    """Parse a command line as click would, without running it; gives the command."""
    words = shlex.split(line.split(" > ")[0])[1:]
    context = click.Context(main)
    name, command, rest = main.resolve_command(context, words)
    if rest:
        command.make_context(name, rest, parent=context)
    return name


@pytest.fixture(autouse=True)
def anything_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands be parsed that name folders and files of their reader."""
    monkeypatch.setattr(RUN, "exists", False)
    monkeypatch.setattr(CONFIG, "exists", False)


@pytest.mark.parametrize("page", PAGES)
def test_what_pages_have_from_the_code_is_fresh(page: str) -> None:
    assert with_parts(text(page)) == text(page), "run: python tests/reference.py"


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_every_command_line_is_accepted(page: str, line: str) -> None:
    assert parse(line) in COMMANDS, page


def test_every_command_stands_in_the_readme_or_a_page_that_it_names() -> None:
    # The demo's stands in the command that installs everything.
    assert {parse(line) for _, line in COMMAND_LINES} | {"demo"} == set(COMMANDS)


# A change may name an option or a file that left.
@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_options_named_in_passing_exist(page: str) -> None:
    named = set(re.findall(r"`(--[a-z-]+)[ `=]", text(page)))
    known = {
        option
        for name in COMMANDS
        if (command := main.get_command(click.Context(main), name)) is not None
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }

    assert named <= known | {"--help", "--version"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example_that_is_accepted(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    example = re.search(r"^ *Example: (mergekit-map .*)$", command.help, re.M)

    assert parse(example[1]) == name


def test_configurations_are_valid_by_the_schema_that_the_command_prints() -> None:
    schema = json.loads(invoke("schema").stdout)
    found = [yaml.safe_load(b) for page in PAGES for b in blocks(page, "yaml")]
    wholes = [content for content in found if "merge_method" in content]
    assert 2 <= len(wholes) <= len(found) - 2

    task = {"python": "mine:f", "direction": "maximize"}
    for content in found:  # the others are parts of a ``map:`` block
        part = {"merge_method": "linear", "map": {"tasks": {"t": task}, **content}}
        jsonschema.validate(content if content in wholes else part, schema)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_inside_the_repository_leads_somewhere(page: str) -> None:
    for link in links(page):
        target, _, heading = link.partition("#")
        path = (PAGES[page].parent / target) if target else PAGES[page]
        assert path.exists(), link
        assert not heading or heading in headings(path), link


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in links("README.md")}

    assert {page for page in PAGES if page != "README.md"} <= linked


def test_the_pages_are_short() -> None:
    lines = {page: len(text(page).splitlines()) for page in PAGES}

    assert lines["README.md"] <= 120
    assert lines["docs/architecture.md"] <= 250
    assert sum(lines.values()) - lines["CHANGELOG.md"] - lines["SECURITY.md"] <= 1_800


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_pages_show_what_the_commands_printed(page: str) -> None:
    kept = json.loads((ROOT / "docs/results/tutorial.json").read_text())
    shown = blocks(page, "text")

    assert shown
    assert all(any(block in text for text in kept["printed"]) for block in shown)


def test_every_package_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)/` \| ", text("docs/architecture.md"), re.M)

    assert sorted(rows) == sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists_and_has_what_is_named_in_it(page: str) -> None:
    for name, inside in _NAMED.findall(text(page)):
        if "/" not in name or "NAME" in name:  # of the top, or of the reader's own
            continue
        path = PACKAGE / name if (PACKAGE / name).exists() else ROOT / name
        assert path.exists(), name
        if inside:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert inside in {getattr(node, "name", "") for node in tree.body}, name
