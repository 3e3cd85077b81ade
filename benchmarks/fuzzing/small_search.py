"""A small search to attack: made once in this process, copied for each attack; judges.

Models and texts are those of ``tests/data/run_v1``.
"""

from __future__ import annotations

import atexit
import csv
import functools
import json
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from attack import Limits, Outcome, command, first
from hub_server import TOKEN, Hub, Repository, go_online, serve
from quick_fronts import blank_pictures, configurations_read_once, fronts_of_few_points
from tiny_demo import TINY
from tiny_models import scratch

from mergekit_map.demo import family
from mergekit_map.results import log

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "run_v1"
CONFIG = """\
merge_method: ties
base_model: models/base
models:
  - model: models/greeting-model
    parameters: {density: 0.7}
  - model: models/code-model
    parameters: {density: 0.7}
dtype: bfloat16
map:
  tasks:
    greeting: {perplexity: {file: texts/greeting.txt}, block: 32}
    code: {perplexity: {file: texts/code.txt}, block: 32}
  search: {evaluations: 10, remeasure: 2, holdout: 0.3, seed: 3}
  select: {prefer: {greeting: 2, code: 1}}
"""
SEARCH = "search config.yml run"
REPO = "me/merged"
PUSH = f"push out {REPO} --run run --license mit --yes"
SECONDS = 300  # of a command, at most
PATIENT = Limits(SECONDS)
# What changes a folder, or the Hub.
CALLS = {
    os: ("rename", "replace", "unlink", "remove", "link", "rmdir", "fsync", "mkdir"),
    socket.socket: ("connect", "send", "sendall", "recv"),
}
_KEPT = ExitStack()  # of a process that is forked, for as long as it lives
_HUBS: dict[Path, tuple[Hub, ExitStack]] = {}


@dataclass(frozen=True)
class Case:
    """A command that is disturbed, and what it makes."""

    command: str
    run: str | None = "run"  # whose files are to agree
    out: str | None = None  # a checkpoint, that is whole or not there
    next: str = ""  # the next command, if it is another one
    kills: int = 0  # how often it is killed
    anew: bool = False  # in an interpreter that has imported nothing

    @property
    def needs(self) -> list[str]:
        """Name what has to be there, besides what is searched."""
        words = self.command.split()
        there = ("run", "out") if words[0] == "push" else ("run",)
        return [name for name in there if name in words[1:]]


@dataclass(frozen=True)
class Undisturbed:
    """What a command does that nobody disturbs."""

    calls: int  # that change a folder, or the Hub
    seconds: float
    made: Mapping[str, Any]  # content of the files of its run folder
    out: frozenset[str]  # files of the checkpoint


@functools.cache
def made(*, finished: bool = True) -> Path:
    """Make a search, once; finished and merged, or stopped and looked at."""
    folder = scratch("attacked-")
    for model in (DATA / "hub").iterdir():
        (files,) = (model / "snapshots").iterdir()
        shutil.copytree(files, folder / "models" / model.name.rpartition("--")[2])
    shutil.copytree(DATA / "texts", folder / "texts")
    (folder / "config.yml").write_text(CONFIG)
    (folder / "disk.yml").write_text(f"{CONFIG}  merge: disk\n")
    stop = Limits(SECONDS, before=lambda: None if finished else _stop_after(21))
    searched = run_in(folder, SEARCH, stop)
    looked_at = run_in(folder, "merge run out" if finished else "select run")
    ends = searched.code, looked_at.code
    assert ends == (0 if finished else 130, 0), searched.said + looked_at.said
    shutil.rmtree(folder / "tmp")
    return folder


def _stop_after(lines: int) -> None:
    """Interrupt a search when its log has so many lines."""
    append, left = log.append_durably, iter(range(lines))

    def append_or_stop(path: Path, line: bytes) -> None:
        append(path, line)
        if next(left, None) is None:
            raise KeyboardInterrupt

    log.append_durably = append_or_stop


def project(target: Path, *, finished: bool = True) -> Path:
    """Copy a search, ``run``, with all that it needs; returns the folder of it all."""
    return shutil.copytree(made(finished=finished), target, dirs_exist_ok=True)


def copied(folder: Path, *names: str) -> Path:
    """Copy some of a finished search; what is searched always."""
    for name in ("models", "texts", "home", "config.yml", "disk.yml", *names):
        source = made() / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, folder / name)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Read the files of a folder, by path; what is no file is left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30
    }


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> set[str]:
    """List the paths whose contents differ."""
    paths = before.keys() | after.keys()
    return {path for path in paths if before.get(path) != after.get(path)}


def run_in(folder: Path, words: str, limits: Limits = PATIENT) -> Outcome:
    """Run a command with home, scratch and cache in a folder, and quick fronts.

    What is pushed goes to the Hub of that folder; a demo trains models of no use.
    """
    (folder / "tmp").mkdir(exist_ok=True)
    others = {
        "MERGEKIT_MAP_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "HF_HUB_OFFLINE": "1",
        "HF_TOKEN": TOKEN,
        **limits.others,
    }
    hub = hub_of(folder) if words.startswith("push ") else None

    def before() -> None:  # in a fork, which nobody else uses
        tempfile.tempdir = None
        family.FamilySizes = lambda: TINY
        if hub is not None:
            go_online(pytest.MonkeyPatch(), hub)
        for quick in (fronts_of_few_points, blank_pictures, configurations_read_once):
            _KEPT.enter_context(quick())
        limits.before()

    return command(words.split(), folder, replace(limits, others=others, before=before))


def hub_of(folder: Path) -> Hub:
    """Return the Hub that a folder is pushed to: an empty one for each folder."""
    if folder not in _HUBS:
        if len(_HUBS) > 2:
            _HUBS.pop(next(iter(_HUBS)))[1].close()
        stack = ExitStack()
        atexit.register(stack.close)  # later its thread no longer runs, to end
        _HUBS[folder] = stack.enter_context(serve()), stack
    return _HUBS[folder][0]


@functools.cache
def undisturbed(case: Case) -> Undisturbed:
    """Run a command by itself, and keep what it makes."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = copied(Path(name), *case.needs)
        count = folder / "count"

        def before() -> None:
            handle = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            at_each_call(lambda: os.write(handle, b"x"))

        limits = Limits(SECONDS, before=before, anew=case.anew)
        done = run_in(folder, case.command, limits)
        assert done.code == 0, done.said
        calls = len(count.read_text()) if count.exists() else 0
        made = _made_by(case, folder)
        return Undisturbed(calls, done.seconds, made, _names(case, folder))


def at_each_call(heard: Callable[[], object]) -> None:
    """Call something before each call of this process that changes a folder."""

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **named: Any) -> Any:
            heard()
            return call(*arguments, **named)

        return before

    for owner, names in CALLS.items():
        for name in names:
            setattr(owner, name, wrapped(getattr(owner, name)))


def _made_by(case: Case, folder: Path) -> Mapping[str, Any]:
    """Read what a command makes: in its run folder, or of a repository on the Hub."""
    if case.command == PUSH:
        repository = hub_of(folder).repositories.get(REPO, Repository(private=False))
        return {**repository.files, "commits": repository.commits}
    if case.run is None:
        return {}
    run = folder / case.run
    # A checkpoint is measured by every merge; the name of a merge is also of where
    # models lie, which for those of a demo is another folder each time.
    log = [
        {**line, "merge": ""}
        for line in lines(run / "evaluations.jsonl")
        if line["role"] != "checkpoint"
    ]
    made = {"evaluations.jsonl": log}
    made["front.json"] = json.loads((run / "front.json").read_text())
    return made


def _names(case: Case, folder: Path) -> frozenset[str]:
    out = folder / case.out if case.out else None
    if out is None or not out.is_dir():
        return frozenset()
    return frozenset(path.name for path in out.iterdir())


def lines(log: Path) -> list[dict[str, object]]:
    """Read the whole lines of a log, without how long they took."""
    text = log.read_text() if log.exists() else ""
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in found]


def logs(folder: Path) -> dict[str, list[dict[str, object]]]:
    """Read the logs of a folder."""
    found = folder.rglob("evaluations.jsonl")
    return {str(path.relative_to(folder)): lines(path) for path in found}


def goes_on(case: Case, folder: Path, before: Mapping[str, Sequence[object]]) -> str:
    """Say whether the next command does not end as if nothing had happened."""
    harmed, whole = lost(before, folder), _is_whole(case, folder)
    before = logs(folder)
    limits = replace(PATIENT, anew=case.anew)
    done = run_in(folder, case.next or case.command, limits)
    if done.code == 2 and "exists already" in done.err and whole:
        # What was made is there; so that something comes next:
        done = run_in(folder, f"report {case.run}" if case.run else "cache")
    if done.code:
        return f"the next command: exit {done.code}: {done.said[-700:]}"
    return first(
        harmed,
        lost(before, folder),
        disagreement(folder / case.run) if case.run else "",
        "" if case.next else _differs(case, folder),
        "" if _is_whole(case, folder) else f"{case.out} is not whole",
    )


def _is_whole(case: Case, folder: Path) -> bool:
    return not case.out or _names(case, folder) == undisturbed(case).out


def _differs(case: Case, folder: Path) -> str:
    """Say whether not all is made that a command makes which nobody disturbed."""
    wanted, found = undisturbed(case).made, _made_by(case, folder)
    strange = [p for p in {**wanted, **found} if wanted.get(p) != found.get(p)]
    return f"not those of an undisturbed command: {strange}" if strange else ""


def lost(before: Mapping[str, Sequence[object]], folder: Path) -> str:
    """Say whether logs lack lines that they had, or have some twice."""
    after = {**dict.fromkeys(before, ()), **logs(folder)}
    return first(*(_lost_of(before.get(n, ()), found, n) for n, found in after.items()))


def _lost_of(before: Sequence[object], after: Sequence[Any], name: str) -> str:
    had, has = (
        Counter(json.dumps(line, sort_keys=True) for line in some)
        for some in (before, after)
    )
    if gone := had - has:
        return f"{gone.total()} lines are lost of {name}"
    again = Counter(
        json.dumps([line[k] for k in ("coefficients", "task", "definition", "merge")])
        for line in after
        # What failed is measured again, and documents of one merge by and by.
        if line["role"] != "checkpoint"
        and "sampling" not in line
        and "error" not in line
    )
    doubled = [key for key, count in again.items() if count > 1]
    return f"measured twice: {doubled[0]}" if doubled else ""


def disagreement(run: Path) -> str:
    """Say whether the files of a finished run folder do not say the same."""
    if not (run / ".state" / "manifest.json").exists():
        return f"{run.name} is not finished"
    front = json.loads((run / "front.json").read_text())
    chosen = front["selected"]
    rows = list(csv.DictReader((run / "front.csv").read_text().splitlines()))
    points = [row for row in rows if row["point"].isdigit()]
    marked = [row["point"] for row in points if row["selected"] == "1"]
    if len(points) != len(front["points"]) or marked != [str(chosen)]:
        return (
            f"front.csv has {len(points)} points, chosen {marked}; front.json {chosen}"
        )
    recipe = (run / "recipe.yml").read_text()
    same = f"# {front['reason']}\n" + (run / f"recipes/{chosen:03}.yml").read_text()
    if recipe != same:
        return f"recipe.yml is not that of point {chosen}: {recipe[:80]!r}"
    count = len(list(run.glob("recipes/[0-9]*.yml")))
    return "" if count == len(front["points"]) else f"{count} recipes"
