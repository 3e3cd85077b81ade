"""The pages that a reader is given, as text, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ON_TOP = ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")
_PATHS = [*(ROOT / f"{n}.md" for n in _ON_TOP), *sorted(ROOT.glob("docs/*.md"))]
PAGES = {str(path.relative_to(ROOT)): path for path in _PATHS}


def text(page: str) -> str:
    """Read a page, named by its path in the repository."""
    return PAGES[page].read_text(encoding="utf-8")


def command_lines(page: str) -> list[str]:
    """List the commands of this program that a page tells its reader to type."""
    lines = re.findall(
        r"^ {4}(mergekit-map [^#\n]*)|`(mergekit-map [^`]*)`",
        text(page).replace("\\\n", " "),  # a command of several lines
        re.M,
    )
    return [" ".join((one or other).split()) for one, other in lines]


def blocks(page: str, language: str) -> list[str]:
    """List the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), re.M | re.S)


def links(page: str) -> list[str]:
    """List the targets of links that stay in the repository."""
    outside_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", text(page), flags=re.M | re.S)
    return re.findall(r"\]\((?!https?:)([^)]+)\)", outside_code)


def headings(path: Path) -> set[str]:
    """List the names by which links find the headings of a page."""
    text = path.read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", outside, re.M)
    return {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
