"""The live page: nobody reads it without its name, and nothing else is served."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mergekit_map.commands.live import LivePage

RUN = Path(__file__).parents[1] / "data" / "run_v1" / "run"


@pytest.fixture
def page(tmp_path: Path) -> LivePage:
    run = shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "page").mkdir()
    return LivePage(run, tmp_path / "page")


@pytest.fixture
def address(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("mergekit_map.commands.live._LAST_LOOK", 0.0)
    with page.served() as address:
        yield address


def get(
    address: str, what: str = "", host: str | None = None, method: str = "GET"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    headers = {} if host is None else {"Host": host}
    connection.request(method, parts.path + what, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def test_without_the_token_nothing_is_served(address: str) -> None:
    parts = urlsplit(address)
    root = f"http://{parts.netloc}/"
    token = parts.path.strip("/")
    for path in ("", "state", "report", f"{token[:-1]}/state", "x" * 32 + "/state"):
        assert get(root, path)[0] == 403, path
    assert get(address)[0] == 200


def test_another_host_name_is_refused_even_with_the_token(address: str) -> None:
    port = urlsplit(address).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert get(address, "state", host)[0] == 403, host
    for host in (f"127.0.0.1:{port}", "localhost:8000", "localhost"):
        assert get(address, "state", host)[0] == 200, host


def test_only_the_page_the_report_and_the_state_are_served(address: str) -> None:
    for path in ("x", "../run/config.yml", "%2e%2e/config.yml", "report/../state/x"):
        assert get(address, path)[0] == 404, path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(address, "state", method=method)[0] == 501
    assert get(address)[1]["Content-Security-Policy"].startswith("default-src 'none'")
    assert get(address)[1]["Referrer-Policy"] == "no-referrer"


def test_it_listens_on_this_machine_alone_and_each_time_under_another_name(
    page: LivePage, tmp_path: Path
) -> None:
    other = LivePage(tmp_path / "run", tmp_path)
    with page.served() as one, other.served() as two:
        assert {urlsplit(one).hostname, urlsplit(two).hostname} == {"127.0.0.1"}
        assert urlsplit(one).path != urlsplit(two).path
        assert len(urlsplit(one).path.strip("/")) >= 32


def test_the_report_is_made_again_when_the_log_has_grown(
    page: LivePage, tmp_path: Path
) -> None:
    assert page.refresh()
    first = (tmp_path / "page" / "report.html").read_bytes()
    assert b"plotly" in first
    assert not page.refresh()

    log = tmp_path / "run" / "evaluations.jsonl"
    log.write_text(log.read_text() + log.read_text().splitlines()[0] + "\n")

    assert page.refresh()
    assert page.said == "the search is finished"


def test_the_state_says_how_far_the_search_is(page: LivePage, address: str) -> None:
    page.refresh()

    status, headers, content = get(address, "state")

    assert status == 200
    assert headers["Content-Type"].startswith("application/json")
    assert json.loads(content)["version"] is not None
    assert get(address, "report")[2] == get(address, "report?17#point=3")[2]
