"""Numbers and lists in readable form, and text without secrets."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Sequence

# Variables whose values are secrets: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, OPENAI_API_KEY,
# AWS_SECRET_ACCESS_KEY, PGPASSWORD, ...
_SECRET_NAMES = re.compile(
    r"(?:TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET|SECRET_?KEY|PASSWORD|PASSWD"
    r"|CREDENTIALS?)S?$",
    re.IGNORECASE,
)
_HUB_TOKEN = re.compile(r"hf_[A-Za-z0-9]{30,}")
_SHORTEST_SECRET = 8  # letters; any text may hold fewer by chance
# Spaces of other scripts, and what joins letters, which Python calls unprintable.
_HARMLESS = "\n\t\xa0\u200c\u200d\u202f\u3000"
_ENDLESS = re.compile(r"(\S{100})\S{900,}")  # longer than any path but a mistake


def count_in_words(number: float) -> str:
    """Write a number of things: ``795 k``, ``8.03 B``."""
    return _short(number, ("", "k", "M", "B", "T"))


def bytes_in_words(number: float) -> str:
    """Write a number of bytes: ``3.18 MB``."""
    return _short(number, ("B", "kB", "MB", "GB", "TB"))


def percent(share: float) -> str:
    """Write a share: ``4.7 %``."""
    number = 100 * share
    return f"{number:.2g} %" if number < 99.5 else f"{number:.0f} %"


def listed(words: Iterable[str]) -> str:
    """Join words: ``a``, ``a and b``, ``a, b and c``; "" if there are none."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known ones, or all of them."""
    options = sorted(set(known))
    if words := alike(name, options):
        return words
    return "known: " + ", ".join(options[:12]) + (", ..." if len(options) > 12 else "")


def alike(name: str, known: Iterable[str], folder: str = "") -> str:
    """Return a hint with the nearest known names; empty where none is near."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    options = " or ".join(repr(folder + option) for option in close)
    return f"did you mean {options}?" if options else ""


def unused_name(name: str, used: Collection[str]) -> str:
    """Return the name; if it is used, with the first number that is not: ``name-2``."""
    names = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
    return next(unused for unused in names if unused not in used)


def printable(text: str) -> str:
    """Escape what controls a terminal, remove secrets, cut endless words."""
    return "".join(
        c if c.isprintable() or c in _HARMLESS else c.encode("unicode_escape").decode()
        for c in _ENDLESS.sub(r"\1...", redact(text))
    )


def redact(text: str) -> str:
    """Replace the tokens of the environment, and those of the Hub, by ``***``."""
    for secret in secrets():
        text = text.replace(secret, "***")
    return _HUB_TOKEN.sub("***", text)


def secrets() -> list[str]:
    """List the secrets of the environment, the longest first."""
    values = [v.strip() for name, v in os.environ.items() if _SECRET_NAMES.search(name)]
    long = {value for value in values if len(value) >= _SHORTEST_SECRET}
    return sorted(long, key=len, reverse=True)


def _short(number: float, units: Sequence[str]) -> str:
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number /= 1000
        power += 1
    return f"{number:.3g} {units[power]}".rstrip()
