"""Texts and task files: endless, huge, broken, of another kind; templates as programs.

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

BEFORE = (0, 0)  # not tried as a class of its own
QUICK = 1  # templates that loop wait for their limit, 20 s

MARK = "code-was-run"
MEMORY = 700  # MB that no text may take


@dataclass(frozen=True)
class Case:
    """What is put where the text or the task is, and what has to be said of it."""

    name: str
    change: Change
    task: dict[str, Any]
    words: tuple[str, ...] = ()
    harmless: bool = False


def attacks(seed: int) -> Iterator[Attack]:  # noqa: ARG001 - all of them, every time
    """Yield every text and every task file."""
    for case in itertools.chain(_texts(), _lines(), _data(), _templates(), _files()):
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
    if (folder / MARK).exists():
        problems.append("a template ran code")
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


def _data() -> Iterator[Case]:
    """Datasets that are folders of one's own."""
    task = {"perplexity": {"dataset": "own", "split": "test"}}
    for file, contents in {
        "test.jsonl": {**{n: c for n, (c, _) in _RECORDS.items() if len(c) < 10**6}},
        "test.parquet": {"none": b"PAR1garbagePAR1", "empty": b"", "zeros": b"\0" * 99},
        "test.csv": {"broken": b'a,b\n"x', "one column": b"text\none two three\n"},
        "test.py": {"code": f"open({MARK!r}, 'w')".encode()},
        "own.py": {"a script": f"open({MARK!r}, 'w')".encode()},
        "test.arrow": {"none": b"ARROW1garbage"},
        "test.zip": {"none": b"PK\3\4garbage"},
        "dataset_infos.json": {"a list": b"[]", "broken": b"{"},
        "README.md": {
            "settings": b"---\nconfigs: 1\n---\n",
            "broken": b"---\n[\n---\n",
        },
    }.items():
        for name, content in contents.items():

            def change(
                folder: Path, file: str = file, content: bytes = content
            ) -> None:
                (folder / "own").mkdir()
                (folder / "own" / file).write_bytes(content)

            yield Case(f"data in {file}, {name}", change, task, (), harmless=True)
    for name, change in places_taken("own").items():
        yield Case(f"the folder of data is {name}", change, task)


# --- task files -----------------------------------------------------------------------

_TASK = """\
task: own
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{a}}"
doc_to_choice: ["one", "two"]
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
_MOST = 10**10
_PROGRAMS = {
    "a long loop": "{% for i in range(10**10) %}{% endfor %}",
    "loops in loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "loops over text": (
        "{% for i in a*9999 %}{% for j in a*9999 %}{% for k in a*9999 %}"
        "{% endfor %}{% endfor %}{% endfor %}"
    ),
    "a long text": f"{{{{ 'x' * {_MOST} }}}}",
    "a long text, turned round": f"{{{{ {_MOST} * 'x' }}}}",
    "a long list": f"{{{{ [1] * {_MOST} }}}}",
    "a long text, twice": "{{ ('x' * 1000000) * 1000000 }}",
    "a power": "{{ 9**9**9**9 }}",
    "powers": "{{ (2**10000)**10000 }}",
    "a wide text": f"{{{{ a.ljust({_MOST}) }}}}",
    "a centred text": f"{{{{ a|center({_MOST}) }}}}",
    "an indented text": f"{{{{ a|indent({_MOST}, true) }}}}",
    "a filled text": f"{{{{ a.zfill({_MOST}) }}}}",
    "a wide number": f"{{{{ '%{_MOST}d'|format(1) }}}}",
    "a wide number by percent": f"{{{{ '%{_MOST}d' % 1 }}}}",
    "a wide number by format": f"{{{{ '{{:{_MOST}}}'.format(1) }}}}",
    "a macro of itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "os": f"{{{{ cycler.__init__.__globals__.os.system('touch {MARK}') }}}}",
    "builtins": (
        "{{ self.__init__.__globals__.__builtins__.open('" + MARK + "', 'w') }}"
    ),
    "lipsum": f"{{{{ lipsum.__globals__['os'].popen('touch {MARK}').read() }}}}",
    "attr": f"{{{{ (lipsum|attr('__globals__'))['os'].system('touch {MARK}') }}}}",
    "format of attributes": "{{ '{0.__class__}'.format(a) }}",
    "an import": "{% import 'os' as os %}{{ os }}",
    "an include": "{% include '/etc/passwd' %}",
    "an extension": "{% extends '/etc/passwd' %}",
    "a broken one": "{% if %}",
    "an unknown name": "{{ nothing_like_that }}",
    "a division by zero": "{{ 1 / 0 }}",
    "a filter that is none": "{{ a|magic }}",
    "lorem ipsum": "{{ lipsum(n=100000) }}",
}
_PLACES = ("doc_to_text", "doc_to_target", "doc_to_choice", "description")


def _templates() -> Iterator[Case]:
    for name, template in _PROGRAMS.items():
        for place in _PLACES:

            def change(
                folder: Path, place: str = place, template: str = template
            ) -> None:
                lines = [
                    line
                    for line in _TASK.replace(
                        "DATA", str(folder / "d.jsonl")
                    ).splitlines()
                    if not line.startswith(place)
                ]
                lines.append(f"{place}: {json.dumps(template)}")
                (folder / "own.yaml").write_text("\n".join(lines))
                (folder / "d.jsonl").write_text('{"a": "one two"}\n' * 3)

            yield Case(
                f"{place} is {name}",
                change,
                {"lm_eval": "own.yaml", "metric": "acc"},
                (),
                # Where nothing renders it, or what it makes is a text.
                harmless=True,
            )


def _files() -> Iterator[Case]:
    task = {"lm_eval": "own.yaml", "metric": "acc"}
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n"
        for a, b in itertools.pairwise("abcdefghij")
    )
    for name, content in {
        "empty": b"",
        "a list": b"[]",
        "a number": b"1",
        "broken": b"a: [",
        "no text": b"\xff\xfe\x00",
        "a bomb": bomb.encode(),
        "a bomb in a task": (_TASK + "metadata:\n" + "".join(
            f"  {line}\n" for line in bomb.splitlines()
        )).encode(),
        "an anchor of itself": b"a: &a [*a]\n",
        "nested deeply": b"[" * 100_000,
        "a tag for code": f"!!python/object/apply:os.system ['touch {MARK}']".encode(),
        "a tag in a task": (
            _TASK + f"process_docs: !!python/object/apply:os.system ['touch {MARK}']\n"
        ).encode(),
        "including itself": b"include: own.yaml\ntask: x\n",
        "including what is endless": b"include: /dev/zero\ntask: x\n",
        "including a pipe": b"include: pipe\ntask: x\n",
        "including a folder": b"include: .\ntask: x\n",
        "including what is not there": b"include: nothing.yaml\ntask: x\n",
        "including a number": b"include: 7\ntask: x\n",
        "including a list of itself": b"include: [own.yaml, own.yaml]\ntask: x\n",
        "data that are endless": _TASK.replace("DATA", "/dev/zero").encode(),
        "data in a pipe": _TASK.replace("DATA", "pipe").encode(),
        "data that are not there": _TASK.replace("DATA", "nothing.jsonl").encode(),
        "data in a folder": _TASK.replace("DATA", "base").encode(),
        "data that are no JSON": _TASK.replace("DATA", "text.txt").encode(),
        "data on the Web": _TASK.replace("DATA", "http://127.0.0.1:9/x").encode(),
        "no data": b"task: own\noutput_type: multiple_choice\n",
        "an unknown kind of data": _TASK.replace("json", "magic").encode(),
        "a name with a way out": _TASK.replace("own", "../../own").encode(),
        "a name that is a number": _TASK.replace("own", "7").encode(),
        "a million characters": b"task: " + b"x" * 10**6,
    }.items():  # fmt: skip

        def change(folder: Path, content: bytes = content) -> None:
            places_taken("pipe")["a pipe"](folder)
            (folder / "own.yaml").write_bytes(content)

        yield Case(f"a task file, {name}", change, task)
    for name, change in places_taken("own.yaml").items():
        yield Case(f"the task file is {name}", change, task, ("own.yaml",))
    for key, value in itertools.product(
        ("output_type", "test_split", "metric_list", "doc_to_choice", "num_fewshot",
         "generation_kwargs", "filter_list", "repeats", "dataset_kwargs", "group"),
        (-1, 10**9, "x", [], {"x": 1}, None, [[1]], 1.5, True),
    ):  # fmt: skip

        def bend(folder: Path, key: str = key, value: Any = value) -> None:
            (folder / "d.jsonl").write_text('{"a": "one two"}\n' * 3)
            lines = [
                line
                for line in _TASK.replace("DATA", str(folder / "d.jsonl")).splitlines()
                if not line.startswith(key)
            ]
            lines.append(f"{key}: {json.dumps(value)}")
            (folder / "own.yaml").write_text("\n".join(lines))

        said = f"a task whose {key} is {json.dumps(value)}"
        yield Case(said, bend, task, (), harmless=True)
