"""A real browser, without a screen, for the tests and pictures of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Find a Chromium that is installed; none is downloaded."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    if (path := find_chromium()) is None:
        raise RuntimeError(f"none of {', '.join(NAMES)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--disable-gpu"]
        )
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and all that it did that it should not."""

    page: Page
    problems: list[str] = field(default_factory=list)  # errors, warnings of the page
    fetched: list[str] = field(default_factory=list)  # beyond the page itself

    def settle(self) -> None:
        """Wait until the charts that follow a choice are drawn."""
        self.page.wait_for_timeout(300)

    def unfold(self) -> None:
        """Open all that is folded."""
        opened = "document.querySelectorAll('details').forEach((d) => (d.open = true))"
        self.page.evaluate(opened)
        self.settle()


@contextmanager
def watched_page(browser: Browser, path: Path) -> Iterator[Watched]:
    """Open a file and note its errors, warnings, dialogs, requests and new windows."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    watched = Watched(page)

    def note(request: Request) -> None:
        made_here = request.url.startswith(("data:", "blob:"))
        if request.url.partition("#")[0] != path.as_uri() and not made_here:
            watched.fetched.append(request.url)

    page.on("request", note)
    page.on("console", lambda message: watched.problems.append(message.text))
    page.on("pageerror", lambda error: watched.problems.append(str(error)))
    page.on("dialog", lambda dialog: watched.problems.append(f"says {dialog.message}"))
    page.on("popup", lambda opened: watched.fetched.append(opened.url))
    page.goto(path.as_uri())
    page.wait_for_selector("#front-chart .main-svg")
    watched.settle()
    yield watched
    context.close()


needs_browser = pytest.mark.skipif(
    find_chromium() is None,
    reason="no Chromium is installed; on Debian: apt-get install chromium",
)
