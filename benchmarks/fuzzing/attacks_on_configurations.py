"""Configurations that ask for what cannot be: refused in words, before they cost."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import wrong_values
import yaml
from attack import Attack, Outcome, first, refused, shown
from damages import BYTES, PLACES, Change, put
from good_configuration import asked, configuration, family, index_of_tasks

_SECONDS = 10  # of a command; a machine may be busy
_MEGABYTES = 200
_FILE = "merge.yml"

# What a refused configuration is asked to do, in turns: the first is the cheapest.
_COMMANDS: list[list[str | Path]] = [
    *([["inspect", _FILE]] * 3),
    ["search", _FILE, "RUN"],
    ["run", _FILE, "OUT"],
    ["inspect", _FILE, "--json"],
]


def attacks(seed: int) -> Iterator[Attack]:
    """Give wrong values of every key, files that are no configurations, options."""
    turns = itertools.cycle(_COMMANDS)
    del seed  # nothing is drawn
    for number, (place, value) in enumerate(wrong_values.changes()):
        name = f"{number} {'.'.join(map(str, place))}: {shown(value)}"
        yield Attack(name, functools.partial(_value, place, value, next(turns)))
    for name, change in _FILES.items():
        for first_word, *more in (["inspect"], ["search", "RUN"], ["init", "new.yml"]):
            words = [first_word, _FILE, *more]
            attempt = functools.partial(_file, change, words)
            yield Attack(f"{first_word} of {name}", attempt)
    for name, (change, words) in _WHOLES.items():
        yield Attack(name, functools.partial(_whole, change, words))
    for number, words in enumerate(_options()):
        name = f"option {number}: {' '.join(map(shown, words))}"
        yield Attack(name, functools.partial(_option, words))


def _value(
    place: wrong_values.Place, value: Any, words: list[str | Path], folder: Path
) -> str:
    content = yaml.safe_dump(wrong_values.changed(place, value))
    (folder / _FILE).write_text(content)
    if {"lm_eval", "preset"} & {*place}:
        index_of_tasks()
    key = next(str(part) for part in reversed(place) if isinstance(part, str))
    return _cheaply(folder, asked(folder, *words), f"{_FILE}:", key)


def _file(change: Change, words: list[str], folder: Path) -> str:
    (folder / _FILE).write_text(yaml.safe_dump(configuration()))
    change(folder / _FILE)
    return _cheaply(folder, asked(folder, *words), _FILE)


def _whole(
    change: Callable[[dict[str, Any], Path], None], words: list[str], folder: Path
) -> str:
    content = configuration()
    change(content, folder)
    (folder / _FILE).write_text(yaml.safe_dump(content))
    return _cheaply(folder, asked(folder, "inspect", _FILE), _FILE, *words)


def _option(words: list[str], folder: Path) -> str:
    (folder / _FILE).write_text(yaml.safe_dump(configuration()))
    (folder / "plain.yml").write_text("models: [{model: a}]\nmerge_method: linear\n")
    named = [word.partition("=")[0] for word in words if word.startswith("-")]
    if named[-1] == "--task":
        index_of_tasks()
    # What a base is wrong for is as well said of the base.
    said = "--base" if words[-1] == "--method=passthrough" else named[-1]
    outcome = asked(folder, *words)
    if "wrote RUN.yml" in outcome.err:
        (folder / "RUN.yml").unlink()  # to be edited
    return _cheaply(folder, outcome, said)


def _cheaply(folder: Path, outcome: Outcome, *words: str) -> str:
    """Say what is wrong with how something was refused, or what it cost or left."""
    outcome = _as_said(outcome)
    left = {path.name for path in folder.iterdir()} - {_FILE, "plain.yml"}
    spent = outcome.megabytes
    return first(
        refused(outcome, *words, seconds=_SECONDS),
        f"{spent:.0f} MB" if spent > _MEGABYTES else "",
        f"left behind: {left}: {outcome.said[-300:]}" if left else "",
    )


def _as_said(outcome: Outcome) -> Outcome:
    """Take the problems that ``inspect`` lists for errors: it is what it is for."""
    if outcome.out.startswith("{"):
        inspected = json.loads(outcome.out)
        found = [(p["place"], p["message"]) for p in inspected["problems"]]
        found += [
            (model["place"], finding["cause"])
            for model in inspected["models"]
            for finding in model["findings"]
            if finding["severity"] == "error"
        ]
        said = "\n".join(f"error: {place}: {message}" for place, message in found)
    else:
        said = "\n".join(textwrap.wrap(" ".join(outcome.out.split()), 1000))
    return dataclasses.replace(outcome, out="", err=f"{said}\n{outcome.err}")


# ---- files that are no configurations

# What a cut configuration may be; with its bytes twice it has each key twice.
_MAY_BE = {"with a byte order mark", "without its end", "cut at a third"}
_FILES: dict[str, Change] = {
    **{
        way: change for way, change in {**BYTES, **PLACES}.items() if way not in _MAY_BE
    },
    **{
        shown(text): put(text)
        for text in (
            *(b"# nothing\n", b"hello\n", b"a: 1\n---\nb: 2\n", b"models: [\n"),
            *(b'models: "\n', b"models:\n\t- x\n", b"models: !foo x\n"),
            b"models: !!python/object/apply:os.system ['touch owned']\n",
            *(b"models: !!python/name:os.system ''\n", b"models: *a\n"),
            *("models: café\n".encode("latin-1"), b"models: \x01\n"),
            *(b'merge_method: "\\x01"\n', b'merge_method: "\\ud800"\n'),
            *(b'"\\ud800": 1\n', b'"a\\0b": 1\n', b"3: 4\n", b"? [1, 2]\n: 3\n"),
            *(b"~: 3\n", b"2020-01-01: 3\n", b"models: 2020-99-99\n"),
            *(b"models: &a [*a]\n", b"a: &a {b: *a}\n", b"a: &a\n  <<: *a\n"),
            *(b"a: &a {b: {<<: *a}}\n", b"&a\n<<: *a\n", b"<<: 3\n", b"<<: [3]\n"),
            b"models: " + b"[" * 200 + b"]" * 200 + b"\n",
            *(b"models: []\nmodels: []\n", b"\xef\xbb\xbf"),
        )
    },
}


# ---- configurations that are wrong as a whole

Whole = tuple[Callable[[dict[str, Any], Path], None], list[str]]


def _as_printed(name: str) -> str:
    if "\x1b" in name:
        return "'\\x1b'"  # it is said alone
    odd = not name.isprintable()
    return name.encode("unicode_escape").decode() if odd else name


def _tasks(names: list[str], *words: str) -> Whole:
    def change(content: dict[str, Any], _: Path) -> None:
        text = {"perplexity": str(family() / "text.txt"), "max_tokens": 200}
        content["map"]["tasks"] = dict.fromkeys(names, text)

    return change, list(words)


def _layers(start: Any, stop: Any) -> Whole:
    def change(content: dict[str, Any], _: Path) -> None:
        sources = [
            {"model": str(family() / name), "layer_range": [start, stop]}
            for name in ("base", "a", "b")
        ]
        del content["models"]
        content["slices"] = [{"sources": sources}]

    return change, ["layer_range"]


_WHOLES: dict[str, Whole] = {
    **{
        f"a task called {name!r:.20}": _tasks([name, "other"], _as_printed(name)[:20])
        for name in (
            *("point", "selected", "recommended", "-x", ".x", "..", "a/b", "a b", ""),
            *("a\nb", "a\x1b[31m", "é", "a,b", "a=b", "x" * 300, "a" * 200 + ".txt"),
        )
    },
    "layers that are not there": _layers(0, 99),
    "no layer": _layers(1, 1),
    "layers backwards": _layers(2, 0),
    "10^9 layers": _layers(0, 10**9),
    "10^30 layers": _layers(0, 10**30),
    "layers in words": _layers("all", "of them"),
    "layers of NaN": _layers(0, float("nan")),
}


# ---- options of commands


def _options() -> Iterator[list[str]]:
    """List options that are out of range, or say nothing."""
    inspect, search = ["inspect", _FILE], ["search", _FILE, "RUN"]
    wrong = {
        "--random-seed": ("-1", "4294967296", "1" + "0" * 30, "x", "", "1.5"),
        "--num-threads": ("0", "-1", "99999", "1" + "0" * 12, "x", ""),
        "--write-threads": ("0", "-1", "99999", "x"),
        "--out-shard-size": ("0", "-1", "", "x", "5Q", "B", "1.5B", "-5B", "²"),
        "--device": ("", "nothing", "cuda:99", "cuda:-1", "cpu:x", "meta", "cpu\0"),
        "--lora-merge-dtype": ("", "float8", "int64", "x"),
    }
    for option, values in wrong.items():
        for value in values:
            yield [*inspect, f"{option}={value}"]
            yield [*search, f"{option}={value}"]
    for value in ("0", "-1", "x", "", "ray:0", "ray:x", "99999", "1" + "0" * 30):
        yield [*search, f"--workers={value}"]
    for value in ("-1", "x", "", "1.5"):
        yield [*search, f"--points={value}"]
    for value in ("", "x", "=", "a=", "=b", "nobody=/tmp"):
        yield [*inspect, f"--model-path={value}"]
    yield from _stands_for_configurations()


def _stands_for_configurations() -> Iterator[list[str]]:
    place = family()
    good = {
        "--base": str(place / "base"),
        "--model": str(place / "a"),
        "--text": str(place / "text.txt"),
    }
    wrong = {
        "--base": ("", "nowhere", "a+b+c", "\x1b[31m", "x" * 5000, "\udcff", " "),
        "--model": ("", "nowhere", "a@b@c", "a\nb", "\udcff", "x" * 5000, " ", "."),
        "--text": ("", "=", "nowhere.txt", "a=", "/dev/zero", "/dev/null", ".", "a\nb"),
        "--task": ("", ":", "nothing", "a:", ":b", "x:y,z", "\udcff", "a\nb:acc"),
        "--method": ("", "nothing", "passthrough", "a\nb: c", "\udcff"),
        "--dtype": ("", "float8", "a\nb: c", "\udcff", "int64"),
    }
    for option, values in wrong.items():
        for value in values:
            given = [f"{o}={v}" for o, v in good.items() if o != option]
            yield ["inspect", *given, f"{option}={value}"]
            yield ["search", "RUN", *given, f"{option}={value}"]
