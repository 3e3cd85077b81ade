"""Texts: endless, huge, broken, of another kind.

Each is tried through ``search``, and ``inspect``. What is no text is refused before
anything is measured, in little memory and time.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attack import Attack, shown
from damages import PLACES, Change, put
from tiny_models import CONFIG, TEXT, copied, searched

MEMORY = 700  # MB that no text may take
MB = 2**20
MOST = {"max_tokens": 256}

_LINE = "one plus two return three hello "
_LONG = _LINE * (20 * MB // len(_LINE))
_CONTENTS: dict[str, tuple[bytes, bool]] = {  # whether it may be a text
    "empty": (b"", False),
    "of spaces": (b"  \n \n", False),
    "one character": (b"x", True),
    "NULs": (b"\0" * 100, True),
    "of another encoding": ("größer als".encode("utf-16"), False),
    "bytes that are no text": (b"\xff\xfe\xfd" * 100, False),
    "a mark of byte order": (b"\xef\xbb\xbf" + TEXT.encode(), True),
    "control characters": (b"\x1b[2J\x07\x08" + TEXT.encode(), True),
    "line breaks of Windows": (TEXT.replace(" ", "\r\n").encode(), True),
    "one line of 20 MB": (_LONG.encode(), True),
    "20 MB of one letter": (b"x" * (20 * MB), True),
    "20 MB of spaces and a word": (b" " * (20 * MB) + b"x", True),
    "20 MB of emoji": ("🦙".encode() * (5 * MB), True),
    "a million lines": (b"one two\n" * 10**6, True),
    "combining characters": (("a" + "\u0301" * 10**6).encode(), True),
}
_PATHS = ("/dev/zero.txt", "../../../../etc/passwd", "", ".", "a\0b.txt", "x" * 5000)
_RECORDS: dict[str, tuple[bytes, bool]] = {
    "a list": (b"[1]", False),
    "null": (b"null", False),
    "no JSON": (b"{", False),
    "nested deeply": (b"[" * 200_000, False),
    "a number of 5000 digits": (b'{"text": ' + b"9" * 5000 + b"}", False),
    "NaN": (b'{"text": NaN}', False),
    "a number for text": (b'{"text": 1}', False),
    "null for text": (b'{"text": null}', False),
    "no text": (b'{"words": 1}', False),
    "two that may be text": (b'{"a": "x", "b": "y"}', True),
    "another field": (b'{"a": "one two three"}', True),
    "half a character": (b'{"text": "one \\ud800 two"}', False),
    "an empty text": (b'{"text": ""}', False),
    "the field twice": (b'{"text": "one two", "text": "three one"}', True),
    "an empty name": (b'{"": "one two three"}', True),
    "a mark within": (b'{"text": "one"}\n\xef\xbb\xbf{"text": "two"}', False),
    "a line of 20 MB": (json.dumps({"text": _LONG}).encode(), True),
}
_GOOD = b'{"text": "one two three plus one"}\n'


def attacks(_: int) -> Iterator[Attack]:
    """Yield every text, in the place of a file and of a line."""
    for name, (content, harmless) in _CONTENTS.items():
        for more in ({}, {"block": 16}, {"max_tokens": 2}, {"max_tokens": 10**6}):
            if len(content) > 10**6 and "max_tokens" in more:
                continue
            title, keys = f"a text, {name}, {json.dumps(more)}", {**MOST, **more}
            yield _attack(title, "own.txt", put(content), harmless=harmless, **keys)
    for file, (way, change) in itertools.product(
        ("own.txt", "own.jsonl"), PLACES.items()
    ):
        fine = way == "a link to /etc/passwd" and file == "own.txt"
        yield _attack(f"{file} is {way}", file, change, harmless=fine, **MOST)
    for path in _PATHS:
        yield _attack(f"a text at {shown(path)}", path, lambda _: None)
    for name, (content, harmless) in _RECORDS.items():
        yield _line(f"alone, {name}", content, harmless)
        fine = harmless or name in ("an empty text", "null for text")
        yield _line(f"first, {name}", content + b"\n" + _GOOD, fine)
        yield _line(f"last, {name}", _GOOD + content, fine)
    wrong = put(b"{\n" * 300_000)
    yield _attack("300,000 wrong lines", "own.jsonl", wrong, "line 1 is not JSON")


def _line(name: str, content: bytes, harmless: bool) -> Attack:
    put_it = put(content)
    return _attack(f"a line, {name}", "own.jsonl", put_it, harmless=harmless, **MOST)


def _attack(
    name: str,
    file: str,
    change: Change,
    *words: str,
    harmless: bool = False,
    **keys: Any,
) -> Attack:
    def attempt(folder: Path) -> str:
        copied(folder)
        change(folder / file)
        task = json.dumps({"perplexity": file, **keys})
        old = "{perplexity: text.txt, max_tokens: 64}"
        (folder / "merge.yml").write_text(CONFIG.replace(old, task))
        return "; ".join(judge(folder)[0])

    judge = functools.partial(
        searched, config="merge.yml", words=words, harmless=harmless, megabytes=MEMORY
    )
    return Attack(name, attempt)
