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
import multiprocessing
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import page_judge
from attack import Attack, Limits, command, held
from evil_folders import (
    CARD,
    FRONTS,
    NOTEBOOK,
    REPORT,
    UNSEEN,
    Text,
    as_html,
    as_name,
    evil_run,
)
from evil_folders import card as evil_card
from evil_folders import notebook as evil_notebook

# N is the number of the place, X an address that nobody answers.
MARKUP = {
    "script": "<script>harmed(N)</script>",
    "end of script": "</script><script>harmed(N)</script>",
    "end of title and style": "</title></style></textarea><script>harmed(N)</script>",
    "picture": "<img src=x onerror=harmed(N)>",
    "vector picture": "<svg onload=harmed(N)>",
    "end of an attribute": '"><img src=x onerror=harmed(N)>',
    "attribute": "' autofocus tabindex=0 onfocus=harmed(N) x='",
    "link": '<a href="javascript:harmed(N)">N</a>',
    "link of Markdown": "[N](javascript:harmed(N))",
    "picture of Markdown": "![N](http://X/N.png)",
    "link by reference": "[N]: http://X/N.png",
    "address by itself": "<http://X/N>",
    "TeX": "$\\href{javascript:harmed(N)}{N}$ $$N$$",
    "frame": "<iframe srcdoc='<script>parent.harmed(N)</script>'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://X/N'>",
    "style sheet": "<link rel=stylesheet href=http://X/N.css>",
    "style": "<style>@import 'http://X/N';</style>",
    "base": "<base href=http://X/N/>",
    "form": "<form action=http://X/N><button autofocus>N</button></form>",
    "template": "%{x} {{constructor.constructor('harmed(N)')()}} ${harmed(N)} N",
    "entities": "&lt;img src=x onerror=harmed(N)&gt; &#60;b&#62;N",
    "fence": "``` ~~~ N ```` <img src=x onerror=harmed(N)>",
    "table": "| N | <img src=x onerror=harmed(N)> |\\| N |",
    "heading": "# N *a* _b_ **c** ~~d~~ `e` - f > g",
    "chart markup": "<b>N</b><br><a href='http://X/N' target=_top>N</a><sup>N</sup>",
    "YAML": "N: {a: &b [*b]} # - ? | > %TAG !!python/object/apply:os.system",
    "quotes": "'N\" `N` \\ \\\\ \\u003cscript\\u003e \\x3cb\\x3e",
    "names of JavaScript": "__proto__ N constructor",
    "comment": "<!-- N <script> --!>",
    "long": "N" + "w<b>" * 300,
}
TOGETHER = 3  # kinds on a page
PAGES = {"report": REPORT, "fronts": FRONTS, "notebook": NOTEBOOK, "card": CARD}
READY = {
    "report": "#front-chart .main-svg",
    "fronts": "#front-chart .main-svg",
}
NAMES = {"name of the folder", "local model", "adapter", "revision"}
JUDGE = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def attacks(seed: int) -> Iterator[Attack]:
    """Try all markup in all places of each page; then all ways to send something."""
    del seed
    for page, places in PAGES.items():
        for name in MARKUP:
            for place in places:
                if place in NAMES and name != _group(name)[0]:
                    continue  # a name of a folder has no room for several
                yield Attack(
                    f"{page}: {name} as {place}",
                    functools.partial(_holds, page, name, place),
                )
    for number, page in enumerate(READY):
        for name, script in page_judge.VECTORS.items():
            attempt = functools.partial(_sends, page, script, 1000 * number)
            yield Attack(f"{page}: send by {name}", attempt)


def put(name: str, place: str) -> str:
    """Give what is put into a place; its number there is the place's own."""
    some = _group(name)[: 1 if place in NAMES else None]
    text = " ".join(MARKUP[one] for one in some)
    return text.replace("N", _number(place)).replace("X", "127.0.0.1:9")


def _group(name: str) -> tuple[str, ...]:
    """Give the kinds of markup that share a page with one."""
    every = list(MARKUP)
    start = every.index(name) // TOGETHER * TOGETHER
    return tuple(every[start : start + TOGETHER])


def _number(place: str) -> str:
    return str(9000 + list(dict.fromkeys([*REPORT, *CARD])).index(place))


def _holds(page: str, name: str, place: str, folder: Path) -> str:
    """Say what is wrong with a page; what came from other places is theirs."""
    del folder
    said, problems, text = _seen(page, _group(name)[0])
    if said:
        return said
    told = {p: set(re.findall(r"90\d\d", p)) for p in problems}
    own = [p for p, of in told.items() if not of or _number(place) in of]
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
    with tempfile.TemporaryDirectory(prefix="strings-") as scratch:
        folder = Path(scratch)
        try:
            path, said = _made(page, functools.partial(put, name), folder)
        except ValueError as error:  # refused as it was read
            return (f"{type(error).__name__}: {error}", (), "")
        if said or path is None:
            return said, (), ""
        ready = READY.get(page, "body")
        problems, text = JUDGE.submit(page_judge.look, path, ready).result()
    return "", tuple(problems), text


def _made(page: str, text: Text, folder: Path) -> tuple[Path | None, str]:
    path = folder / f"{page}.html"
    if page == "card":
        path.write_text(as_html(evil_card(folder, text)))
        return path, ""
    if page == "notebook":
        path.write_text(evil_notebook(folder, text))
        return path, ""
    runs = [evil_run(folder / "one", text)]
    if page == "fronts":
        runs.append(evil_run(folder / "two", text))
    outcome = command(["report", *runs, "--out", path], folder, Limits(seconds=120))
    if said := held(outcome, seconds=120):
        return None, said
    return (path, "") if path.exists() else (None, f"refused: {outcome.err[-300:]}")


@functools.cache
def _harmless(page: str) -> Path:
    """Make a page of the folder as it is, kept while this process lives."""
    folder = Path(_KEPT.name) / page
    runs = [evil_run(folder / str(n), lambda place: place) for n in range(2)]
    path = folder / "page.html"
    words = ["report", *(runs if page == "fronts" else runs[:1]), "--out", path]
    outcome = command(words, folder)
    assert path.exists(), outcome.said
    return path


_KEPT = tempfile.TemporaryDirectory(prefix="strings-kept-")


def _sends(page: str, script: str, number: int, folder: Path) -> str:
    del folder
    number += 1 + list(page_judge.VECTORS.values()).index(script)
    told = JUDGE.submit(page_judge.send, _harmless(page), READY[page], script, number)
    return "; ".join(told.result())
