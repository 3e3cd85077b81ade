"""Every text that a user or a stranger can set, as markup and script, in a browser.

Each text goes into a copy of the run folder of ``tests/data/run_v1``, which the program
then reads and makes a page of. The
page is opened *without* its policy, so that it is the escaping that has to hold:
nothing runs, is asked for or becomes an element, and the text is shown letter by
letter. One page has a few kinds of markup in all places, one after the other; what ran
says where it came from. Then, under its policy, scripts on the page try to send
something away.
"""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import page_judge
import yaml
from attack import Attack, Limits, command, held
from markdown_it import MarkdownIt
from tiny_models import scratch

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask
from mergekit_map.hub.card import MergeRecord, write_card
from mergekit_map.results.front import Front
from mergekit_map.workflows.results import folded, front_html

RUN = Path(__file__).resolve().parents[2] / "tests" / "data" / "run_v1" / "run"
Text: TypeAlias = Callable[[str], str]  # what to put into a place, by its name

# Names that stand in several files; each is changed in all of them.
_NAMES = {
    "first task": "greeting",
    "second task": "code",
    "first coefficient": "greeting-model",
    "second coefficient": "code-model",
    "model": "tiny/greeting-model",
    "base model": "tiny/base",
    "method": "ties",
}
_TASKS = ("first task", "second task", "first coefficient", "second coefficient")
PAGES = {
    "report": (
        *(*_NAMES, "unit", "kind of fit", "label", "label of the soup", "reason"),
        *("name of a package", "version of a package", "verdict"),
        *("version of this program", "version of Python", "error of a task"),
        *("comment of a recipe", "name of the folder"),
    ),
    "fronts": (*_TASKS, "unit", "method", "name of the folder"),
    "notebook": (*_TASKS, "unit", "label", "reason", "comment of a recipe"),
    "card": (
        *(*_TASKS, "unit", "label", "reason", "name of the checkpoint", "local model"),
        *("adapter", "revision", "licence", "name of a licence", "link of a licence"),
        *("language", "text of a task", "lm-eval task", "metric", "difference"),
        "command",
    ),
}

# Places whose text is read, and is on a page in its data alone, or not at all.
UNSEEN = {
    "report": {"verdict"},
    "fronts": {"second coefficient"},
    "notebook": {"second coefficient"},
    "card": {
        *("link of a licence", "language", "text of a task", "lm-eval task", "metric"),
        *("second coefficient", "command"),  # of a path the name alone is shown
    },
}
# A *place* is where somebody may put a text. N is the number of the place, which tells
# it apart, X an address that nobody answers.
MARKUP = {
    "script": "<script>harmed(N)</script>",
    "end of script": "</script><script>harmed(N)</script>",
    "picture": "<img src=x onerror=harmed(N)>",
    "end of an attribute": '"><img src=x onerror=harmed(N)>',
    "attribute": "' autofocus tabindex=0 onfocus=harmed(N) x='",
    "link": '<a href="javascript:harmed(N)">N</a>',
    "link of Markdown": "[N](javascript:harmed(N))",
    "link by reference": "[N]: http://X/N.png",
    "TeX": "$\\href{javascript:harmed(N)}{N}$ $$N$$",
    "frame": "<iframe srcdoc='<script>parent.harmed(N)</script>'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://X/N'>",
    "style sheet": "<link rel=stylesheet href=http://X/N.css>",
    "base": "<base href=http://X/N/>",
    "entities": "&lt;img src=x onerror=harmed(N)&gt; &#60;b&#62;N",
    "fence": "``` ~~~ N ```` <img src=x onerror=harmed(N)>",
    "table": "| N | <img src=x onerror=harmed(N)> |\\| N |",
    "chart markup": "<b>N</b><br><a href='http://X/N' target=_top>N</a><sup>N</sup>",
    "YAML": "N: {a: &b [*b]} # - ? | > %TAG !!python/object/apply:os.system",
    "quotes": "'N\" `N` \\ \\\\ \\u003cscript\\u003e \\x3cb\\x3e",
    "names of JavaScript": "__proto__ N constructor",
    "long": "N" + "w<b>" * 300,
}
TOGETHER = 3  # kinds on a page
READY = dict.fromkeys(("report", "fronts"), "#front-chart .main-svg")
NUMBERS = {
    place: f"{9000 + number}"
    for number, place in enumerate({p: 0 for of in PAGES.values() for p in of})
}
NAMES = {"name of the folder", "local model", "adapter", "revision"}
JUDGE = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def attacks(_: int) -> Iterator[Attack]:
    """Try all markup in all places of each page; then all ways to send something."""
    for page, places in PAGES.items():
        for name, place in itertools.product(MARKUP, places):
            if place in NAMES and name != _group(name)[0]:
                continue  # a name of a folder has no room for several
            attempt = functools.partial(_holds, page, name, place)
            yield Attack(f"{page}: {name} as {place}", attempt)
    ways = itertools.product(READY, page_judge.VECTORS.items())
    for number, (page, (name, script)) in enumerate(ways, start=1):
        attempt = functools.partial(_sends, page, script, number)
        yield Attack(f"{page}: send by {name}", attempt)


def put(name: str, place: str) -> str:
    """Give what is put into a place; its number there is the place's own."""
    some = _group(name)[: 1 if place in NAMES else None]
    text = " ".join(MARKUP[one] for one in some)
    return text.replace("N", NUMBERS[place]).replace("X", "127.0.0.1:9")


def _group(name: str) -> tuple[str, ...]:
    """Give the kinds of markup that share a page with one."""
    every = list(MARKUP)
    start = every.index(name) // TOGETHER * TOGETHER
    return tuple(every[start : start + TOGETHER])


def _holds(page: str, name: str, place: str, _: Path) -> str:
    """Say what is wrong with a page; what came from other places is theirs."""
    said, problems, text = _seen(page, _group(name)[0])
    if said:
        return said
    told = {p: set(re.findall(r"90\d\d", p)) for p in problems}
    own = [p for p, of in told.items() if not of or NUMBERS[place] in of]
    if place not in UNSEEN[page] and not _is_shown(put(name, place), place, text):
        own.append(f"{put(name, place)!r} is not shown letter by letter")
    return "; ".join(own)


def _is_shown(wanted: str, place: str, text: str) -> bool:
    if place in NAMES:
        wanted = as_name(wanted)
    # A part between backquotes is shown as code.
    there, squeezed = (" ".join(t.replace("`", "").split()) for t in (text, wanted))
    return squeezed in there or squeezed.replace("'", "''") in there  # as in YAML


@functools.cache
def _seen(page: str, name: str) -> tuple[str, tuple[str, ...], str]:
    """Make the page with a kind of markup everywhere; what the browser saw, once."""
    with tempfile.TemporaryDirectory(prefix="strings-") as kept:
        try:
            path = _made(page, functools.partial(put, name), Path(kept))
        except ValueError as error:  # refused, as it was read or by the command
            return (f"{type(error).__name__}: {error}", (), "")
        ready = READY.get(page, "body")
        problems, text = JUDGE.submit(page_judge.look, path, ready).result()
    return "", tuple(problems), text


def _made(page: str, text: Text, folder: Path) -> Path:
    path = folder / f"{page}.html"
    if page == "card":
        path.write_text(as_html(card(folder, text)))
    elif page == "notebook":
        path.write_text(notebook(folder, text))
    else:
        names = ("one", "two") if page == "fronts" else ("one",)
        runs = [evil_run(folder / name, text) for name in names]
        outcome = command(["report", *runs, "--out", path], folder, Limits(120))
        if (said := held(outcome, seconds=120)) or not path.exists():
            raise ValueError(said or f"refused: {outcome.err[-300:]}")
    return path


@functools.cache
def _harmless(page: str) -> Path:
    """Make a page of the folder as it is, kept while this process lives."""
    return _made(page, lambda place: place, scratch(f"strings-{page}-"))


def _sends(page: str, script: str, number: int, _: Path) -> str:
    told = JUDGE.submit(page_judge.send, _harmless(page), READY[page], script, number)
    return "; ".join(told.result())


def evil_run(folder: Path, text: Text) -> Path:
    """Copy the run folder, with a text in every place."""
    run = folder / as_name(text("name of the folder"))
    shutil.copytree(RUN, run)
    for path in run.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    named = {old: text(place) for place, old in _NAMES.items()}
    for path in run.glob("*.json"):
        content = renamed(json.loads(path.read_text()), named)
        if path.name == "front.json":
            _change_front(content, text, named)
        if path.name == "manifest.json":
            content["mergekit_map"] = text("version of this program")
            content["python"] = text("version of Python")
            package, version = text("name of a package"), text("version of a package")
            content["packages"][package] = version
        path.write_text(json.dumps(content))
    log = run / "evaluations.jsonl"
    lines = [renamed(json.loads(line), named) for line in log.read_text().splitlines()]
    failed = {**lines[-1], "error": text("error of a task"), "value": None}
    coefficients = dict.fromkeys(failed["coefficients"], 0.123)
    failed |= {"coefficients": coefficients, "stderr": None}
    log.write_text("".join(json.dumps(line) + "\n" for line in [*lines, failed]))
    for path in [*run.glob("recipes/*.yml"), run / "recipe.yml"]:
        recipe = renamed(yaml.safe_load(path.read_text()), named)
        comment = f"# {text('comment of a recipe')}\n"
        dumped = yaml.safe_dump(recipe, allow_unicode=True, width=100_000)
        path.write_text(comment + dumped)
    return run


def renamed(content: Any, named: Mapping[str, str]) -> Any:
    """Change names wherever they are, keys and values."""
    if isinstance(content, dict):
        return {named.get(k, k): renamed(v, named) for k, v in content.items()}
    if isinstance(content, list):
        return [renamed(item, named) for item in content]
    return named.get(content, content) if isinstance(content, str) else content


def _change_front(front: Any, text: Text, named: Mapping[str, str]) -> None:
    about = next(iter(front["tasks"].values()))
    about["unit"] = text("unit")
    about["fit"]["kind"] = text("kind of fit")
    front["reason"] = text("reason")
    for anchor in front["anchors"]:
        if anchor["label"] == named["code-model"]:
            anchor["label"] = text("label")
        if anchor["label"] == "soup":
            anchor["label"] = text("label of the soup")
    counts = {"evaluations": 7, "allowed": 7, "hope": 0.1}
    front["ending"] = {**counts, "trusted": True}
    numbers = {"end": 1.0, "beyond": 1.2, "gain": 0.2}
    front["border"] = [{"coefficient": text("first coefficient"), **numbers}]


def as_name(text: str) -> str:
    """Take out of a text what no name of a folder, or reference of a model, holds."""
    return text.translate({ord("/"): "\u2215", ord("@"): "a", ord("+"): "t"})[:120]


def as_html(markdown: str) -> str:
    """Make HTML of a card, markup in it left as it is; the Hub takes much of it out."""
    body = markdown.split("\n---\n", 1)[1] if markdown.startswith("---\n") else markdown
    made = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return _around(made.render(body))


def card(folder: Path, text: Text) -> str:
    """Write a card as `merge` does, with a text in every place."""
    local, other = folder / as_name(text("local model")), folder / "other"
    about = {"license": "other", "license_name": text("name of a licence")}
    about |= {"license_link": text("link of a licence"), "language": [text("language")]}
    for model, metadata in ((local, about), (other, {"license": text("licence")})):
        model.mkdir()
        (model / "README.md").write_text(f"---\n{yaml.safe_dump(metadata)}---\n")
    out, adapter = folder / "out", folder / "adapters" / as_name(text("adapter"))
    out.mkdir()
    (out / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    adapter.mkdir(parents=True)
    hub = f"tiny/base@{as_name(text('revision'))}+{adapter}"
    recipe = {
        "merge_method": "ties",
        "base_model": str(other),
        "models": [{"model": str(local)}, {"model": hub}],
    }
    run = evil_run(folder / "of", text)
    front = Front.model_validate_json((run / "front.json").read_text())
    texts = {"perplexity": {"file": f"{text('text of a task')}.txt"}}
    tasks = [
        LmEvalTask(lm_eval=text("lm-eval task"), metric=text("metric")),
        PerplexityTask.model_validate(texts),
    ]
    record = MergeRecord(
        text("name of the checkpoint"),
        yaml.safe_dump(recipe, sort_keys=False),
        f"mergekit-yaml {shlex.quote(text('command'))} OUT",
        front,
        dict(zip(front.tasks, tasks, strict=True)),
        text("difference"),
    )
    write_card(out, record)
    return (out / "README.md").read_text()


def notebook(folder: Path, text: Text) -> str:
    """Give what a notebook shows of a front."""
    run = evil_run(folder, text)
    front = Front.model_validate_json((run / "front.json").read_text())
    recipe = (run / "recipes" / "000.yml").read_text()
    shown = front_html(front, text("first task")) + folded("recipe.yml", recipe)
    return _around(shown)


def _around(body: str) -> str:
    head = '<!doctype html><meta charset="utf-8"><title>without a policy</title>'
    return f"{head}<body>{body}"
