"""What else lies in a run folder, damaged: what was found so far, or waits.

Files that are made anew may be passed over; what is read and cannot be right is refused
in a sentence with the file, and nothing is written.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attack import Attack
from attacks_on_damaged_run_folders import (
    BETWEEN,
    BYTES,
    LINE,
    MERGE,
    NOT_WRONG,
    PLACES,
    REPORT,
    SELECT,
    SHARE,
    TORN,
    VALUES,
    Words,
    at,
    is_wrong,
    judged,
    paths,
    put,
)
from run_folders import SEARCH, attacked, contents, made, waiting

BEFORE = (0, 0)  # not tried as a class of its own
QUICK = 5

_FINISHED = (SELECT, BETWEEN, REPORT, MERGE)
# What a search sets out to do, and what is made anew whenever somebody looks.
REWRITTEN = re.compile(r"run/(search\.json|so-far/)")
# The folder that is made, its files, the commands, and whether these are made anew.
PARTS: dict[str, tuple[Callable[[], Path], dict[str, tuple[Words, ...]], bool]] = {
    "looked at": (
        lambda: made(finished=False),
        {
            "so-far/front.json": _FINISHED,
            "so-far/manifest.json": _FINISHED,
            "so-far/surrogates.json": _FINISHED,
            "so-far/evaluations.jsonl": _FINISHED,
        },
        True,
    ),
    "by workers": (waiting, {"evaluations.early.jsonl": (SEARCH,)}, False),
}


def attacks(seed: int) -> Iterator[Attack]:
    """List them; the seed says which values are put into which key."""
    for state, (make, files, spare) in PARTS.items():
        for name, commands in files.items():
            ways = {**BYTES, **PLACES}
            for number, (way, damage) in enumerate(ways.items()):
                words = commands[number % len(commands)]
                torn = TORN if name.endswith(".jsonl") else {"not there"}
                fine = spare or way in NOT_WRONG | torn
                yield _attack(state, make, name, way, damage, words, wrong=not fine)
            for number, (way, damage, wrong) in enumerate(_keyed(make, name, seed)):
                words = commands[number % len(commands)]
                wrong = wrong and not spare
                yield _attack(state, make, name, way, damage, words, wrong=wrong)


def _keyed(
    make: Callable[[], Path], name: str, seed: int
) -> Iterator[tuple[str, Callable[[Path], None], bool]]:
    """Put some values into every key of a file; of a log, in its third line."""
    text = (make() / "run" / name).read_text()
    log = name.endswith(".jsonl")
    example: Any = json.loads(text.splitlines()[LINE - 1] if log else text)
    for path in paths(example):
        free = log and path[0] in {"details", "seconds"}
        turn = seed + sum(map(len, map(str, path)))
        for other, value in [*VALUES.items()][turn % SHARE :: SHARE]:
            way = f"{'.'.join(map(str, path))} is {other}"
            wrong = is_wrong(at(example, path), other) and not free
            yield way, put(path, value), wrong


def _attack(
    state: str,
    make: Callable[[], Path],
    name: str,
    way: str,
    damage: Callable[[Path], None],
    words: Words,
    *,
    wrong: bool,
) -> Attack:
    def attempt(folder: Path) -> str:
        shutil.copytree(make(), folder, symlinks=True, dirs_exist_ok=True)
        damage(folder / "run" / name)
        before = contents(folder)
        outcome = attacked(folder, *words)
        line = f":{LINE}" if " is " in way and name.endswith(".jsonl") else ""
        said = Path(name).name + line
        return judged(outcome, said, folder, before, wrong=wrong, spare=REWRITTEN)

    return Attack(f"{state} {name}: {way}, {' '.join(words)}", attempt)
