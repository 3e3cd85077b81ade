"""Texts: endless, huge, broken, of another kind.

Each is tried through ``search``, and ``inspect``. What is no text is refused before
anything is measured, in little memory and time.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attack import Attack, Limits, command, held, refused
from damages import Change, places_taken, put
from tiny_models import CONFIG, TEXT, copied

MEMORY = 700  # MB that no text may take


@dataclass(frozen=True)
class Case:
    """What is put where the text is, and what has to be said of it."""

    name: str
    change: Change
    task: dict[str, Any]
    words: tuple[str, ...] = ()
    harmless: bool = False


def attacks(seed: int) -> Iterator[Attack]:  # noqa: ARG001 - all of them, every time
    """Yield every text."""
    for case in itertools.chain(_texts(), _lines()):
        yield Attack(case.name, functools.partial(_try, case))


def _try(case: Case, folder: Path) -> str:
    copied(folder)
    case.change(folder)
    text = CONFIG.replace(
        "text: {perplexity: text.txt, max_tokens: 64}",
        f"text: {json.dumps(case.task)}",
    )
    (folder / "merge.yml").write_text(text)
    problems = []
    for name in ("inspect", "search"):
        words = [name, "merge.yml", *(["run"] if name == "search" else [])]
        outcome = command(words, folder, Limits(60))
        if outcome.megabytes > MEMORY:
            problems.append(f"{name} took {outcome.megabytes:.0f} MB")
        said = [line for line in outcome.said.splitlines() if "error" in line]
        outcome = replace(
            outcome, err="\n".join(said) if name == "inspect" else outcome.err
        )
        judge = held if case.harmless else functools.partial(refused, seconds=30)
        said_words = case.words if name == "search" else ()
        if problem := judge(outcome, *said_words):
            problems.append(f"{name}: {problem}")
    if not case.harmless and (folder / "run/evaluations.jsonl").exists():
        problems.append("it was measured before it was refused")
    return "; ".join(problems)


# --- texts ----------------------------------------------------------------------------

_LINE = "one plus two return three hello "
_CONTENTS: dict[str, tuple[bytes, bool]] = {
    "empty": (b"", False),
    "of spaces": (b"  \n \n", False),
    "one character": (b"x", True),
    "one line break": (b"\n", False),
    "NULs": (b"\0" * 100, True),
    "of another encoding": ("größer als".encode("utf-16"), False),
    "bytes that are no text": (b"\xff\xfe\xfd" * 100, False),
    "cut within a character": ("é".encode()[:1], False),
    "a mark of byte order": (b"\xef\xbb\xbf" + TEXT.encode(), True),
    "control characters": (b"\x1b[2J\x07\x08" + TEXT.encode(), True),
    "line breaks of Windows": (TEXT.replace(" ", "\r\n").encode(), True),
    "one line of 20 MB": ((_LINE * (20 * 2**20 // len(_LINE))).encode(), True),
    "20 MB of one letter": (b"x" * (20 * 2**20), True),
    "20 MB of spaces and a word": (b" " * (20 * 2**20) + b"x", True),
    "20 MB of line breaks and a word": (b"\n" * (20 * 2**20) + b"x", True),
    "20 MB of NULs": (b"\0" * (20 * 2**20), True),
    "20 MB of emoji": ("🦙".encode() * (5 * 2**20), True),
    "a million lines": (b"one two\n" * 10**6, True),
    "combining characters": (("a" + "\u0301" * 10**6).encode(), True),
}


def _texts() -> Iterator[Case]:
    for name, (content, harmless) in _CONTENTS.items():
        for more in ({}, {"block": 16}, {"max_tokens": 2}, {"max_tokens": 10**6}):
            if len(content) > 10**6 and "max_tokens" in more:
                continue
            task = {"perplexity": "own.txt", "max_tokens": 256, **more}
            said = f"a text, {name}, {json.dumps(more)}"
            yield Case(said, put("own.txt", content), task, (), harmless)
    for file in ("own.txt", "own.jsonl"):
        for name, change in places_taken(file).items():
            yield Case(f"{file} is {name}", change, {"perplexity": file}, ("own",))
        yield Case(f"{file} is not there", lambda _: None, {"perplexity": file})
        yield Case(
            f"{file} is larger than may be",
            functools.partial(_sparse, name=file),
            {"perplexity": file},
            ("own",),
        )
    for path in (
        "/dev/zero.txt",
        "../../../../etc/passwd",
        "",
        ".",
        "a\0b.txt",
        "x" * 5000,
    ):
        yield Case(f"a text at {path[:40]!r}", lambda _: None, {"perplexity": path})


def _sparse(folder: Path, name: str) -> None:
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)


_RECORDS: dict[str, tuple[bytes, bool]] = {
    "a list": (b"[1]", False),
    "a number": (b"1", False),
    "null": (b"null", False),
    "a string": (b'"x"', False),
    "no JSON": (b"{", False),
    "nested deeply": (b"[" * 200_000, False),
    "mappings nested deeply": (b'{"text":' * 100_000, False),
    "a number of 5000 digits": (b'{"text": ' + b"9" * 5000 + b"}", False),
    "NaN": (b'{"text": NaN}', False),
    "a number for text": (b'{"text": 1}', False),
    "null for text": (b'{"text": null}', False),
    "a list for text": (b'{"text": ["a"]}', False),
    "no text": (b'{"words": 1}', False),
    "two that may be text": (b'{"a": "x", "b": "y"}', False),
    "another field": (b'{"a": "one two three"}', True),
    "half a character": (b'{"text": "one \\ud800 two"}', False),
    "an empty text": (b'{"text": ""}', False),
    "the field twice": (b'{"text": "one two", "text": "three one"}', True),
    "an empty name": (b'{"": "one two three"}', True),
    "a mark of byte order": (b'\xef\xbb\xbf{"text": "one two"}', False),
    "NUL between": (b'{"text": "one two"}\0', False),
    "a line of 20 MB": (
        json.dumps({"text": _LINE * (20 * 2**20 // len(_LINE))}).encode(),
        True,
    ),
}


def _lines() -> Iterator[Case]:
    good = b'{"text": "one two three plus one"}\n'
    for name, (content, harmless) in _RECORDS.items():
        for place, data in (
            ("alone", content),
            ("first", content + b"\n" + good),
            ("last", good + content),
        ):
            may = harmless or (name == "an empty text" and place != "alone")
            may = may or (name == "two that may be text" and place == "first")
            yield Case(
                f"a line, {place}, {name}",
                put("own.jsonl", data),
                {"perplexity": "own.jsonl", "max_tokens": 256},
                (),
                may or name in ("two that may be text", "another field"),
            )
    yield Case(
        "300,000 wrong lines",
        put("own.jsonl", b"{\n" * 300_000),
        {"perplexity": "own.jsonl"},
        ("more lines",),
    )
