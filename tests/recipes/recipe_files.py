"""The recipes as files: where they are, and the commands that they open with."""

from __future__ import annotations

import re
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
PATHS = sorted(RECIPES.glob("*.yml"))


def commands_of(path: Path) -> list[str]:
    """Read the commands in the comment that a recipe opens with."""
    text = path.read_text(encoding="utf-8")
    (block,) = re.findall(r"^# Command:\n((?:#   .*\n)+)", text, re.M)
    return [line.removeprefix("#   ") for line in block.splitlines()]
