"""Every file of a run folder, damaged in every way, and read by a command.

What cannot be right is refused: exit 2, in a sentence with the file and what to do, and
nothing is written. What may be right is used or refused, and the folder works on.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attack import Attack, Outcome, first, held, refused
from run_folders import SEARCH, attacked, contents, made, project

SELECT = ("select", "run")
BETWEEN = ("select", "run", "--prefer", "greeting=1,code=7")
REPORT = ("report", "run")
MERGE = ("merge", "run", "merged")
INSPECT = ("inspect", "run/config.yml")
AGAIN = ("search", "run/config.yml", "run")
Words = Sequence[str]
SHARE = 8  # of the values, one is put into each key
LINE = 3  # of the log, which is damaged
HERE = "what is put here"

# Which commands need which file of a finished search, and of one that was stopped.
FINISHED: dict[str, Sequence[Words]] = {
    "front.json": (SELECT, BETWEEN, REPORT, MERGE),
    "manifest.json": (SELECT, REPORT, MERGE),
    "surrogates.json": (BETWEEN, REPORT),
    "evaluations.jsonl": (REPORT, SEARCH, MERGE),
    "config.yml": (MERGE, INSPECT, AGAIN),
    "recipes/000.yml": (("select", "run", "--index", "0"), BETWEEN),
}
STOPPED: dict[str, Sequence[Words]] = {
    "search.json": (SELECT, REPORT),
    "evaluations.jsonl": (SELECT, SEARCH),
}
# Files that a command can do without, or makes anew.
SPARE = {
    "front.csv": (SELECT, REPORT, SEARCH),
    "recipe.yml": (SELECT, REPORT, MERGE),
    "front.png": (REPORT, SEARCH),
    "report.html": (REPORT,),
}
# Locks, signs of life, and what is kept besides.
OF_NO_DATA = re.compile(r"\.lock|\.alive$|^home/")
TO_DO = re.compile(
    r"restore|search again|remove|finish the|search: |name |put |copy|look at|check|"
    r"write|say|merge again|is required|remov|quote|did you mean|give"
)


def attacks(seed: int) -> Iterator[Attack]:
    """List them; the seed says which values are put into which key."""
    for finished, files in ((True, FINISHED), (False, STOPPED)):
        for name, commands in files.items():
            yield from _raw(name, commands, finished)
            if name.endswith((".json", ".jsonl")):
                yield from _keyed(name, commands, finished, seed)
    for name, commands in SPARE.items():
        yield from _spare(name, commands)


def _raw(name: str, commands: Sequence[Words], finished: bool) -> Iterator[Attack]:
    """Attack the bytes of a file, and what stands in its place."""
    ways = {**BYTES, **PLACES, **(YAML if name.endswith(".yml") else {})}
    for way, damage in ways.items():
        for words in commands:
            fine = way in NOT_WRONG or (way in TORN and name.endswith(".jsonl"))
            yield _attack(name, way, damage, words, finished, wrong=not fine)


def _keyed(
    name: str, commands: Sequence[Words], finished: bool, seed: int
) -> Iterator[Attack]:
    """Attack every key of a file with some values, command after command."""
    number = 0
    example = _examples()[finished, name]
    for path in paths(example):
        if _is_free(name, path[:-1]):
            continue
        value = at(example, path)
        turn = seed + sum(map(len, map(str, path)))
        for other, text in [*VALUES.items()][turn % SHARE :: SHARE]:
            number += 1
            words = commands[number % len(commands)]
            wrong = is_wrong(value, other) and not _is_free(name, path)
            damage = put(path, text)
            way = f"{'.'.join(map(str, path))} is {other}"
            yield _attack(name, way, damage, words, finished, wrong=wrong)


def _spare(name: str, commands: Sequence[Words]) -> Iterator[Attack]:
    for way, damage in BYTES.items():
        for words in commands:
            yield _attack(name, way, damage, words, True, wrong=False)


def _attack(
    name: str,
    way: str,
    damage: Callable[[Path], None],
    words: Words,
    finished: bool,
    wrong: bool,
) -> Attack:
    def attempt(folder: Path) -> str:
        project(folder, finished=finished)
        damage(folder / "run" / name)
        before = contents(folder)
        outcome = attacked(folder, *words)
        line = f":{LINE}" if " is " in way and name.endswith(".jsonl") else ""
        return judged(outcome, name + line, folder, before, wrong=wrong)

    state = "finished" if finished else "stopped"
    return Attack(f"{state} {name}: {way}, {' '.join(words)}", attempt)


def judged(
    outcome: Outcome,
    name: str,
    folder: Path,
    before: dict[str, bytes],
    *,
    wrong: bool,
    spare: re.Pattern[str] | None = None,
) -> str:
    """Say what is wrong with how a command took a damaged file.

    What it refused, it must not have begun to write, but for files that are ``spare``.
    """
    problem = refused(outcome, name) if wrong else held(outcome)
    if outcome.code == 2:
        after = contents(folder)
        changed = {p for p in before | after if before.get(p) != after.get(p)}
        changed = {p for p in changed if not OF_NO_DATA.search(p)}
        changed = {p for p in changed if spare is None or not spare.match(p)}
        to_do = "config.yml" in name or TO_DO.search(outcome.err)
        return first(
            problem,
            f"written though refused: {sorted(changed)}" if changed else "",
            "" if to_do else f"not what to do: {outcome.err}",
        )
    return problem


# Bytes in the place of a file, by what they are.
def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))

    return damage


BYTES = {
    "empty": _bytes(lambda _: b""),
    "cut at a third": _bytes(lambda b: b[: len(b) // 3]),
    "cut in the middle": _bytes(lambda b: b[: len(b) // 2 + 3]),
    "without its end": _bytes(lambda b: b[:-3]),
    "UTF-16": _bytes(lambda b: b.decode(errors="replace").encode("utf-16")),
    "UTF-32": _bytes(lambda b: b.decode(errors="replace").encode("utf-32")),
    "with a byte order mark": _bytes(lambda b: b"\xef\xbb\xbf" + b),
    "no UTF-8 within": _bytes(lambda b: b[:40] + b"\xff\xfe\xe4" + b[40:]),
    "half a character": _bytes(lambda b: b[:40] + b"\xed\xa0\x80" + b[40:]),
    "a zero byte within": _bytes(lambda b: b[:40] + b"\0" + b[40:]),
    "zeros alone": _bytes(lambda b: bytes(len(b))),
    "null": _bytes(lambda _: b"null\n"),
    "a number": _bytes(lambda _: b"1\n"),
    "a list": _bytes(lambda _: b"[]\n"),
    "an empty object": _bytes(lambda _: b"{}\n"),
    "deep lists": _bytes(lambda _: b"[" * 100_000 + b"\n"),
    "deep closed lists": _bytes(lambda _: b"[" * 3000 + b"]" * 3000 + b"\n"),
    "deep objects": _bytes(lambda _: b'{"a":' * 100_000 + b"\n"),
    "twice": _bytes(lambda b: b + b),
    "HTML": _bytes(lambda _: b"<html><body>404 Not Found</body></html>\n"),
    "a pointer of Git LFS": _bytes(
        lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    ),
    "marks of a conflict": _bytes(lambda b: b"<<<<<<< HEAD\n" + b + b">>>>>>> x\n"),
    "a number of 5000 digits": _bytes(lambda _: b"1" * 5000 + b"\n"),
    "a line of 20 MB": _bytes(lambda _: b'"' + b"a" * 20_000_000 + b'"\n'),
}
_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)
)
YAML = {
    "a bomb of aliases": _bytes(lambda _: _BOMB.encode()),
    "a list in itself": _bytes(lambda _: b"merge_method: &a [*a]\n"),
    "a tag of Python": _bytes(lambda _: b"!!python/object/apply:os._exit [0]\n"),
    "a merge key of itself": _bytes(lambda _: b"a: &a {<<: *a}\n"),
    "a key that is a list": _bytes(lambda _: b"? [a]\n: 1\n"),
    "only comments": _bytes(lambda _: b"# nothing\n"),
    "another YAML": _bytes(lambda _: b"a: 1\n"),
    "an escape within": _bytes(lambda b: b + b"# \x1b[2J\n"),
}
# What a kill may leave of a log: its first lines, and the beginning of one.
TORN = {"empty", "cut at a third", "cut in the middle", "without its end"}
# What commands may do without, or take as it is.
NOT_WRONG = {"with a byte order mark", "twice", "not there"}


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # paths of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


PLACES = {
    "not there": _replaced(lambda _: None),
    "a folder": _replaced(Path.mkdir),
    "a pipe": _replaced(os.mkfifo),
    "a socket": _replaced(_socket),
    "a link to nowhere": _replaced(lambda p: p.symlink_to("nowhere")),
    "a link to itself": _replaced(lambda p: p.symlink_to(p.name)),
    "a link to /dev/zero": _replaced(lambda p: p.symlink_to("/dev/zero")),
    "a link to /etc/passwd": _replaced(lambda p: p.symlink_to("/etc/passwd")),
    "a terabyte of zeros": _replaced(_endless),
}

# What is put in the place of a value, as it is written.
VALUES = {
    "missing": None,
    "null": "null",
    "true": "true",
    "-1": "-1",
    "1.5": "1.5",
    "1e308": "1e308",
    "-1e308": "-1e308",
    "1e999": "1e999",
    "NaN": "NaN",
    "-Infinity": "-Infinity",
    "2**100": str(2**100),
    "5000 digits": "9" * 5000,
    "text": '"x"',
    "a number as text": '"0.5"',
    "an empty text": '""',
    "control characters": '"\\u001b[2J\\n"',
    "half a character": '"\\ud800"',
    "an empty list": "[]",
    "a list of null": "[null]",
    "an empty object": "{}",
    "an object": '{"a": 1}',
    "deep lists": "[" * 2000 + "]" * 2000,
}


def _kind(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "damage"
    return _kind_of(value)


def _kind_of(value: object) -> str:
    kinds = {str: "text", bool: "truth", list: "list", dict: "object"}
    return kinds.get(type(value), "number" if value is not None else "null")


def is_wrong(value: object, other: str) -> bool:
    """Tell whether a value cannot be right where the other one was."""
    if other in {"NaN", "-Infinity", "1e999", "5000 digits", "deep lists"}:
        return True
    if other in {"control characters", "half a character"}:
        return True
    if other in {"missing", "null"} or value is None:
        return False
    return _kind(VALUES[other] or "") != _kind_of(value)


# What may be anything: nobody reads it, or it is of whoever wrote it.
FREE = {
    ("manifest.json", "identity"),
    ("search.json", "manifest", "identity"),
    ("search.json", "manifest", "packages"),
    ("evaluations.jsonl", "details"),
}


def _is_free(name: str, path: tuple[Any, ...]) -> bool:
    return any((name, *path[:length]) in FREE for length in (1, 2))


def _examples() -> dict[str, Any]:
    """Give the content of each file; of a log, its third line."""
    found = {}
    for finished, files in ((True, FINISHED), (False, STOPPED)):
        run = made(finished=finished) / "run"
        for name in files:
            if name.endswith(".json"):
                found[finished, name] = json.loads((run / name).read_text())
            elif name.endswith(".jsonl"):
                lines = (run / name).read_text().splitlines()
                found[finished, name] = json.loads(lines[LINE - 1])
    return found


def paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the places in a file; one task and one model, the first of each list."""
    if path:
        yield path
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in {"code", "code-model"}:
                yield from paths(value, (*path, key))
    elif isinstance(content, list) and content:
        yield from paths(content[0], (*path, 0))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def put(path: tuple[Any, ...], text: str | None) -> Callable[[Path], None]:
    """Put a text, as it is, in a place of a file, or leave the place out."""

    def damage(file: Path) -> None:
        lines = file.read_text().splitlines()
        log = file.suffix == ".jsonl"
        content = json.loads(lines[LINE - 1] if log else "\n".join(lines))
        inner = at(content, path[:-1])
        if text is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = HERE
        changed = json.dumps(content).replace(f'"{HERE}"', text or "")
        lines = [*lines[: LINE - 1], changed, *lines[LINE:]] if log else [changed]
        file.write_text("\n".join(lines) + "\n")

    return damage
