"""The texts of the eight domains: six languages, Python code, and arithmetic."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "laboratory"))
from manual_pages import draw_pages

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


def _generator(purpose: str) -> np.random.Generator:
    return np.random.default_rng([_SEED, *purpose.encode()])


def _read_pages(rng: np.random.Generator, folder: Path) -> Split:
    """Draw pages of one language; whole pages are held out."""
    pages = draw_pages(rng, [folder], _CHARACTERS)
    if len(pages) < _FEWEST_PAGES:
        raise SystemExit(
            f"{folder} must hold at least {_FEWEST_PAGES} manual pages, got "
            f"{len(pages)}; install Debian's manpages-{folder.name}, or unpack it with "
            "dpkg-deb -x and name its folder share/man with --manpages"
        )
    held_out = max(1, round(_HELD_OUT_SHARE * len(pages)))
    return Split(tuple(pages[held_out:]), tuple(pages[:held_out]))
