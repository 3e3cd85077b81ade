"""The screen of browse, driven by its keys and read as text, for the tests of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from textual.pilot import Pilot

from mergekit_map.browse.app import WORKING, Browser, ExitAction
from mergekit_map.browse.state import View
from mergekit_map.results.front import Front
from mergekit_map.results.run_folder import RunFolder

T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """What was on the screen after some keys, and what was asked for in the end."""

    screens: list[list[str]]  # at first, and after each key
    view: View
    leaving: ExitAction | None

    @property
    def lines(self) -> list[str]:
        return self.screens[-1]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


async def settled(app: Browser, pilot: Pilot[ExitAction]) -> list[str]:
    """Wait until the screen stays as it is, and read it."""
    seen: list[list[str]] = []
    while len(seen) < 3 or seen[-1] != seen[-2] or seen[-1][:1] in ([""], [WORKING]):
        await pilot.pause(0.02)
        if not app.is_running:
            return []
        strips = app.screen._compositor.render_strips()
        seen.append(["".join(part.text for part in row).rstrip() for row in strips])
    return seen[-1]


def press(
    front: Front | View,
    *keys: str,
    size: tuple[int, int] = (80, 30),
    run: Path = Path("my-search"),
) -> Seen:
    """Open the screen, press keys, and look; ``text:...`` types what follows."""
    view = front if isinstance(front, View) else View.of(front)

    async def look() -> Seen:
        app = Browser(RunFolder(run), view, run.name)
        async with app.run_test(size=size) as pilot:
            screens = [await settled(app, pilot)]
            for key in keys:
                typed = key.removeprefix("text:")
                await pilot.press(*(typed if key != typed else [key]))
                await pilot.pause()
                screens.append(await settled(app, pilot) if app.is_running else [])
            return Seen(screens, app.view, app.return_value)

    return run_apart(look())


def run_apart(look: Coroutine[Any, Any, T]) -> T:
    """Run in a loop of its own: Playwright has one in the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, look).result()
