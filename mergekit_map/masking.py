"""Secrets are left out of every text that somebody sees or a file keeps.

Code of others may put them into what it raises: an address with a token in it, or all
of the environment.
"""

from __future__ import annotations

import configparser
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

MASK = "***"
_SHORTEST = 8  # of a value, below which any word may hold it by chance
_MOST = 1 << 16  # bytes of a file that keeps tokens

# What variables are called whose values are nobody's business: HF_TOKEN,
# HUGGING_FACE_HUB_TOKEN, OPENAI_API_KEY, AWS_SECRET_ACCESS_KEY, PGPASSWORD, ...
_NAMES = re.compile(
    r"(?:TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SECRET|SECRET_?KEY|PASSWORD|PASSWD"
    r"|CREDENTIALS?)S?$",
    re.IGNORECASE,
)
# What tokens look like, whoever they are of.
_SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{10,}|api_org_[A-Za-z0-9]{10,}|sk-[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|AKIA[0-9A-Z]{16}"
    r"|(?i:(?<=bearer )[\w.~+/=-]{8,})"
)


def masked(text: str) -> str:
    """Leave out what looks like a token, and the tokens of this user."""
    for secret in sorted(set(_secrets(os.environ)), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _SHAPES.sub(MASK, text)


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    values = [value for name, value in environment.items() if _NAMES.search(name)]
    for value in (*values, *_stored(environment)):
        if len(value.strip()) >= _SHORTEST:
            yield value.strip()


def _stored(environment: Mapping[str, str]) -> Iterator[str]:
    """Read what a login keeps: the token in use, and others by their names."""
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(environment.get("HF_HOME") or Path(cache) / "huggingface")
    used = Path(environment.get("HF_TOKEN_PATH") or home / "token")
    yield _read(used)
    known = configparser.ConfigParser(interpolation=None)
    try:
        known.read_string(_read(used.with_name("stored_tokens")))
    except configparser.Error:
        return
    for name in known.sections():
        yield from known[name].values()


def _read(path: Path) -> str:
    try:
        path = path.expanduser()
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):  # the latter: no home directory
        return ""
