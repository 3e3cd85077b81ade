"""Hubs that answer nonsense, or nothing, and networks that are not there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeAlias

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler], None]

# What a push asks for: method and pattern of a path.
ASKED = {
    "who one is": ("GET", "whoami"),
    "the repository": ("GET", "/api/models/me/merged$"),
    "a check of the card": ("POST", "validate-yaml"),
    "a new repository": ("POST", "repos/create"),
    "how to upload": ("POST", "preupload"),
    "where to upload": ("POST", "objects/batch"),
    "an upload": ("PUT", "/large/"),
    "whether it came": ("POST", "/verify"),
    "a commit": ("POST", "/commit/"),
}
_KEYS = (
    *("name", "type", "id", "sha", "private", "siblings", "cardData", "url", "tags"),
    *("errors", "warnings", "files", "objects", "transfer", "actions"),
    *("commitUrl", "commitOid", "success", "error", "pullRequestUrl", "orgs"),
)


def _text(
    text: str | bytes, kind: str = "application/json", status: int = 200
) -> Answer:
    def answer(asked: BaseHTTPRequestHandler) -> None:
        content = text if isinstance(text, bytes) else text.encode()
        _begin(asked, status, {"Content-Type": kind, "Content-Length": len(content)})
        asked.wfile.write(content)

    return answer


def _of_all_keys(value: Any) -> Answer:
    return _text(json.dumps(dict.fromkeys(_KEYS, value)))


def _refusal(status: int, **headers: str) -> Answer:
    def answer(asked: BaseHTTPRequestHandler) -> None:
        _begin(asked, status, {"Content-Length": 0, **headers})

    return answer


def _cut_short(asked: BaseHTTPRequestHandler) -> None:
    _begin(asked, 200, {"Content-Length": 1000})
    asked.wfile.write(b'{"name": "me"')
    _hang_up(asked)


def _hang_up(asked: BaseHTTPRequestHandler) -> None:
    asked.close_connection = True
    asked.connection.close()


def _no_http(asked: BaseHTTPRequestHandler) -> None:
    asked.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    _hang_up(asked)


def _packed(asked: BaseHTTPRequestHandler) -> None:
    headers = {"Content-Length": 20, "Content-Encoding": "gzip"}
    _begin(asked, 200, headers)
    asked.wfile.write(gzip.compress(b"{}")[:10] + b"x" * 10)


def _to(place: str) -> Answer:
    def answer(asked: BaseHTTPRequestHandler) -> None:
        port = asked.server.server_address[1]  # type: ignore[attr-defined]
        there = place.format(port=port, path=asked.path)
        _begin(asked, 307, {"Location": there, "Content-Length": 0})

    return answer


def _begin(
    asked: BaseHTTPRequestHandler, status: int, headers: Mapping[str, Any]
) -> None:
    asked.send_response(status)
    for name, value in headers.items():
        asked.send_header(name, str(value))
    asked.end_headers()


ANSWERS: Mapping[str, Answer] = {
    "nothing": _text(""),
    "a page": _text("<html><body>Log in to this network</body></html>", "text/html"),
    "null": _text("null"),
    "a list": _text("[1]"),
    "a number": _text("7"),
    "a text": _text('"x"'),
    "an empty object": _text("{}"),
    "numbers for all": _of_all_keys(7),
    "texts for all": _of_all_keys("\x1b[2Jx"),
    "lists for all": _of_all_keys([[]]),
    "null for all": _of_all_keys(None),
    "objects for all": _of_all_keys({"a": {"b": 1}}),
    "deep lists": _text("[" * 100_000),
    "no UTF-8": _text(b'{"name": "\xff\xfe"}'),
    "half of it": _cut_short,
    "a closed connection": _hang_up,
    "no HTTP": _no_http,
    "what is no gzip": _packed,
    "itself, again and again": _to("{path}"),
    "another host": _to("http://localhost:{port}{path}"),
    "a file of this machine": _to("file:///etc/passwd"),
    "another scheme": _to("gopher://x"),
    "204": _refusal(204),
    "418": _refusal(418),
    "500": _refusal(500),
    "503": _refusal(503),
    "429, a day": _refusal(429, **{"Retry-After": "86400"}),
    # For so long huggingface_hub waits, whatever it says.
    "429, by another header": _refusal(429, RateLimit='"api";r=0;t=2'),
    "an error with a token": _text(
        '{"error": "hf_ThisIsTheTokenOfTheTestServer00"}', status=400
    ),
    "a long header": _refusal(400, **{"X-Error-Message": "a" * 60_000}),
    "control characters": _refusal(403, **{"X-Error-Message": "\x1b[2J\x07evil"}),
}
