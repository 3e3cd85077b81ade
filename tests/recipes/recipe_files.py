"""The recipes as files: what stands in the comments that they open with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
PATHS = sorted(RECIPES.glob("*.yml"))
PARTS = ["Command", "Cost", "Models", "Expect", "Change"]

_NUMBER = r"\d+(?:\.\d+)?(?:e\d+)?"


@dataclass(frozen=True)
class Header:
    """The comment that a recipe opens with."""

    title: str
    parts: Mapping[str, list[str]]  # name to lines, without the indentation

    @property
    def commands(self) -> list[str]:
        return self.parts["Command"]

    def cost(self, name: str) -> str:
        """Give an entry of the cost, its lines joined."""
        entries = re.split(r"\n(?=\w+: )", "\n".join(self.parts["Cost"]))
        named = dict(entry.split(": ", 1) for entry in entries)
        return named[name]

    @property
    def terms(self) -> list[str]:
        """List the lines of the estimate of time."""
        return [line.strip() for line in self.cost("time").splitlines()[1:]]


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


def compute(expression: str) -> float:
    """Multiply the numbers of ``30 merges x 2 tasks / 1e3 a second``.

    Only the first number of each factor counts; the rest says what it is.
    """
    value = 1.0
    for sign, factor in re.findall(r"(^| x | / )(.*?)(?= x | / |$)", expression):
        number = re.match(_NUMBER, factor)
        assert number is not None, factor
        value = value / float(number[0]) if sign == " / " else value * float(number[0])
    return value


def states(equation: str, unit: str) -> float:
    """Give what an equation says it comes to, in ``unit``, having computed it."""
    left, _, right = equation.partition(" = ")
    found = re.match(rf"({_NUMBER}) ?{unit}", right)
    assert found is not None, equation
    stated = float(found[1])
    # As many digits as are written.
    assert math.isclose(compute(left), stated * _scale(unit), rel_tol=0.01), equation
    return stated


def _scale(unit: str) -> float:
    return {"GB": 1e9}.get(unit, 1.0)
