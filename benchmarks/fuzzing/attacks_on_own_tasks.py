"""Functions of users that change weights, end, give no number or tell secrets.

Each is measured between two tasks of ours, in a whole search from the command line.
What these measure must be, bit for bit, what they measure beside a good function.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import harmful_code as code
from attack import Attack, Limits, command, first, held, refused
from own_searches import BENIGN, Searched, read_lines, search, unharmed

BEFORE = (117, 17)
QUICK = 3

_SECRET = "s3cr3t-Value_of+mine/77"
_HF = "hf_" + "aB3" * 10


def attacks(seed: int) -> Iterator[Attack]:
    """List them; none is drawn, so that the seed decides nothing."""
    del seed
    word = "changed the weights"
    for name, lines in code.HARM.items():
        yield Attack(f"a function {name}", functools.partial(_does_harm, lines, word))
    for name in code.HARM_TOO:
        lines = code.HARM[name]
        fails = f"{lines}\nraise ValueError('after that')"
        yield Attack(
            f"a function {name}, and fails",
            functools.partial(_does_harm, fails, "after that"),
        )
        yield Attack(
            f"a function {name}, with --workers 2",
            functools.partial(_does_harm, lines, word, workers=True),
        )
        yield Attack(
            f"a function {name}, with merge: disk",
            functools.partial(_does_harm, lines, word, merge="disk"),
        )
    for name, (lines, word) in code.ENDS.items():
        yield Attack(f"a function {name}", functools.partial(_does_harm, lines, word))
        yield Attack(
            f"a function {name}, at the first merge",
            functools.partial(_stops_at_once, lines, word),
        )
    for name in code.ENDS_TOO:
        lines, word = code.ENDS[name]
        yield Attack(
            f"a function {name}, with --workers 2",
            functools.partial(_does_harm, lines, word, workers=True),
        )
    for name, (lines, word) in code.AT_IMPORT.items():
        yield Attack(
            f"a module {name}", functools.partial(_is_refused_at_once, lines, word)
        )
    for name, (expression, word) in code.VALUES.items():
        yield Attack(
            f"a function gives {name}", functools.partial(_gives, expression, word)
        )
    for name, expression in code.GOOD_VALUES.items():
        yield Attack(
            f"a function gives {name}", functools.partial(_gives_a_number, expression)
        )
    for name, (lines, word, more, of_search) in code.ITEMS.items():
        yield Attack(
            f"a function of items {name}",
            functools.partial(_of_items, lines, word, more, of_search),
        )
    yield from _secrets()
    yield from _endless_and_files()


def _body(lines: str) -> str:
    """Write a function that does something at every second merge, after its value."""
    return (
        "def score(model, tokenizer):\n    value = value_of(model)\n"
        f"    if chosen(value):\n{textwrap.indent(lines, ' ' * 8)}\n"
        "    return value\n"
    )


def _does_harm(
    lines: str, word: str, folder: Path, *, workers: bool = False, merge: str = "memory"
) -> str:
    """Tell what is wrong where the number of the function must not count."""
    words = ("--workers", "2") if workers else ()
    found = search(folder, _body(lines), words=words, merge=merge)
    good = unharmed(merge, failing=True)
    problem = _others(found, good) or first(
        "" if found.outcome.code == 0 else f"exit {found.outcome.code}",
        held(found.outcome),
        _errors(found, good, word),
    )
    return problem and f"{problem} | {found.outcome.said.strip()[-500:]}"


def _errors(
    found: Searched, good: dict[str, list[dict[str, object]]], word: str
) -> str:
    own = [line for line in found.lines if line["task"] == "mine"]
    if [line["value"] for line in own] != [line["value"] for line in good["mine"]]:
        return f"its own values are {[line['value'] for line in own]}"
    errors = [line.get("error", "") for line in own if line["value"] is None]
    unsaid = [e for e in errors if "task 'mine'" not in e or word not in e]
    return f"{word!r} is not in {unsaid}" if unsaid or not errors else ""


def _others(found: Searched, good: dict[str, list[dict[str, object]]]) -> str:
    for task, lines in found.others.items():
        if lines != good[task]:
            return f"{task!r} was measured otherwise"
    return ""


def _stops_at_once(lines: str, word: str, folder: Path) -> str:
    body = f"def score(model, tokenizer):\n{textwrap.indent(lines, '    ')}\n"
    return _refused_in_words(search(folder, body), "task 'mine'", word)


def _is_refused_at_once(lines: str, word: str, folder: Path) -> str:
    found = search(folder, lines)
    return _refused_in_words(found, "config.yaml:", "map.tasks.mine.python", word)


def _refused_in_words(found: Searched, *words: str) -> str:
    return refused(found.outcome, *words)


def _gives(expression: str, word: str, folder: Path) -> str:
    """Tell what is wrong where something is given that is no number."""
    lines = f"import numpy as np, fractions, decimal\nreturn {expression}"
    return _does_harm(lines, word, folder)


def _gives_a_number(expression: str, folder: Path) -> str:
    """Tell what is wrong where it is a number, if an odd one."""
    lines = f"import numpy as np, fractions, decimal\nreturn {expression}"
    found = search(folder, _body(lines))
    bad = [line for line in found.lines if line["task"] == "mine" and "error" in line]
    anchors = [
        line
        for task in found.others.values()
        for line in task
        if line["role"] in ("anchor", "design")
    ]
    good = unharmed(failing=False)
    wanted = [
        line
        for task in ("before", "after")
        for line in good[task]
        if line["role"] in ("anchor", "design")
    ]
    report = command(["report", "run"], folder)
    return first(
        held(found.outcome),
        ""
        if found.outcome.code == 0
        else f"exit {found.outcome.code}: " + found.outcome.said[-500:],
        f"it failed: {bad[0]['error']}" if bad else "",
        "" if anchors == wanted else "others were measured otherwise",
        held(report),
        "" if report.code == 0 else f"report: exit {report.code}",
    )


def _of_items(lines: str, word: str, more: str, of_search: str, folder: Path) -> str:
    """Tell what is wrong where a function gives a number for each document."""
    found = search(folder, lines, more=more, of_search=of_search)
    if word:
        errors = [line.get("error") or "" for line in found.lines]
        said = found.outcome.said + " ".join(errors)
        return first(
            held(found.outcome),
            "" if word in said else f"{word!r} is not said: {said[-600:]}",
        )
    return first(
        held(found.outcome),
        "" if found.outcome.code == 0 else f"exit: {found.outcome.said[-500:]}",
    )


def _secrets() -> Iterator[Attack]:
    ways = {
        "raises": "raise RuntimeError('no access with {}'.format(secret))",
        "exits with": "sys.exit('no access with ' + secret)",
        "raises an error of one with": (
            "try:\n    raise KeyError(secret)\n"
            "except KeyError as e:\n    raise ValueError(f'by {e!r}') from e"
        ),
        "gives": "return secret",
        "raises an address with": "raise OSError(f'https://u:{secret}@hub.example/x')",
        "raises a file with": "open('/nowhere/' + secret.replace('/', ''))",
        "raises lines with": "raise RuntimeError('\\n' * 3 + secret + '\\n' + secret)",
    }
    for name in code.TOKENS:
        yield Attack(
            f"a function raises {name}",
            functools.partial(_tells, ways["raises"], {name: _SECRET}, _SECRET),
        )
    for way, lines in ways.items():
        yield Attack(
            f"a function {way} what looks like a token",
            functools.partial(_tells, lines, {}, _HF),
        )
    for way in ("raises", "exits with", "gives"):
        yield Attack(
            f"a function {way} a token, with --workers 2",
            functools.partial(
                _tells, ways[way], {"HF_TOKEN": _SECRET}, _SECRET, workers=True
            ),
        )
        yield Attack(
            f"a function {way} a token at once",
            functools.partial(
                _tells, ways[way], {"HF_TOKEN": _SECRET}, _SECRET, at_once=True
            ),
        )
    yield Attack(
        "a module raises a token",
        functools.partial(
            _tells,
            ways["raises"],
            {"HF_TOKEN": _SECRET},
            _SECRET,
            at_once=True,
            importing=True,
        ),
    )


def _tells(
    lines: str,
    variables: dict[str, str],
    secret: str,
    folder: Path,
    *,
    workers: bool = False,
    at_once: bool = False,
    importing: bool = False,
) -> str:
    """Tell where a secret is found after a function told it."""
    home = folder / "hub"
    home.mkdir()
    given = f"secret = {secret!r}\n"
    body = _body(given + lines)
    if at_once:
        inside = textwrap.indent(given + lines, "    ")
        body = f"def score(model, tokenizer):\n{inside}\n"
    if importing:
        body = given + lines + "\n" + BENIGN
    found = search(
        folder,
        body,
        words=(*(("--workers", "2") if workers else ()), "-v", "--log-file", "words"),
        limits=Limits(others={"HF_HOME": str(home), **variables}),
    )
    (folder / "own_function.py").unlink()  # it has it
    report = command(["report", "run"], folder) if not at_once else None
    places = [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and secret.encode() in path.read_bytes()
        and "__pycache__" not in path.parts
    ]
    code_wanted = 2 if at_once else 0
    return first(
        "the terminal has it" if secret in found.outcome.said else "",
        f"{places} have it" if places else "",
        held(found.outcome),
        ""
        if found.outcome.code == code_wanted
        else f"exit {found.outcome.code}: " + found.outcome.said[-300:],
        "" if report is None else held(report),
        "" if report is None or secret not in report.said else "report says it",
    )


def _endless_and_files() -> Iterator[Attack]:
    for name, lines in code.ENDLESS.items():
        for workers in (False, True):
            also = ", with --workers 2" if workers else ""
            yield Attack(
                f"a function that never ends, {name}: Ctrl-C{also}",
                functools.partial(_can_be_stopped, lines, workers=workers),
            )
    for name, (lines, word) in code.FILES.items():
        yield Attack(f"a function {name}", functools.partial(_loses_files, lines, word))


def _can_be_stopped(lines: str, folder: Path, *, workers: bool) -> str:
    """Press Ctrl-C while a function runs that never ends."""
    started = folder / "started"
    body = f"open({str(started)!r}, 'w').close()\n{lines}"
    inside = textwrap.indent(body, "    ")

    def press() -> None:
        end = time.monotonic() + 50
        while not started.exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)
        # The only child of ours is the command, the first of its group.
        for child in _children():
            os.kill(child, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    found = search(
        folder,
        f"def score(model, tokenizer):\n{inside}\n",
        words=("--workers", "2") if workers else (),
    )
    presser.join()
    return first(
        held(found.outcome, "Go on with"),
        ""
        if found.outcome.code == 130
        else f"exit {found.outcome.code}: " + found.outcome.said[-300:],
    )


def _children() -> list[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in found]


def _loses_files(lines: str, word: str, folder: Path) -> str:
    """Remove files of the run folder; the next search must come to the same front."""
    found = search(folder, _body(f"import shutil, glob\n{lines}"))
    (folder / "own_function.py").write_text(
        (folder / "own_function.py").read_text().split("def score")[0] + BENIGN
    )
    again = search(folder, BENIGN)
    if word and again.outcome.code == 2:  # and that it is in the way is said again
        return refused(again.outcome, word)
    front = folder / "run" / "front.json"
    lines_there = read_lines(folder / "run")
    good = unharmed(failing=False)
    both = {json.dumps(line, sort_keys=True) for line in again.of("before")}
    wanted = {
        json.dumps(line, sort_keys=True)
        for line in good["before"]
        if line["role"] in ("anchor", "design")
    }
    return first(
        held(found.outcome),
        "" if word in found.outcome.said else f"{word!r} is not said",
        held(again.outcome),
        ""
        if again.outcome.code == 0
        else f"then exit {again.outcome.code}: " + again.outcome.said[-300:],
        "" if front.exists() and lines_there else "there is no front after that",
        "" if wanted <= both else "measurements are missing after that",
    )
