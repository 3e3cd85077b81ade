"""Every text that a user or a stranger can set, as markup and script, in a browser.

Each text goes into a run folder, which the program then reads and makes a page of. The
page is opened *without* its policy, so that it is the escaping that has to hold:
nothing runs, is asked for or becomes an element, and the text is shown letter by
letter. One page has a few kinds of markup in all places, one after the other; what ran
says where it came from. Then, under its policy, scripts on the page try to send
something away.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import evil_folders as evil
import page_judge
from attack import Attack, Limits, command, held
from tiny_models import scratch

# N is the number of the place, X an address that nobody answers.
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
    for number, place in enumerate({p: 0 for of in evil.PAGES.values() for p in of})
}
NAMES = {"name of the folder", "local model", "adapter", "revision"}
JUDGE = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def attacks(_: int) -> Iterator[Attack]:
    """Try all markup in all places of each page; then all ways to send something."""
    for page, places in evil.PAGES.items():
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
    if place not in evil.UNSEEN[page] and not _is_shown(put(name, place), place, text):
        own.append(f"{put(name, place)!r} is not shown letter by letter")
    return "; ".join(own)


def _is_shown(wanted: str, place: str, text: str) -> bool:
    if place in NAMES:
        wanted = evil.as_name(wanted)
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


def _made(page: str, text: evil.Text, folder: Path) -> Path:
    path = folder / f"{page}.html"
    if page == "card":
        path.write_text(evil.as_html(evil.card(folder, text)))
    elif page == "notebook":
        path.write_text(evil.notebook(folder, text))
    else:
        names = ("one", "two") if page == "fronts" else ("one",)
        runs = [evil.evil_run(folder / name, text) for name in names]
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
