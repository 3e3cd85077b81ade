"""The recipes as files: what stands in the comments that they open with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
PATHS = sorted(RECIPES.glob("*.yml"))
PARTS = ["Command", "Cost", "Models", "Expect", "Change"]


@dataclass(frozen=True)
class Header:
    """The comment that a recipe opens with."""

    title: str
    parts: Mapping[str, list[str]]  # name to lines, without the indentation

    @property
    def commands(self) -> list[str]:
        return self.parts["Command"]


def read_header(path: Path) -> Header:
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    parts: dict[str, list[str]] = {}
    for line in lines[1:]:
        if name := re.fullmatch(r"(\w+):", line):
            parts[name[1]] = []
        elif line.startswith("  ") and parts:
            next(reversed(parts.values())).append(line[2:])
    return Header(lines[0], parts)
