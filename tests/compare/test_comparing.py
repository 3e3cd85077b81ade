"""``mergekit-map compare`` on real, if tiny, models."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quick_fronts import fronts_of_few_points
from runs import invoke, lines, read, write_plain

from mergekit_map.compare import baselines, contest
from mergekit_map.compare.baselines import NAMES
from mergekit_map.compare.contest import Bench, ComparisonSpec
from mergekit_map.results.log import ASSESSING

BUDGET = 12
PREFERENCES = 3
POINTS = 6  # of the front that are measured
SCALARS = (0.3, 0.6)
SCALES = (1.0, 1.5)
DENSITIES = 2 + 4 + 2 + 5  # of TIES, DARE-TIES, DELLA and DARE
TABLES = ("fronts", "methods", "win_rate")


@dataclass(frozen=True)
class Compared:
    """A search that was compared, stopped twice on the way."""

    run: Path
    searched: int  # lines of the log before
    output: str


@pytest.fixture(scope="module")
def compared(family: dict[str, Path], module_folder: Path) -> Iterator[Compared]:
    Path("greeting.txt").write_text("hello world, one plus two\n" * 4)
    Path("code.txt").write_text("def return x\n" * 6)
    files = {name: str(module_folder / f"{name}.txt") for name in ("greeting", "code")}
    tasks = {n: {"perplexity": {"file": f}, "block": 16} for n, f in files.items()}
    # Whose front has points to measure, where these models hardly differ.
    plain = {"remeasure": 0, "surrogate": "quadratic", "refine": False}
    write_plain(family, tasks, evaluations=7, **plain)
    run = module_folder / "run"
    with pytest.MonkeyPatch.context() as patch, fronts_of_few_points(24):
        few = partial(ComparisonSpec, points=POINTS)
        patch.setattr(contest, "ComparisonSpec", few)  # what the command asks for
        patch.setattr(baselines, "SCALARS", SCALARS)
        patch.setattr(baselines, "SCALES", SCALES)
        invoke("search", "config.yml", run)
        searched = len(lines(run))
        # Within MOEA/D, after random merges on both tasks, then within a scan.
        for stop, kind in ((2 * BUDGET + 6, "opponent"), (3, "baseline")):
            with pytest.MonkeyPatch.context() as stopping:
                stop_after(stopping, stop, kind)
                assert "\nstopped; to go on" in compare(run, code=130)
        assert not (run / "compare").exists()
        yield Compared(run, searched, compare(run))


def compare(*runs: Path, more: tuple[str, ...] = (), code: int = 0) -> str:
    numbers = ("--budget", str(BUDGET), "--preferences", str(PREFERENCES))
    return invoke("compare", *(*runs, *numbers, *more, "--trust-run"), code=code).output


def stop_after(patch: pytest.MonkeyPatch, count: int, kind: str = "") -> None:
    """Let a number of measurements of a role or task pass, then press Ctrl-C."""
    original: Callable[..., Any] = Bench._report
    passed = iter(range(count))

    def report(bench: Any, progress: Any) -> None:
        of_kind = kind in {"", progress.role, progress.task}
        if of_kind and next(passed, None) is None:
            raise KeyboardInterrupt("stopped")
        original(bench, progress)

    patch.setattr(Bench, "_report", report)


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_nothing_is_measured_twice(compared: Compared) -> None:
    log = lines(compared.run)
    keys = [(line["merge"], str(line["coefficients"]), line["task"]) for line in log]
    roles = {line["role"] for line in log[compared.searched :]}

    assert len(set(keys)) == len(keys)
    assert roles == {"front", "opponent", "baseline"}
    # The front, two opponents, and baselines.
    count = POINTS + 2 * BUDGET
    count += 2 + 2 + len(SCALARS) + PREFERENCES + 3 * len(SCALES) + DENSITIES
    assert f"{count} merges to measure" in compared.output


def test_all_is_there_in_files_and_on_the_terminal(compared: Compared) -> None:
    folder = compared.run / "compare"
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.{kind}" for name in TABLES for kind in ("md", "csv")),
        "comparison.json",
    }
    (win,) = rows(folder, "win_rate")
    # Seven evaluations, and what the search measured of its front at its end.
    own = {
        str(e["coefficients"])
        for e in lines(compared.run)
        if e.get("foretold") or e["role"] not in ASSESSING
    }
    assert len(own) > 7
    assert (win["models"], win["tasks"]) == ("2", "2")
    assert win["merges, MAP"] == str(len(own))
    assert win["merges, direct search"] == str(BUDGET)
    assert 0 <= float(win["win rate"]) <= 1
    assert float(win["R²"]) <= 1
    fronts = {row["method"]: row for row in rows(folder, "fronts")}
    assert list(fronts) == ["MAP", "MAP, as paid", "random", "moead"]
    assert fronts["MAP, as paid"]["merges"] == win["merges, MAP"]
    assert float(fronts["MAP"]["HV"]) > 0
    methods = rows(folder, "methods")
    labels = [row["method"] for row in methods]
    assert labels == [*NAMES, "random", "moead", "MAP, as paid", "MAP"]
    assert all(math.isfinite(float(row["run (2 models)"])) for row in methods)
    for name in TABLES:
        heading = (folder / f"{name}.md").read_text().splitlines()[0]
        assert heading.removeprefix("## ") in compared.output


def test_sums_are_those_of_what_was_measured(compared: Compared) -> None:
    (run,) = read(compared.run / "compare" / "comparison.json")["runs"]
    sums = run["methods"]
    merge = read(compared.run / ".state/manifest.json")["merge"]
    measured: dict[str, dict[str, float]] = {}
    scanned: dict[float, dict[str, float]] = {}  # of task arithmetic
    for line in lines(compared.run):
        if line["merge"] == merge and line["task"] in run["tasks"]:
            place = str(line["coefficients"])
            measured.setdefault(place, {})[line["task"]] = line["value"]
        weights = set(line["coefficients"].values())
        if line["role"] == "baseline" and weights <= set(SCALARS) and len(weights) == 1:
            scanned.setdefault(weights.pop(), {})[line["task"]] = line["value"]

    assert set(scanned) == set(SCALARS)
    best = max(scanned.values(), key=lambda losses: scaled_sum(losses, run, [0.5, 0.5]))
    soup = measured[str({"a": 0.5, "b": 0.5})]
    for index, preference in enumerate(run["preference_vectors"]):
        scores = [scaled_sum(losses, run, preference) for losses in measured.values()]
        nearest = min(scores, key=lambda s: abs(s - sums["MAP"][index]))
        assert sums["MAP"][index] == pytest.approx(nearest, rel=1e-12)
        assert sums["random"][index] <= max(scores) + 1e-12
        assert sums["Single task models"][index] >= sums["Best single model"][index]
        expected = scaled_sum(best, run, preference)
        assert sums[NAMES.arithmetic][index] == pytest.approx(expected, rel=1e-12)
        expected = scaled_sum(soup, run, preference)  # the same but for rounding
        assert sums[NAMES.soup][index] == pytest.approx(expected, abs=1e-3)


def scaled_sum(losses: dict[str, float], run: Any, preference: list[float]) -> float:
    """Add up losses by hand: 1 is the ideal of the reference front, 0 its nadir."""
    total = 0.0
    for column, task in enumerate(run["tasks"]):
        ideal, nadir = (run[end][column] for end in ("ideal", "nadir"))
        total += preference[column] * (-losses[task] - nadir) / (ideal - nadir)
    return total


def test_a_finished_comparison_loads_no_model_and_writes_the_same(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = compared.run / "compare"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    count = len(lines(compared.run))
    stop_after(monkeypatch, 0)

    compare(compared.run)

    assert len(lines(compared.run)) == count
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_runs_stand_side_by_side(compared: Compared, tmp_path: Path) -> None:
    other = shutil.copytree(compared.run, tmp_path / "copy")
    both = ("--out", str(tmp_path / "both"), "--opponents", "random")

    output = compare(compared.run, other, more=both)

    methods = rows(tmp_path / "both", "methods")
    assert "moead" not in {row["method"] for row in methods}
    for row in methods:
        assert row["run (2 models)"] == row["copy (2 models)"]
    assert len({row["R²"] for row in rows(tmp_path / "both", "win_rate")}) == 1
    assert f"The tables are in {tmp_path / 'both'}" in output


def test_refuses_before_it_loads_a_model(compared: Compared, tmp_path: Path) -> None:
    unknown = compare(compared.run, more=("--opponents", "moad"), code=2)
    (tmp_path / "elsewhere").mkdir()
    missing = compare(compared.run, tmp_path / "elsewhere", code=2)

    assert "there is no opponent 'moad'; did you mean 'moead'?" in unknown
    assert "is not the folder of a search" in missing
