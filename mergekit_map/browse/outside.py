"""What the screen leaves to others: merging, talking, pushing, writing a choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rich.text import Text

from mergekit_map.browse.view import View

Doing: TypeAlias = Literal["merge", "talk", "push"]


@dataclass(frozen=True)
class Leaving:
    """What is asked for that is done outside of the screen."""

    doing: Doing
    choice: Mapping[str, Any]  # of select: the point one is at
    words: Mapping[str, str]  # what was answered


@dataclass(frozen=True)
class Outside:
    """What the screen cannot do by itself."""

    wish: Callable[[View, Mapping[str, str]], View]  # limits and preferences
    save: Callable[[Mapping[str, Any]], View]  # write a choice, and read what is now
    said: Callable[[View], Text]  # what the numbers mean at a point
    merged: Callable[[], str]  # the folder that was merged into last
