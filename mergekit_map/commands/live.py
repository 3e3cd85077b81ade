"""The report of a running search as a page that follows it, on this machine alone.

Served are one page around the report, the report, and how far the search is; all under
a name that nobody can guess, and to whoever asks this machine by its own name alone, so
that no page of another site can read it. The report is made by a process of its own,
which the search does not notice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import click

from mergekit_map.commands.showing import shown
from mergekit_map.leftovers import scratch_folder
from mergekit_map.results.run_folder import RunFolder

_HOSTS = {"127.0.0.1", "localhost"}
_NOTHING = "default-src 'none'"
_LOOK = 1.0  # seconds between two looks at the log
_SHARE = 3  # a page takes at most one part in so many of the time
_LAST_LOOK = 4.0  # seconds that a browser has to fetch the last page


@contextmanager
def serving_live(run: Path) -> Iterator[None]:
    """Serve the report of a search while it goes on, if --live asks for it."""
    if not shown().live:
        yield
        return
    with scratch_folder() as folder:
        page = LivePage(run, folder)
        with page.served() as address:
            click.echo(f"live report: {address}", err=True)
            yield


class LivePage:
    """Makes the report anew when the log has grown, and serves it."""

    def __init__(self, run: Path, folder: Path):
        self._run, self._page = RunFolder(run), folder / "report.html"
        self._token = secrets.token_urlsafe(24)
        self._seen: tuple[int, bool] = (0, False)  # lines, whether it is finished
        self._over = threading.Event()
        self.said = "nothing is measured yet"

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve until the end, and once more what was found by then."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        threads = [
            threading.Thread(target=target, daemon=True)
            for target in (server.serve_forever, self._follow)
        ]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{self._token}/"
        finally:
            self._over.set()
            threads[1].join()
            if self.refresh():
                time.sleep(_LAST_LOOK)
            server.shutdown()
            server.server_close()

    def refresh(self) -> bool:
        """Make the report anew if there is something new; tell whether it was made."""
        now = _lines(self._run.log), self._run.manifest.exists()
        if now == self._seen or not now[0]:
            return False
        command = [sys.executable, "-m", "mergekit_map.cli", "report"]
        command += [str(self._run.path), "--out", str(self._page)]
        made = subprocess.run(command, check=False, capture_output=True, text=True)
        self._seen = now
        lines = made.stderr.strip().splitlines() or [""]
        if made.returncode:
            self.said = lines[-1].removeprefix("error: ")
            return False
        told = [line for line in lines if " merges measured" in line]
        self.said = told[-1] if told else "the search is finished"
        return True

    def _follow(self) -> None:
        wait = _LOOK
        while not self._over.wait(wait):
            started = time.monotonic()
            self.refresh()
            wait = max(_LOOK, (_SHARE - 1) * (time.monotonic() - started))

    def answer(self, path: str, host: str) -> tuple[HTTPStatus, str, bytes, str]:
        """Give status, kind, content and policy of what is asked for."""
        name = host.rsplit(":", 1)[0] if ":" in host else host
        token, _, what = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self._token.encode())
        if not known or name not in _HOSTS:
            return HTTPStatus.FORBIDDEN, "text/plain", b"forbidden\n", _NOTHING
        if what == "":
            page, policy = _around()
            return HTTPStatus.OK, "text/html", page, policy
        if what == "state":
            state = {"said": self.said, "version": _version(self._page)}
            content = json.dumps(state).encode()
            return HTTPStatus.OK, "application/json", content, _NOTHING
        if what == "report" and self._page.exists():
            # Its own policy stands in it; this one lets it be framed here alone.
            policy = "frame-ancestors 'self'"
            return HTTPStatus.OK, "text/html", self._page.read_bytes(), policy
        return HTTPStatus.NOT_FOUND, "text/plain", b"not found\n", _NOTHING

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        live = self

        class Handler(BaseHTTPRequestHandler):
            server_version, sys_version = "mergekit-map", ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                found = live.answer(path, self.headers.get("Host", ""))
                status, kind, content, policy = found
                self.send_response(status)
                for name, value in {
                    "Content-Type": f"{kind}; charset=utf-8",
                    "Content-Length": str(len(content)),
                    "Content-Security-Policy": policy,
                    "Cache-Control": "no-store",
                    "Referrer-Policy": "no-referrer",
                    "X-Content-Type-Options": "nosniff",
                    "Cross-Origin-Resource-Policy": "same-origin",
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Keep the terminal for the search."""

        return Handler


def _around() -> tuple[bytes, str]:
    """Give the page around the report, and what it may do."""
    text = (files("mergekit_map.commands") / "live.html").read_text(encoding="utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = hashlib.sha256(script.encode()).digest()
    known = base64.b64encode(digest).decode()
    return text.encode(), (
        f"default-src 'none'; script-src 'sha256-{known}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _lines(log: Path) -> int:
    try:
        return log.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _version(page: Path) -> int | None:
    return page.stat().st_mtime_ns if page.exists() else None
