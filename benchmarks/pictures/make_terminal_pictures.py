"""Take pictures of the terminal at 60, 80 and 120 columns, to be looked at.

    mergekit-map demo --out mergekit-map-demo
    python benchmarks/pictures/make_terminal_pictures.py mergekit-map-demo pictures

runs commands on the demo in a terminal of its own, and writes what it shows: a text and
a picture for each command and width. A search is shown while it measures, too.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte
from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from browser import open_browser

WIDTHS = (60, 80, 120)
HEIGHT = 400  # rows: all that a command prints stays on the screen
PROGRAM = [sys.executable, "-W", "ignore", "-m", "mergekit_map"]


@dataclass(frozen=True)
class Shot:
    """A command, and when to look."""

    name: str
    command: Sequence[str]
    height: int = HEIGHT
    until: str = ""  # look as soon as this is on the screen; else when it has ended
    keys: Sequence[str] = ()  # pressed one after the other once it is
    limit: float = 600.0  # seconds


def shots(demo: Path, scratch: Path) -> list[Shot]:
    config, run = str(demo / "demo.yml"), str(demo / "run")
    new = str(scratch / "new")
    return [
        Shot("help", ["--help"]),
        Shot("search-help", ["search", "--help"]),
        Shot("inspect", ["inspect", config]),
        Shot("searching", ["search", config, new], until="4/"),
        Shot("stopped", ["select", new]),
        Shot("search", ["search", config, run]),
        Shot("select", ["select", run, "--knee"]),
        Shot("merge", ["merge", run, str(scratch / "merged")]),
        Shot("report", ["report", run, "--out", str(scratch / "report.html")]),
        Shot("browse", ["browse", run], height=30, until="point", keys=["\x1b[B"]),
        Shot("wrong", ["select", run, "--require", "nothing=3"]),
        Shot("typo", ["serach", config, run]),
    ]


def look(shot: Shot, width: int) -> pyte.Screen:
    """Run a command in a terminal so wide, and give its screen."""
    screen = pyte.Screen(width, shot.height)
    stream = pyte.ByteStream(screen)
    main, other = pty.openpty()
    size = struct.pack("HHHH", shot.height, width, 0, 0)
    fcntl.ioctl(other, termios.TIOCSWINSZ, size)
    names = {"TERM": "xterm-256color", "COLUMNS": str(width), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*PROGRAM, *shot.command],
        stdin=other,
        stdout=other,
        stderr=other,
        env={**os.environ, **names},
        start_new_session=True,
    )
    os.close(other)
    started, keys = time.monotonic(), list(shot.keys)
    while time.monotonic() - started < shot.limit:
        if not read(main, stream):
            break
        if shot.until and any(shot.until in line for line in screen.display):
            if not keys:
                break
            time.sleep(1)
            os.write(main, keys.pop(0).encode())
            time.sleep(1)
    while read(main, stream, patience=0.2) and process.poll() is None and keys:
        pass
    process.terminate()
    process.wait()
    os.close(main)
    return screen


def read(terminal: int, stream: pyte.ByteStream, patience: float = 1.0) -> bool:
    """Show what was written meanwhile; False where the program has ended."""
    ready, _, _ = select.select([terminal], [], [], patience)
    try:
        data = os.read(terminal, 65536) if ready else b""
    except OSError:  # how Linux says that nobody writes any more
        return False
    stream.feed(data)
    return bool(data) or not ready


def as_text(screen: pyte.Screen) -> Text:
    """Turn a screen into text with its colours, without the empty rows below."""
    text = Text()
    filled = [row for row, line in enumerate(screen.display) if line.strip()]
    for row in range(max(filled, default=0) + 1):
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            known = cell.fg if cell.fg.isalpha() else f"#{cell.fg}"
            style = "" if cell.fg in {"default", "brown"} else known
            text.append(cell.data, f"{'bold ' if cell.bold else ''}{style}".strip())
        text.append("\n")
    return text


def save(screen: pyte.Screen, path: Path) -> None:
    text = as_text(screen)
    path.with_suffix(".txt").write_text(
        "\n".join(line.rstrip() for line in text.plain.splitlines()) + "\n",
        encoding="utf-8",
    )
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(width=screen.columns, record=True, file=nowhere)
        console.print(text, soft_wrap=True, end="")
        html = console.export_html(inline_styles=True)
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 10 * screen.columns, "height": 80})
        page.set_content(html)
        page.screenshot(path=path.with_suffix(".png"), full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", type=Path, help="what the demo wrote")
    parser.add_argument("out", type=Path, help="where the pictures go")
    parser.add_argument("--only", nargs="*", help="these alone, by name")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        scratch = Path(tempfile.mkdtemp())
        try:
            for shot in shots(arguments.demo.resolve(), scratch):
                if arguments.only is None or shot.name in arguments.only:
                    screen = look(shot, width)
                    save(screen, arguments.out / f"{shot.name}-{width}")
        finally:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
