"""Measurements that came before their turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mergekit_map.results.log import Evaluation, open_log
from mergekit_map.results.out_of_order_results import OutOfOrderResults
from mergekit_map.types import Measurement

MERGE = {"a": 0.25, "b": 1 / 3}
TASKS = {"one": "d1", "other": "d2"}
MEASURED = Measurement(
    0.1 + 0.2, 0.01, 7, details={"more": 1.5}, gradient={"a": 2.0}, seconds=1.25
)


def opened(folder: Path, logged: list[Evaluation] | None = None) -> OutOfOrderResults:
    return OutOfOrderResults(folder / "e.jsonl", lambda: logged or [])


def kept(folder: Path) -> Evaluation:
    """Keep one measurement, and give its line."""
    opened(folder).of("m", TASKS).keep(MERGE, "one", MEASURED)
    with open_log(folder / "e.jsonl") as log:
        return next(iter(log))


def test_what_is_kept_is_given_once_to_whoever_opens_it_next(tmp_path: Path) -> None:
    kept(tmp_path)
    early = opened(tmp_path)
    found = early.of("m", TASKS)
    assert found.find(dict(reversed(MERGE.items())), "one")
    assert found.take(MERGE, "one") == MEASURED
    assert found.take(MERGE, "one") is None
    early.tidy()
    assert opened(tmp_path).of("m", TASKS).take(MERGE, "one") == MEASURED


def test_other_fingerprints_are_other_measurements(tmp_path: Path) -> None:
    kept(tmp_path)
    early = opened(tmp_path)
    assert early.of("n", TASKS).take(MERGE, "one") is None
    assert early.of("m", {"one": "d3"}).take(MERGE, "one") is None
    assert early.of("m", TASKS).take({"a": 0.25, "b": 0.33}, "one") is None
    assert early.of("m", TASKS).take(MERGE, "one") == MEASURED


def test_what_the_log_has_by_then_is_not_given_again(tmp_path: Path) -> None:
    line = kept(tmp_path)
    logged = replace(line, role="refinement")
    assert opened(tmp_path, [logged]).of("m", TASKS).take(MERGE, "one") is None
    assert not (tmp_path / "e.jsonl").exists()


def test_a_line_that_a_kill_cut_short_is_dropped(tmp_path: Path) -> None:
    kept(tmp_path)
    path = tmp_path / "e.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert opened(tmp_path).of("m", TASKS).take(MERGE, "one") == MEASURED
    assert path.read_bytes() == whole
