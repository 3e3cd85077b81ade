"""Configurations that ask for what cannot be: refused in words, before they cost."""

from __future__ import annotations

import dataclasses
import itertools
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from attack import Attack, Limits, Outcome, command, first, refused, shown
from damages import BYTES, PLACES, Change, put
from tiny_models import family
from wrong_values import changed, changes, configuration

from mergekit_map.tasks.lm_eval_tasks import built_in_tasks

_SECONDS = 10  # of a command; a machine may be busy
_MEGABYTES = 200
_FILE = "merge.yml"
_INSPECT, _SEARCH = ["inspect", _FILE], ["search", _FILE, "RUN"]
# What a refused configuration is asked to do, in turns: the first is the cheapest.
_COMMANDS = [*[_INSPECT] * 3, _SEARCH, ["run", _FILE, "OUT"], [*_INSPECT, "--json"]]


def attacks(_: int) -> Iterator[Attack]:
    """Give wrong values of every key, files that are no configurations, options."""
    turns = itertools.cycle(_COMMANDS)
    built_in_tasks()  # so that commands, which are forked, know those of lm-eval
    for number, (place, value) in enumerate(changes()):
        name = f"{number} {'.'.join(map(str, place))}: {shown(value)}"
        key = next(str(part) for part in reversed(place) if isinstance(part, str))
        content = _written(changed(place, value))
        yield _attack(name, content, next(turns), f"{_FILE}:", key)
    for name, change in _FILES.items():
        for words in (_INSPECT, _SEARCH, ["init", _FILE, "new.yml"]):
            yield _attack(f"{words[0]} of {name}", change, words, _FILE)
    for name, content, said in _wholes():
        yield _attack(name, _written(content), _INSPECT, _FILE, *said)
    for number, words in enumerate(_options()):
        name = f"option {number}: {' '.join(map(shown, words))}"
        # What a base is wrong for is as well said of the base.
        wrong = "--base" if words[-1] == "--method=passthrough" else words[-1]
        yield _attack(name, lambda _: None, words, wrong.partition("=")[0].strip("-"))


def _attack(name: str, change: Change, words: Sequence[str], *said: str) -> Attack:
    def attempt(folder: Path) -> str:
        (folder / _FILE).write_text(yaml.safe_dump(configuration()))
        change(folder / _FILE)
        outcome = command(words, folder, Limits(seconds=40, megabytes=3000))
        if "wrote RUN.yml" in outcome.err:
            (folder / "RUN.yml").unlink()  # to be edited
        return _cheaply(folder, outcome, *said)

    return Attack(name, attempt)


def _written(content: dict[str, Any]) -> Change:
    return lambda path: path.write_text(yaml.safe_dump(content))


def _cheaply(folder: Path, outcome: Outcome, *words: str) -> str:
    """Say what is wrong with how something was refused, or what it cost or left."""
    outcome = _as_said(outcome)
    left = {path.name for path in folder.iterdir()} - {_FILE}
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
_MAY_BE = {"with a byte order mark", "without its end"}
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


def _wholes() -> Iterator[tuple[str, dict[str, Any], Sequence[str]]]:
    """List configurations by a name, and what has to be said of each."""
    for name in (
        *("point", "selected", "recommended", "-x", ".x", "..", "a/b", "a b", ""),
        *("a\nb", "a\x1b[31m", "é", "a,b", "a=b", "x" * 300, "a" * 200 + ".txt"),
    ):
        content = configuration()
        text = {"perplexity": str(family() / "text.txt"), "max_tokens": 200}
        content["map"]["tasks"] = dict.fromkeys([name, "other"], text)
        yield f"a task called {name!r:.20}", content, [_as_printed(name)[:20]]
    for start, stop in (
        *((0, 99), (1, 1), (2, 0), (0, 10**9), (0, 10**30)),
        *(("all", "of them"), (0, float("nan"))),
    ):
        content = configuration()
        models = (content["base_model"], *(one["model"] for one in content["models"]))
        del content["models"]
        sources = [{"model": name, "layer_range": [start, stop]} for name in models]
        content["slices"] = [{"sources": sources}]
        yield f"layers from {start} to {stop}", content, ["layer_range"]


def _as_printed(name: str) -> str:
    if "\x1b" in name:
        return "'\\x1b'"  # it is said alone
    odd = not name.isprintable()
    return name.encode("unicode_escape").decode() if odd else name


# ---- options of commands


def _options() -> Iterator[list[str]]:
    """List options that are out of range, or say nothing."""
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
            yield [*_INSPECT, f"{option}={value}"]
            yield [*_SEARCH, f"{option}={value}"]
    for value in ("0", "-1", "x", "", "ray:0", "ray:x", "99999", "1" + "0" * 30):
        yield [*_SEARCH, f"--workers={value}"]
    for value in ("-1", "x", "", "1.5"):
        yield [*_SEARCH, f"--points={value}"]
    for value in ("", "x", "=", "a=", "=b", "nobody=/tmp"):
        yield [*_INSPECT, f"--model-path={value}"]
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
