"""Manual pages as plain text."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

MANPAGES = Path("/usr/share/man")
_SHORTEST_PAGE = 1_500  # characters; shorter ones only point to another page

# Macros of man(7) whose arguments are shown: headings, and words in alternating fonts.
_HEADINGS = {"SH", "SS"}
_FONTS = {"B", "I", "R", "SM"}
_FONT_PAIRS = {"BR", "BI", "RB", "RI", "IB", "IR"}
_PARAGRAPHS = (".PP", ".P", ".TP", ".IP", ".HP")
_COMMENT = re.compile(r'\\".*')
_WITHOUT_WIDTH = re.compile(r"\\f(\[[^]]*\]|\(..|.)|\\s[-+]?\d|\\[&/|^:%,c]")
_OTHER_ESCAPE = re.compile(r"\\(\(..|\[[^]]*\]|\*\(..|\*.)")
# Replaced one after the other, in this order.
_SHORT = {"-": "-", "e": "\\", " ": " ", "~": " ", "0": " "}
_NAMED = dict(aq="'", dq='"', co="©", bu="•", em="—", lq="“", rq="”", rs="\\") | dict(
    ha="^", ti="~", en="\N{EN DASH}"
)
_BRACKETED = ("aq", "dq", "bu", "em", "rs", "ha", "ti", "en")
_ESCAPES = (
    {f"\\{name}": character for name, character in _SHORT.items()}
    | {f"\\({name}": character for name, character in _NAMED.items()}
    | {f"\\[{name}]": _NAMED[name] for name in _BRACKETED}
)


def draw_pages(
    rng: np.random.Generator, folders: Sequence[Path], characters: int
) -> list[str]:
    """Draw pages from folders such as share/man/de until there are enough characters.

    Fewer come back where the folders hold no more; the same page comes once.
    """
    # A link is the same page again, under another name.
    files = sorted(
        (
            path
            for folder in folders
            for path in folder.glob("man*/*.gz")
            if not path.is_symlink()
        ),
        key=lambda path: path.name,
    )
    drawn = _texts(files[index] for index in rng.permutation(len(files)))
    return take(drawn, characters, _SHORTEST_PAGE)


def take(
    texts: Iterable[str], characters: int, shortest: int, longest: float = math.inf
) -> list[str]:
    """Take each text of some length once, until there are enough characters."""
    taken: dict[str, None] = {}
    found = 0
    for text in texts:
        if shortest <= len(text) <= longest and text not in taken:
            taken[text] = None
            found += len(text)
        if found >= characters:
            break
    return list(taken)


def plain_text(page: str) -> str:
    """Reduce a page written with the macros of man(7) to its words, line by line.

    Headings and emphasised words stay, every other macro goes. Pages of another macro
    package, or that only name another page, give almost nothing.
    """
    _, _, body = page.partition("\n.TH ")  # before it are comments and macros
    shown = (_plain_line(line) for line in body.splitlines()[1:])
    text = "\n".join(line for line in shown if line is not None)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _texts(files: Iterator[Path]) -> Iterator[str]:
    for path in files:
        try:
            page = gzip.decompress(path.read_bytes()).decode("utf-8")
        except UnicodeDecodeError:
            continue
        yield plain_text(page)


def _plain_line(line: str) -> str | None:
    if line.startswith(_PARAGRAPHS):
        return ""
    if line.startswith((".", "'")):
        macro, _, arguments = line[1:].strip().partition(" ")
        if macro not in _HEADINGS | _FONTS | _FONT_PAIRS:
            return None
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', arguments)]
        line = ("" if macro in _FONT_PAIRS else " ").join(words)
    line = _WITHOUT_WIDTH.sub("", _COMMENT.sub("", line))
    for escape, character in _ESCAPES.items():
        line = line.replace(escape, character)
    return _OTHER_ESCAPE.sub("", line).rstrip()
