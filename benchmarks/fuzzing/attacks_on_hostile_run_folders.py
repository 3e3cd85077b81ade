"""Run folders of a stranger: names, links and numbers that lead out, or run something.

Beside the folder lie files that are none of its business. No command may read one of
them into what it says, writes or uploads, change one, run code that the folder names,
or say a line that runs something when it is typed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attack import Attack, Outcome, first, held, shown
from hub_server import TOKEN, Hub
from small_search import PUSH, SEARCH, changes, contents, hub_of, project, run_in

CANARY = "the canary that sings to nobody 7f3a91"
RAN = "it-ran"
SELECT, REPORT, MERGE = "select run", "report run", "merge run merged"
BETWEEN = "select run --prefer greeting=1,code=7"
READING = (SELECT, BETWEEN, REPORT, PUSH)
RUNNING = (
    *(MERGE, "compare run", "inspect run/config.yml", "search run/config.yml run"),
)

# What a stranger may put where a text is.
TEXTS = {
    "a path up": "../../canary.txt",
    "an absolute path": "{outside}/canary.txt",
    "a file URL": "file://{outside}/canary.txt",
    "a home": "~/canary.txt",
    "a command": f"x'; touch {RAN}; '",
    "a command in backquotes": f"`touch {RAN}`",
    "an option": "--trust-run",
    "a script": f"<script>open('{RAN}')</script>",
    "the end of a script": "</script><img src=x onerror=alert(1)>",
    "an escape": "\x1b]0;evil\x07\x1b[2J",
    "a line break": f"x\ntouch {RAN}",
    "a turn of direction": "\u202egnp.exe",
    "a tag of YAML": f"!!python/object/apply:os.system ['touch {RAN}']",
    "a template": f"{{{{ cycler.__init__.__globals__.os.popen('touch {RAN}') }}}}",
    "a markup of rich": "[bold red]x[/] [link=file:///etc/passwd]y[/link]",
    "a long one": "a" * 100_000,
    "a format": "{0.__class__} %s %n",
    "a zero byte": "a\x00b",
}
TEXT_KEYS = {
    "front.json": (
        "reason tasks.greeting.unit anchors.0.label surrogate "
        "tasks.greeting.fit.kind holdout.merges.0.label"
    ),
    ".state/manifest.json": (
        "directory merge mergekit_map definitions.greeting identity.device "
        "identity.method identity.configuration.base_model"
    ),
}
CODE = {
    "a python task": {"python": f"evil:{RAN}", "direction": "maximize"},
    "a python task by a path": {"python": f"../evil.py:{RAN}", "direction": "maximize"},
    "an lm-eval task of a file": {"lm_eval": "evil.yml"},
    "unsafe code of lm-eval": {"lm_eval": "humaneval", "confirm_run_unsafe_code": True},
}
LINKS = ("canary.txt", "", "nowhere", "../run")  # to a file, a folder, nothing, a loop
LINKED = (
    *("recipes/000.yml", "recipes/018.yml", "recipes", "recipe.yml", "front.json"),
    *("front.csv", "front.png", "evaluations.jsonl", "config.yml", "report.html"),
    *(
        ".state",
        ".state/manifest.json",
        ".state/samples/link",
        ".state/.mergekit-map.lock",
    ),
    *(".state/.choosing.lock", "compare", "extra.txt"),
)
SECRET = f"hf_{'A' * 34}"
# Texts beside what is uploaded, and what a stranger may have left in them.
ADDED = {
    "run/compare/tables.md": "| a |\n{}\n",
    "run/report.html": "<html>{}</html>\n",
    "run/front.csv": "point,{}\n",
    "out/notes.md": "{}\n",
    "out/LICENSE-of-data": "{}\n",
    "out/modeling.py": "# {}\n",
    "out/more.png": "\x89PNG {}\n",
}
LEFT = {
    "a token": SECRET,
    "the token of this login": TOKEN,
    "a path of the folder": "{outside}/canary.txt",
    "a path in a link": "file://{outside}/canary.txt",
    "a home": "/home/somebody/models/secret",
}
# Files of names that nobody gives.
NAMES = [
    *("a\nb", "a\x1b[2Jb", "-rf", os.fsdecode(b"a\xff\xfe"), "a" * 255, "..\\..\\a"),
    *("a\u202egnp.b", "README.md", ".git", SECRET, "[link=file:///etc/passwd]a["),
    "%2e%2e%2fa?b#c",
]
MODELS = [
    *("/", "", ".", "../..", "(((a|b)*)*)*[", "/a" * 2000, "{outside}", "~", "\x1b[2J"),
    *("a+b+c+/etc+d", "/etc@main"),
]
HUGE = (
    *("run/front.png", "run/compare/big", "run/report.html", "run/recipe.yml"),
    *("run/recipes/000.yml", "run/front.json"),
)


def attacks(_: int) -> Iterator[Attack]:
    """List them all; they are the same for every seed."""
    yield from _published()
    keys = [(name, key) for name, of in TEXT_KEYS.items() for key in of.split()]
    for turn, (name, key) in enumerate(keys, start=1):
        for number, (way, text) in enumerate(TEXTS.items()):
            words = READING[(turn + number) % len(READING)]
            change = partial(_put, f"run/{name}", key.split("."), text)
            yield _attack(f"{name}: {key} is {way}", change, words)
    for (way, content), words in itertools.product(CODE.items(), RUNNING):
        yield _attack(way, partial(_code, content), words)
    turns = itertools.cycle((*READING, SEARCH, MERGE, SELECT))  # not in step with links
    for place, target in itertools.product(LINKED, LINKS):
        title = f"{place} is a link to {target or 'a folder'}"
        yield _attack(title, partial(_link, place, target), next(turns), refused=True)


def _published() -> Iterator[Attack]:
    """Let what goes along to the Hub hold what nobody looked for."""
    for (name, text), (kind, left) in itertools.product(ADDED.items(), LEFT.items()):
        change = partial(_add, name, text.format(left))
        yield _attack(f"{name} holds {kind}", change, PUSH, kept=left)
    for name, place in itertools.product(NAMES, ("run/recipes", "out")):
        change = partial(_add, f"{place}/{name}", "x\n")
        yield _attack(f"a file in {place} is called {shown(name)}", change, PUSH)
    for model in MODELS:
        key = ("identity", "models", model)
        change = partial(_put, "run/.state/manifest.json", key, "0" * 16)
        yield _attack(f"a model is {shown(model)}", change, PUSH)
    for name in HUGE:
        yield _attack(f"{name} is a terabyte of zeros", partial(_grow, name), PUSH)
    yield _attack("3,000 files beside a checkpoint", _many, PUSH)


def _attack(
    title: str,
    change: Callable[[Path, Path], None],
    words: str,
    *,
    refused: bool = False,
    kept: str = "",  # what may not go to the Hub
) -> Attack:
    def attempt(folder: Path) -> str:
        here, outside = project(folder / "here"), folder / "outside"
        _dismantle(here, outside)
        change(here, outside)
        before = contents(folder)
        outcome, hub = run_in(here, words), hub_of(here)
        uploaded, hosts = _uploaded(hub), hub.tokens
        secret = kept.replace("{outside}", str(outside)).encode()
        return first(
            held(outcome),
            "it was not refused" if refused and outcome.code != 2 else "",
            _escaped(folder, outcome, before, uploaded),
            _typed(here, outcome),
            "what was left in it went along" if kept and secret in uploaded else "",
            f"the token was shown to {hosts}" if hosts > {"127.0.0.1"} else "",
        )

    return Attack(f"{title}, {words}", attempt)


def _dismantle(here: Path, outside: Path) -> None:
    """Lay out what is none of its business; the folder was not made here."""
    outside.mkdir()
    evil = f"def {RAN.replace('-', '_')}(*_):\n    pass\nopen('{here}/{RAN}', 'w')\n"
    for path in (outside, here.parent, here):
        (path / "canary.txt").write_text(f"merge_method: linear # {CANARY}\n")
        (path / "evil.py").write_text(evil)
    (here / "evil.yml").write_text(f"task: evil\nx: !function evil.{RAN}\n")


def _put(name: str, key: Iterable[str], text: str, here: Path, outside: Path) -> None:
    path = here / name
    inner = content = json.loads(path.read_text())
    *parents, last = (part.replace("{outside}", str(outside)) for part in key)
    for part in parents:
        inner = inner[int(part) if isinstance(inner, list) else part]
    place = int(last) if isinstance(inner, list) else last
    inner[place] = text.replace("{outside}", str(outside))
    path.write_text(json.dumps(content))


def _add(name: str, text: str, here: Path, outside: Path) -> None:
    path = here / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("{outside}", str(outside)))


def _grow(name: str, here: Path, outside: Path) -> None:
    _add(name, "", here, outside)
    os.truncate(here / name, 1 << 40)


def _many(here: Path, outside: Path) -> None:
    for number in range(3000):
        _add(f"out/{number}.md", f"{number}\n", here, outside)


def _code(content: dict[str, Any], here: Path, _: Path) -> None:
    config = here / "run" / "config.yml"
    new = f"    code: {json.dumps(content)}"
    config.write_text(re.sub(r"(?m)^    code:.*$", lambda _: new, config.read_text()))


def _link(place: str, target: str, here: Path, outside: Path) -> None:
    path = here / "run" / place
    if path.is_dir():
        path.rename(here / "away")
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside / target)


def _uploaded(hub: Hub) -> bytes:
    """Join all that went to the Hub."""
    files = [f for known in hub.repositories.values() for f in known.files.values()]
    return b"".join(files)


def _escaped(
    folder: Path, outcome: Outcome, before: dict[str, bytes], uploaded: bytes
) -> str:
    """Say what got out of the folder, or was changed outside of it."""
    after = contents(folder)
    known = {p for p in before if "canary" in p}
    changed = changes(before, after)
    own = ("here/run", "here/merged", "here/home", "here/tmp")
    strayed = [path for path in changed if not path.startswith(own)]
    sung = [p for p in changed - known if CANARY.encode() in after.get(p, b"")]
    markup = (f"<script>open('{RAN}')".encode(), b"<img src=x onerror")
    pages = [p for p in after if p.endswith((".html", "README.md"))]
    return first(
        f"it ran: {RAN}" if any(folder.rglob(RAN)) else "",
        f"written outside: {strayed}" if strayed else "",
        f"read into {sung}" if sung else "",
        "said what it may not know" if CANARY in outcome.said else "",
        "uploaded what it may not know" if CANARY.encode() in uploaded else "",
        "uploaded a path of here" if str(folder).encode() in uploaded else "",
        *(f"markup in {p}" for p in pages if any(m in after[p] for m in markup)),
    )


def _typed(here: Path, outcome: Outcome) -> str:
    """Type the commands that were said: none may run anything but what it names."""
    commands = re.findall(r"^\s*((?:mergekit-|python |vllm ).*)$", outcome.out, re.M)
    if not commands:
        return ""
    programs = ("mergekit_map", "mergekit_yaml", "mergekit_multi", "python", "vllm")
    stubs = [f"{program}() {{ :; }}" for program in programs]
    script = "\n".join([*stubs, *commands]).replace("mergekit-", "mergekit_")
    subprocess.run(["bash", "-c", script], cwd=here, check=False, capture_output=True)
    return "a line that was said runs something" if (here / RAN).exists() else ""
