"""The texts of the eight domains: six languages, Python code, and arithmetic."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

from mergekit_map.demo.corpus import CorpusSizes, Split, read_corpus

LANGUAGES = {
    "german": "de",
    "french": "fr",
    "spanish": "es",
    "italian": "it",
    "polish": "pl",
    "russian": "ru",
}
DOMAINS = (*LANGUAGES, "code", "arithmetic")

_SEED = 0
_CHARACTERS = 1_500_000  # of each domain, about
_HELD_OUT_SHARE = 0.1
_FEWEST_PAGES = 20
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


def read_domains(manpages: Path) -> dict[str, Split]:
    """Read and divide all eight domains, in the order of ``DOMAINS``.

    ``manpages`` is a folder such as share/man, with a folder per language.
    """
    python = read_corpus(_generator("python"), CorpusSizes(code_characters=_CHARACTERS))
    languages = {
        name: _read_pages(_generator(name), manpages / code)
        for name, code in LANGUAGES.items()
    }
    return {**languages, "code": python.code, "arithmetic": python.math}


def plain_text(page: str) -> str:
    """Reduce a page written with the macros of man(7) to its words, line by line.

    Headings and emphasised words stay, every other macro goes. Pages of another macro
    package, or that only name another page, give almost nothing.
    """
    _, _, body = page.partition("\n.TH ")  # before it are comments and macros
    shown = (_plain_line(line) for line in body.splitlines()[1:])
    text = "\n".join(line for line in shown if line is not None)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _generator(purpose: str) -> np.random.Generator:
    return np.random.default_rng([_SEED, *purpose.encode()])


def _read_pages(rng: np.random.Generator, folder: Path) -> Split:
    """Draw pages of one language; whole pages are held out."""
    files = sorted(folder.glob("man*/*.gz"), key=lambda path: path.name)
    # A link is the same page again, under another name.
    files = [path for path in files if not path.is_symlink()]
    pages: list[str] = []
    for index in rng.permutation(len(files)):
        text = plain_text(gzip.decompress(files[index].read_bytes()).decode("utf-8"))
        if len(text) >= _SHORTEST_PAGE and text not in pages:
            pages.append(text)
        if sum(map(len, pages)) >= _CHARACTERS:
            break
    if len(pages) < _FEWEST_PAGES:
        raise SystemExit(
            f"{folder} must hold at least {_FEWEST_PAGES} manual pages, got "
            f"{len(pages)}; install Debian's manpages-{folder.name}, or unpack it with "
            "dpkg-deb -x and name its folder share/man with --manpages"
        )
    held_out = max(1, round(_HELD_OUT_SHARE * len(pages)))
    return Split(tuple(pages[held_out:]), tuple(pages[:held_out]))


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
