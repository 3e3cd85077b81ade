"""A server on this machine that speaks the endpoints of the Hub.

It keeps repositories in memory, wants a token, takes all files in the commit itself
(which the Hub does of small ones) and can be told to fail. What was asked for is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

import huggingface_hub
import pytest
import yaml

TOKEN = "hf_ThisIsTheTokenOfTheTestServer00"
OWNER = "me"
LICENCES = {"apache-2.0", "mit", "llama3.1", "other"}


@dataclass
class Repository:
    """Files of a repository, as of its last commit."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)  # messages
    sha: str = "0" * 40

    def card(self) -> dict[str, Any]:
        text = self.files.get("README.md", b"").decode()
        match = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
        return yaml.safe_load(match[1]) if match else {}


@dataclass
class Hub:
    """What the server knows and what it was asked."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and path
    # Method and pattern of a path to the status that is answered.
    failures: dict[tuple[str, str], int] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)  # hosts that were shown the token

    def count(self, method: str, pattern: str) -> int:
        return sum(
            m == method and bool(re.search(pattern, p)) for m, p in self.requests
        )


@contextmanager
def serve() -> Iterator[Hub]:
    """Serve until the context is left."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = _Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def go_online(patch: pytest.MonkeyPatch, hub: Hub) -> None:
    """Let huggingface_hub in this process use a server."""
    patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    patch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    patch.setenv("HF_TOKEN", TOKEN)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A new server, for commands within this process."""
    huggingface_hub.utils.disable_progress_bars()
    with serve() as served:
        go_online(monkeypatch, served)
        yield served


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Say nothing of who hangs up, as one that is killed does."""


class _Refused(Exception):
    def __init__(self, status: int, message: str, code: str = "") -> None:
        self.status, self.message, self.code = status, message, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.state.requests.append((self.command, path))
        if self._logged_in():  # benchmarks/fuzzing asks
            self.state.tokens.add(self.headers.get("Host", "").rpartition(":")[0])
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._fail_if_told(path)
            for (method, pattern), answer in _ROUTES.items():
                match = re.fullmatch(pattern, path)
                if match and self.command in method.split():
                    answer(self, body, *match.groups())
                    return
            raise _Refused(404, f"no such endpoint: {self.command} {path}")
        except _Refused as refused:
            headers = {"X-Error-Message": refused.message, "X-Error-Code": refused.code}
            content = json.dumps({"error": refused.message}).encode()
            self._answer(content, refused.status, headers)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = _handle

    def _fail_if_told(self, path: str) -> None:
        for (method, pattern), status in self.state.failures.items():
            if method == self.command and re.search(pattern, path):
                # As unkind as a proxy that shows what it was sent.
                raise _Refused(status, f"refused {self.headers.get('Authorization')}")

    def _answer(
        self, content: bytes, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, content: Any, status: int = 200) -> None:
        self._answer(json.dumps(content).encode(), status)

    def _logged_in(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _must_be_logged_in(self) -> None:
        if not self._logged_in():
            raise _Refused(401, "Invalid credentials in Authorization header")

    def _repository(self, repo_id: str) -> Repository:
        repository = self.state.repositories.get(repo_id)
        if repository is None or (repository.private and not self._logged_in()):
            status = 404 if self._logged_in() else 401
            raise _Refused(status, "Repository not found", "RepoNotFound")
        return repository

    def _whoami(self, _: bytes) -> None:
        self._must_be_logged_in()
        self._json({"type": "user", "name": OWNER, "orgs": [{"name": "team"}]})

    def _create(self, body: bytes) -> None:
        self._must_be_logged_in()
        asked = json.loads(body)
        repo_id = f"{asked.get('organization') or OWNER}/{asked['name']}"
        private = asked.get("visibility", "public") == "private" or asked.get("private")
        self.state.repositories[repo_id] = Repository(private=bool(private))
        self._json({"url": f"{self.state.url}/{repo_id}", "name": repo_id})

    def _info(self, _: bytes, repo_id: str) -> None:
        repository = self._repository(repo_id)
        content = {"id": repo_id, "modelId": repo_id, "tags": []}
        content |= {"sha": repository.sha, "private": repository.private}
        content["siblings"] = [{"rfilename": path} for path in repository.files]
        self._json({**content, "cardData": repository.card()})

    def _tree(self, _: bytes, repo_id: str) -> None:
        files = [
            {"type": "file", "path": path, "size": len(file), "oid": _git_sha(file)}
            for path, file in self._repository(repo_id).files.items()
        ]
        self._json(files)

    def _preupload(self, body: bytes, repo_id: str) -> None:
        self._must_be_logged_in()
        repository = self._repository(repo_id)
        files = []
        for asked in json.loads(body)["files"]:
            answer = {"path": asked["path"], "uploadMode": "regular"}
            if (known := repository.files.get(asked["path"])) is not None:
                answer["oid"] = _git_sha(known)
            files.append({**answer, "shouldIgnore": False})
        self._json({"files": files})

    def _validate(self, body: bytes) -> None:
        files = {"README.md": json.loads(body)["content"].encode()}
        card = Repository(private=True, files=files).card()
        known = card.get("license", "mit") in LICENCES
        error = {"message": f'"license" must be one of {sorted(LICENCES)}'}
        content = {"errors": [] if known else [error], "warnings": []}
        self._json(content, 200 if known else 400)

    def _commit(self, body: bytes, repo_id: str) -> None:
        self._must_be_logged_in()
        repository = self._repository(repo_id)
        lines = [json.loads(line) for line in body.splitlines()]
        files = dict(repository.files)
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                repository.commits.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.files = files
        repository.sha = hashlib.sha1(body + repository.sha.encode()).hexdigest()
        url = f"{self.state.url}/{repo_id}/commit/{repository.sha}"
        self._json({"success": True, "commitOid": repository.sha, "commitUrl": url})

    def _resolve(self, _: bytes, repo_id: str, path: str) -> None:
        repository = self._repository(repo_id)
        if path not in repository.files:
            raise _Refused(404, "Entry not found", "EntryNotFound")
        content = repository.files[path]
        headers = {"X-Repo-Commit": repository.sha, "ETag": f'"{_git_sha(content)}"'}
        self._answer(content, headers=headers)


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_ID = r"([\w.-]+/[\w.-]+)"
_ROUTES: dict[tuple[str, str], Callable[..., None]] = {
    ("GET", "/api/whoami-v2"): _Handler._whoami,
    ("POST", "/api/repos/create"): _Handler._create,
    ("POST", "/api/validate-yaml"): _Handler._validate,
    ("GET", f"/api/models/{_ID}(?:/revision/.+)?"): _Handler._info,
    ("GET", f"/api/models/{_ID}/tree/[^/]+"): _Handler._tree,
    ("POST", f"/api/models/{_ID}/preupload/main"): _Handler._preupload,
    ("POST", f"/api/models/{_ID}/commit/main"): _Handler._commit,
    ("GET HEAD", f"/{_ID}/resolve/[^/]+/(.+)"): _Handler._resolve,
}
