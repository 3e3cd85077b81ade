"""Configurations that ask for what cannot be: refused in words, before they cost.

Every key, and what may not stand there, is written from docs/configuration.md and
mergekit's own documentation, not from the code.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from attack import Attack, Limits, Outcome, command, first, refused, shown
from damages import BYTES, PLACES, Change, put
from tiny_models import family

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
        option = wrong.partition("=")[0].strip("-").replace("text", "perplexity")
        yield _attack(name, lambda _: None, words, option)


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
        "--device": ("nothing", "cuda:99", "cuda:-1", "cpu:x", "meta", "cpu\0"),
        "--lora-merge-dtype": ("", "float8", "int64", "x"),
    }
    for option, values in wrong.items():
        for value in values:
            yield [*_INSPECT, f"{option}={value}"]
            yield [*_SEARCH, f"{option}={value}"]
    for value in ("0", "-1", "x", "", "ray:0", "ray:x", "99999", "1" + "0" * 30):
        yield [*_SEARCH, f"--workers={value}"]
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


# ---- a configuration that works; every key of it, and what may not stand there

Place = tuple[str | int, ...]

NAN, INF = math.nan, math.inf
LONG, LONG_ENOUGH = "x" * 100_000, "x" * 30_000
DEEP: list[Any] = []
for _ in range(25):
    DEEP = [DEEP]
ODD_TEXTS = ["\0", "a\0b", "\ud800", "\x1b[31mred", "\x85", "\u202e", LONG, LONG_ENOUGH]
NO_MAPPINGS = [3, True, "x", [], [{}], NAN]
NO_LISTS = [3, True, "x", {"a": 1}, NAN]
NO_TEXTS = [3, 1.5, True, [], ["x"], {"a": "b"}, NAN, "", *ODD_TEXTS]
NO_SWITCHES = [3, 0.5, "maybe", "", [], {"a": 1}, NAN, *ODD_TEXTS[:2]]
NO_COUNTS = [
    *(-1, 1.5, NAN, INF, 2**31, 10**30, 1e300, "many", "1e3", "", True, [], [3]),
    *({"a": 1}, *ODD_TEXTS),
]
NO_LARGE_COUNTS = [wrong for wrong in NO_COUNTS if wrong != 2**31]
NO_NUMBERS = [NAN, INF, -INF, "much", "", True, [], [0.5], {"a": 1}, *ODD_TEXTS[:4]]
NO_GRADIENTS = [wrong for wrong in NO_NUMBERS if wrong != [0.5]]  # of layers
NO_BOUNDS = [
    *([], [0], [0, 1, 2], [1, 0], [0, 0], [NAN, 1], [0, INF], [-INF, 0]),
    *([0, 1e9], [1e300, 1.1e300], [0, 1e-300], [0, 10**400], ["0", "1"], [True, False]),
    *([None, 1], [[0, 1], [0, 1]], 3, "wide", NAN, {"a": 3}, {"a": [1, 0]}),
    *({"": [0, 1]}, {"nobody": [0, 1]}, {"a": [0, NAN]}, *ODD_TEXTS[:3]),
]
NO_RANGES = [
    *([], [0], [1, 0], [0, 0], [NAN, 1], ["0", 1], [0, 1, 2], [True, 1], 3, {"a": 1}),
    [10**400, None],
]
NO_NAMES = [3, True, [], "", "nothing"]
NO_CHOICES = [3, True, [], ["map"], {"a": 1}, "", "nothing", "MAP", NAN, *ODD_TEXTS]

SEARCH: dict[str, list[Any]] = {
    "strategy": NO_CHOICES,
    "order": [*NO_LISTS, [1, 2], ["a"], ["a", "a"], DEEP, ["a", NAN]],
    "design": NO_CHOICES,
    "evaluations": [*NO_COUNTS, 0, 10**7, 10**9],
    "hours": [*NO_NUMBERS, 0, -1, 1e300],
    "bounds": NO_BOUNDS,
    "seed": [*NO_LARGE_COUNTS, 2**32, 2**32 + 1],
    "remeasure": [*NO_COUNTS, 10**7],
    "surrogate": NO_CHOICES,
    "refine": NO_SWITCHES,
    "holdout": [*NO_NUMBERS, 0, 1, -1, 2, 1e-300, 1 - 2**-53],
}
SELECT: dict[str, list[Any]] = {
    "prefer": [
        *(3, "x", [], NAN, {"nobody": 1}, {"text": -1}, {"text": NAN}, {"text": "1"}),
        *({"text": True}, {"text": 0}, {"text": 1e308, "more": 1e308}, {"text": None}),
    ],
    "scalarization": NO_CHOICES,
    "knee": NO_SWITCHES,
    "require": [
        *(3, "x", [], {}, NAN, {"nobody": 1}, {"text": NAN}, {"text": "0%"}),
        *({"text": "-3%"}, {"text": "%"}, {"text": "9" * 400 + "%"}, {"text": 10**400}),
        *({"text": True}, {"text": []}, {"text": "95 percent"}),
    ],
    "not_worse_than": [3, True, [], {}, "", "nobody", ["base", 3], ["nobody"], "\0"],
    "index": [*NO_COUNTS, 10**9],
}
TASK: dict[str, dict[str, list[Any]]] = {
    "perplexity": {
        "perplexity": [
            *(3, True, [], {}, NAN, "", "text", "nowhere.txt", "/dev/zero", "."),
            *({"file": 3}, {"file": ""}, {"file": "a\0.txt"}, {"file": "\ud800.txt"}),
            *({"dataset": ""}, {"dataset": 3}, {"file": "x.txt", "dataset": "y"}),
            *({"dataset": "\0"}, {"name": "x"}, {"file": f"{LONG}.txt"}),
        ],
        "max_tokens": [*NO_COUNTS, 0, 1],
        "block": [*NO_COUNTS, 0, 1],
        "documents": [*NO_LARGE_COUNTS, 0, 1, "some"],
        "nothing": [1],
    },
    "lm_eval": {
        "lm_eval": [*NO_TEXTS, "no_such_task", "nowhere.yaml", "/dev/zero", "."],
        "metric": [*NO_TEXTS, "no_such_metric"],
        "filter": [*NO_TEXTS[: -len(ODD_TEXTS)], "no_such_filter"],
        "limit": [*NO_LARGE_COUNTS, 0, 1.0, 2.5, -0.5],
        "direction": NO_CHOICES,
        "num_fewshot": NO_COUNTS,
        "apply_chat_template": NO_SWITCHES,
        "confirm_run_unsafe_code": NO_SWITCHES,
        "documents": [*NO_LARGE_COUNTS, 0, 1, "some"],
        "range": NO_RANGES,
    },
    "preset": {
        "preset": [*NO_TEXTS, "nothing", "gsm9k"],
        "limit": [*NO_LARGE_COUNTS, 0, 1.0],
        "num_fewshot": NO_COUNTS,
        "documents": [*NO_LARGE_COUNTS, 0, 1],
    },
    "python": {
        "python": [
            *(3, True, [], {}, "", "json", "json:", ":dump", "json:dump:x", "a b:c"),
            *("no_such_module:f", "json:no_such_function", "json:decoder", "\0:f"),
            *("os.path.:join", ".os:getcwd", "json:__doc__", "..:f", *ODD_TEXTS[1:4]),
        ],
        "direction": [*NO_CHOICES, None],
        "documents": [*NO_LARGE_COUNTS, 0, 1],
        "range": NO_RANGES,
    },
}
BLOCK: dict[str, list[Any]] = {
    "tasks": [*NO_MAPPINGS, {}, None, {"a": None}, {"a": []}, {"a": {}}, {"a": "x"}],
    "search": NO_MAPPINGS,
    "select": NO_MAPPINGS,
    "batch_size": [*NO_COUNTS, 0],
    "merge": NO_CHOICES,
    "task_vectors": NO_CHOICES,
    "engine": [
        *(*NO_NAMES, {"name": ""}, {"name": 3}, {"name": "vllm", 3: 4}),
        *({"name": "hf", "args": {"x": 1}}, {"name": "vllm", "args": {"model": "x"}}),
        *({"name": "vllm", "args": []}, {"name": "vllm", "args": {"": 1}}),
    ],
    "backend": [
        *(3, True, [], "x", {}, {"name": ""}, {"name": 3}, {"name": None}),
        *({"name": "nothing"}, {"name": "vllm", "x": 1}, {"name": "\0"}),
    ],
    "nothing": [1],
}
OUTER: dict[str, list[Any]] = {
    "merge_method": [3, True, [], {}, "", "nothing", None, *ODD_TEXTS],
    "base_model": [3, True, [], {"a": 1}, "", "nowhere", "a+b+c", "a@b@c", *ODD_TEXTS],
    "models": [*NO_LISTS, [], [3], [[]], [{}], [None], [{"modle": "x"}], DEEP],
    "dtype": [3, True, [], {}, "", "float8", "int64", "torch.", "FLOAT32", *ODD_TEXTS],
    "out_dtype": [3, True, [], {}, "", "float8", "int64", *ODD_TEXTS],
    "parameters": [3, True, "x", [], {"nothing": 1}, {"": 1}],
    "tokenizer_source": [3, True, [], {"a": 1}, "", "nowhere", *ODD_TEXTS[:4]],
    "tokenizer": [
        *(3, True, "x", [], {"source": 3}, {"source": ""}, {"source": "nowhere"}),
        *({"pad_to_multiple_of": w} for w in ("x", 1.5, NAN)),
        *({"tokens": w} for w in (3, [], {"x": 3}, {"x": {"source": "nowhere"}})),
        {"tokens": {"x": {"force": "maybe"}}},
        {"tokens": {"x": {"source": {"kind": "nothing"}}}},
    ],
    "chat_template": [3, True, [], {"a": 1}, "\0", "\ud800"],
    "slices": [3, "x", [{}], [{"sources": []}], [{"sources": 3}]],
    "modules": [3, "x", [], {"a": 3}, {"a": {}}, {"default": {"models": []}}],
    "nothing": [1],
}
PARAMETERS: dict[str, list[Any]] = {
    "density": [*NO_GRADIENTS, -0.5, 2, 1e300, [0.5, NAN], [0.5, -1], [[0.5]]],
    "lambda": [*NO_GRADIENTS, [1, NAN]],
    "normalize": NO_SWITCHES,
    "int8_mask": NO_SWITCHES,
    "weight": [NAN, INF, [], {}, [NAN, 1], {"value": NAN}, *ODD_TEXTS],
}
ENTRY: dict[str, list[Any]] = {
    "model": [3, True, [], {}, "", None, "nowhere", "a+b+c", "a@b@c", *ODD_TEXTS],
    "nothing": [1],
}
WEIGHTS: dict[str, list[Any]] = {
    "weight": [
        *(NAN, INF, -INF, "", [], [[]], {}, {"value": ""}, 10**400),
        *(["w", NAN], [{"value": INF}], [{"filter": "mlp"}], [{"value": 1, "x": 2}]),
        *([{"filter": "mlp", "value": "w"}, 3], [{"filter": 3, "value": 1}]),
        *("\0", "w\nx", "\ud800", LONG),
        *("point", "selected", "recommended", "text value", "more stderr"),
    ],
    "density": [NAN, INF, -0.5, 2, "x", True, [], {}, [0.5, NAN]],
}


def configuration() -> dict[str, Any]:
    """Give a configuration that can be searched, each time anew."""
    place = family()
    return {
        "merge_method": "ties",
        "base_model": str(place / "base"),
        "models": [{"model": str(place / name)} for name in "ab"],
        "parameters": {"density": 0.5},
        "dtype": "float32",
        "map": {
            "tasks": {
                name: {"perplexity": str(place / f"{name}.txt"), "max_tokens": 200}
                for name in ("text", "more")
            },
            "search": {"evaluations": 12, "remeasure": 1},
        },
    }


def changes() -> Iterator[tuple[Place, Any]]:
    """List all that may not stand in a configuration, with its place."""
    tables: dict[Place, dict[str, list[Any]]] = {
        ("map", "search"): SEARCH,
        ("map", "select"): SELECT,
        ("map",): BLOCK,
        (): OUTER,
        ("parameters",): PARAMETERS,
        ("models", 0): ENTRY,
        ("models", 0, "parameters"): WEIGHTS,
        **{("map", "tasks", kind): table for kind, table in TASK.items()},
    }
    for place, table in tables.items():
        for key, values in table.items():
            yield from (((*place, key), value) for value in values)


def changed(place: Place, value: Any) -> dict[str, Any]:
    """Give the good configuration with another value at a place."""
    content = configuration()
    if place[:2] == ("map", "tasks") and len(place) > 2:
        content["map"]["tasks"][place[2]] = _whole_task(str(place[2]))
    part: Any = content
    for key in place[:-1]:
        part = part[key] if isinstance(key, int) else part.setdefault(key, {})
    part[place[-1]] = value
    if place[:2] == ("map", "backend"):
        content["map"]["merge"] = "disk"
    return content


def _whole_task(kind: str) -> dict[str, Any]:
    questions = str(family() / "questions.yaml")
    return {
        "perplexity": {"perplexity": str(family() / "text.txt"), "max_tokens": 200},
        "lm_eval": {"lm_eval": questions, "metric": "acc"},
        "preset": {"preset": "arc_easy"},
        "python": {"python": "json:dumps", "direction": "maximize"},
    }[kind]
