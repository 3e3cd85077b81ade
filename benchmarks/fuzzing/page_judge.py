"""Looks at pages in a real browser, and says what they did that they must not.

A process of its own, with one browser for all pages: it reads a request a line on its
standard input, JSON, and answers each by a line. ``Judge`` is how others ask it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

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


class Judge:
    """The browser, as those who ask it see it; it starts when it is asked first."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Let it look at a page, and wait for what it saw."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self.stop)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the browser ended")
        found: dict[str, Any] = json.loads(answer)
        return found

    def stop(self) -> None:
        """Close the browser."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait(timeout=20)
            self._process = None


def main() -> None:
    """Answer requests until there are no more."""
    from browser import open_browser

    answer = {"look": look, "send": Sending()}
    with open_browser() as browser:
        for line in sys.stdin:
            request = json.loads(line)
            kind = request.pop("kind")
            try:
                found = answer[kind](browser, **request)
            except Exception as error:  # noqa: BLE001 - it is told who asked
                found = {"problems": [f"{type(error).__name__}: {error}"], "text": ""}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


def look(browser: Any, path: str, ready: str) -> dict[str, Any]:
    """Open a page without its policy, use it, and list what ran or was asked for."""
    context = browser.new_context(bypass_csp=True, offline=True)
    problems: list[str] = []
    address = Path(path).as_uri()
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
    return {"problems": sorted(set(problems)), "text": text}


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


class Sending:
    """A page under its own policy, in which scripts try to send something away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._page: Any = None
        self._path = ""
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

    def __call__(
        self, browser: Any, path: str, ready: str, script: str, number: int
    ) -> Mapping[str, Any]:
        """Run a script that tries to send, or lead away; say whether it could."""
        problems: list[str] = []
        address = Path(path).as_uri()
        if self._page is None or self._path != path or self._page.is_closed():
            self._open(browser, path, ready)
        page, self._path = self._page, path
        before = len(page.context.pages)
        there = f"127.0.0.1:{self._server.server_port}/{number}"
        self.asked.clear()
        with contextlib.suppress(Exception):
            page.evaluate(script.replace("THERE", there))
        page.wait_for_timeout(250)
        if any(f"/{number}" in path for path in self.asked):
            problems.append("something was sent")
        if page.url.partition("#")[0] != address:
            problems.append(f"the page went to {page.url[:80]}")
        if len(page.context.pages) != before:
            problems.append("a window was opened")
        if problems:
            page.context.close()
            self._page = None
        return {"problems": problems}

    def _open(self, browser: Any, path: str, ready: str) -> None:
        if self._page is not None:
            self._page.context.close()
        self._page = browser.new_context().new_page()
        self._page.on("dialog", lambda dialog: dialog.dismiss())
        self._page.goto(Path(path).as_uri(), timeout=180_000)
        self._page.wait_for_selector(ready, state="attached", timeout=180_000)


if __name__ == "__main__":
    main()
