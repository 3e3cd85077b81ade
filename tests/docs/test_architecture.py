"""docs/architecture.md says of every file where it is, and names none that is not."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pages import PAGES, ROOT, blocks, text

PACKAGE = ROOT / "mergekit_map"
PAGE = text("docs/architecture.md")
_ROW = re.compile(r"^\| `([\w/]+(?:\.py|/))` \| (.*) \|$", re.M)
_NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yml|toml))(?::(\w+))?`")


def modules() -> set[str]:
    """List the modules, and the one folder of other files, of the package."""
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py" or path.parent == PACKAGE
    }
    return files | {"publish/pages/"}


def find(name: str) -> Path:
    """Find a file that is named by its path in the package or in the repository."""
    return PACKAGE / name if (PACKAGE / name).exists() else ROOT / name


def test_every_module_has_one_line_and_no_line_is_of_another() -> None:
    described = Counter(name for name, _ in _ROW.findall(PAGE))

    assert set(described) == modules()
    assert described.total() == len(described)


def test_every_line_says_something() -> None:
    assert all(len(about.split()) > 2 for _, about in _ROW.findall(PAGE))


def test_every_module_stands_in_the_part_of_its_room() -> None:
    _, part = PAGE.split("\n## The modules\n")
    part = part.split("\n## ")[0]
    for section in part.split("\n### ")[1:]:
        rows = _ROW.findall(section)
        room = re.match(r"`(\w+)/`", section)
        expected = room[1] if room else "."
        assert rows
        for name, _ in rows:
            assert Path(name).parts[0] == expected or Path(name).name == name


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists_and_has_what_is_named_in_it(page: str) -> None:
    for name, inside in _NAMED.findall(text(page)):
        if "/" not in name or "NAME" in name:  # of the top, or of the reader's own
            continue
        path = find(name)
        assert path.exists(), name
        if inside:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert inside in {getattr(node, "name", "") for node in tree.body}, name


def test_rooms_that_the_rule_names_are_those_there_are() -> None:
    (rule,) = blocks("docs/architecture.md", "layers")
    named = re.findall(r"\w+", rule)
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    ground = {p.stem for p in PACKAGE.glob("*.py")} - {"__init__"}

    assert Counter(named) == Counter(rooms | ground)


def test_the_rule_is_the_one_that_is_checked() -> None:
    tomllib = pytest.importorskip("tomllib")
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = content["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c["type"] == "layers"]
    (rule,) = blocks("docs/architecture.md", "layers")

    checked = [
        set(re.findall(r"\w+", re.sub(r"mergekit_map\.", "", x))) for x in layers
    ]
    assert checked == [set(re.findall(r"\w+", line)) for line in rule.splitlines()]


def test_no_file_name_stands_twice_but_those_of_commands_and_steps() -> None:
    stems = Counter(
        path.stem
        for path in PACKAGE.rglob("*.py")
        if path.stem != "__init__" and path.parent.name not in {"commands", "steps"}
    )

    assert [stem for stem, count in stems.items() if count > 1] == []


def test_a_file_of_commands_or_steps_is_named_after_what_it_serves() -> None:
    from mergekit_map.cli.main import main

    commands = {name.replace("-", "_") for name in main.list_commands(None)}
    shared = {"shared", "options", "merge_options", "new_merge"}
    shared |= {
        "gain_table",
        "needs_table",
        "probe_table",
        "next_steps",
        "progress",
        "showing",
        "talk",
        "workers",
    }
    shared |= {"terminal", "using", "wide_table", "__init__"}
    files = {path.stem for path in (PACKAGE / "commands").glob("*.py")}

    assert files == commands | shared


def test_tools_that_a_contributor_is_told_to_run_are_in_the_test_extra() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(r"^test = \[\n(.*?)^\]", pyproject, re.M | re.S)
    assert extra is not None
    page = text("CONTRIBUTING.md")
    packages = {
        ".venv/bin/pytest": "pytest>",
        "pytest-xdist": "pytest-xdist",
        ".venv/bin/ruff": "ruff",
        ".venv/bin/mypy": "mypy",
        ".venv/bin/lint-imports": "import-linter",
    }

    for command, package in packages.items():
        assert command in page
        assert f'"{package}' in extra[1], package


def test_hooks_run_what_is_installed_and_fetch_nothing() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]

    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {hook["id"] for hook in hooks} == {
        "ruff-check",
        "ruff-format",
        "mypy",
        "lint-imports",
    }
