"""Every file of a run folder, damaged in every way, and read by a command.

What cannot be right is refused: exit 2, in a sentence with the file and what to do, and
nothing is written. What may be right is used or refused, and the folder works on.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attack import Attack, first, held, refused, shown
from damages import BYTES, NOT_WRONG, PLACES, TORN, Change, of_bytes, put
from small_search import SEARCH, changes, contents, made, project, run_in

SELECT, REPORT, MERGE = "select run", "report run", "merge run merged"
BETWEEN = "select run --prefer greeting=1,code=7"
INSPECT, AGAIN = "inspect run/config.yml", "search run/config.yml run"
Keys = tuple[Any, ...]  # to a value in a file
SHARE = 8  # of the values, one is put into each key
LINE = 3  # of the log, which is damaged
HERE = "what is put here"

# Which commands need which file of a finished search, and of one that was stopped.
FINISHED: dict[str, Sequence[str]] = {
    "front.json": (SELECT, BETWEEN, REPORT, MERGE),
    ".state/manifest.json": (SELECT, REPORT, MERGE),
    "evaluations.jsonl": (BETWEEN, REPORT, SEARCH, MERGE),
    "config.yml": (MERGE, INSPECT, AGAIN),
    "recipes/000.yml": ("select run --index 0", BETWEEN),
}
STOPPED: dict[str, Sequence[str]] = {
    ".state/search.json": (SELECT, REPORT),
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
OF_NO_DATA = re.compile(r"\.lock|\.alive$|^home/|^tmp/")
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
        for (way, damage), words in itertools.product(BYTES.items(), commands):
            yield _attack(name, way, damage, words, finished=True, wrong=False)


def _raw(name: str, commands: Sequence[str], finished: bool) -> Iterator[Attack]:
    """Attack the bytes of a file, and what stands in its place."""
    ways = {**BYTES, **PLACES, **(YAML if name.endswith(".yml") else {})}
    for (way, damage), words in itertools.product(ways.items(), commands):
        fine = way in NOT_WRONG or (way in TORN and name.endswith(".jsonl"))
        yield _attack(name, way, damage, words, finished=finished, wrong=not fine)


def _keyed(
    name: str, commands: Sequence[str], finished: bool, seed: int
) -> Iterator[Attack]:
    """Attack every key of a file with some values, command after command."""
    turns = itertools.cycle((*commands[1:], commands[0]))
    for path, value in _places(_example(name, finished)):
        if _is_free(name, path[:-1]):
            continue
        turn = seed + sum(map(len, map(str, path)))
        for text in VALUES[turn % SHARE :: SHARE]:
            wrong = is_wrong(value, text) and not _is_free(name, path)
            damage = functools.partial(_put_value, path, text)
            way = f"{'.'.join(map(str, path))} is {shown(text)}"
            words = next(turns)
            yield _attack(name, way, damage, words, finished=finished, wrong=wrong)


def _attack(
    name: str, way: str, damage: Change, command: str, *, finished: bool, wrong: bool
) -> Attack:
    def attempt(folder: Path) -> str:
        project(folder, finished=finished)
        damage(folder / "run" / name)
        before = contents(folder)
        outcome = run_in(folder, command)
        line = f":{LINE}" if " is " in way and name.endswith(".jsonl") else ""
        said = name.removeprefix(".state/") + line
        problem = refused(outcome, said) if wrong else held(outcome)
        if outcome.code != 2:
            return problem
        changed = changes(before, contents(folder))
        changed = {p for p in changed if not OF_NO_DATA.search(p)}
        to_do = name == "config.yml" or TO_DO.search(outcome.err)
        return first(
            problem,
            f"written though refused: {sorted(changed)}" if changed else "",
            "" if to_do else f"not what to do: {outcome.err}",
        )

    state = "finished" if finished else "stopped"
    return Attack(f"{state} {name}: {way}, {command}", attempt)


_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 30)
)
YAML = {
    "a bomb of aliases": put(_BOMB.encode()),
    "a list in itself": put(b"merge_method: &a [*a]\n"),
    "a tag of Python": put(b"!!python/object/apply:os._exit [0]\n"),
    "a merge key of itself": put(b"a: &a {<<: *a}\n"),
    "a key that is a list": put(b"? [a]\n: 1\n"),
    "only comments": put(b"# nothing\n"),
    "another YAML": put(b"a: 1\n"),
    "an escape within": of_bytes(lambda b: b + b"# \x1b[2J\n"),
}
# What is put in the place of a value, as it is written, and nothing at all.
_DEEP, _LONG = "[" * 2000 + "]" * 2000, "9" * 5000
NEVER = (  # right, wherever it stands
    *("NaN", "-Infinity", "1e999", _LONG, _DEEP, '"\\u001b[2J\\n"', '"\\ud800"'),
)
VALUES = (
    *(None, "null", "true", "-1", "1.5", "1e308", "-1e308", str(2**100), *NEVER),
    *('"x"', '"0.5"', '""', "[]", "[null]", "{}", '{"a": 1}'),
)


def is_wrong(value: object, text: str | None) -> bool:
    """Whether a text cannot be right where a value was."""
    if text in NEVER:
        return True
    if text in {None, "null"} or value is None:
        return False
    return _kind(json.loads(text or "")) != _kind(value)


def _kind(value: object) -> str:
    kinds = {str: "text", bool: "truth", list: "list", dict: "object"}
    return kinds.get(type(value), "number" if value is not None else "null")


# What may be anything: nobody reads it, or it is of whoever wrote it.
FREE = {
    *((".state/manifest.json", key) for key in ("identity", "directory")),
    *((".state/search.json", "manifest", key) for key in ("identity", "directory")),
    (".state/search.json", "manifest", "packages"),
    ("evaluations.jsonl", "details"),
}


def _is_free(name: str, path: Keys) -> bool:
    return any((name, *path[:length]) in FREE for length in (1, 2))


def _example(name: str, finished: bool) -> Any:
    """Read a file as it should be; of a log, the line that is damaged."""
    text = (made(finished=finished) / "run" / name).read_text()
    return json.loads(text.splitlines()[LINE - 1] if name.endswith("l") else text)


def _places(content: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """List the places in a file; one task and one model, the first of each list."""
    if path:
        yield path, content
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in {"code", "code-model"}:
                yield from _places(value, (*path, key))
    elif isinstance(content, list) and content:
        yield from _places(content[0], (*path, 0))


def _put_value(path: Keys, text: str | None, file: Path) -> None:
    """Put a text, as it is, in a place of a file, or leave the place out."""
    lines = file.read_text().splitlines()
    log = file.suffix == ".jsonl"
    content = json.loads(lines[LINE - 1] if log else "\n".join(lines))
    inner = functools.reduce(operator.getitem, path[:-1], content)
    if text is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = HERE
    changed = json.dumps(content).replace(f'"{HERE}"', text or "")
    lines = [*lines[: LINE - 1], changed, *lines[LINE:]] if log else [changed]
    file.write_text("\n".join(lines) + "\n")
