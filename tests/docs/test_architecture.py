"""docs/architecture.md names every package, and no file that is not there."""

from __future__ import annotations

import ast
import re

import pytest
from pages import PAGES, ROOT, blocks, text

PACKAGE = ROOT / "mergekit_map"
_NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yml|toml))(?::(\w+))?`")


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


def test_the_rule_is_the_one_that_is_checked() -> None:
    tomllib = pytest.importorskip("tomllib")
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = content["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c["type"] == "layers"]
    (rule,) = blocks("docs/architecture.md", "layers")

    checked, shown = (
        [set(re.findall(r"\w+", line)) for line in lines]
        for lines in (layers, rule.splitlines())
    )
    assert checked == shown
