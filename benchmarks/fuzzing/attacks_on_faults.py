"""Faults of the machine: full disks, no rights.

Whatever fails, a command says in a sentence what is short and where; what was there
before is there afterwards; and once the fault is gone the same command goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack import Attack, Impossible, Limits, Outcome, first
from small_search import (
    DEMO,
    PUSH,
    copied,
    disagreement,
    lines,
    lost_or_doubled,
    run_in,
    wrongly_pushed,
)

KB = 1 << 10


@dataclass(frozen=True)
class Case:
    """A command that the machine fails."""

    words: tuple[str, ...]
    needs: tuple[str, ...] = ()
    run: str | None = "run"  # whose files agree in the end


SEARCH = Case(("search", "config.yml", "new"), run="new")
SEARCH_DISK = Case(("search", "disk.yml", "new"), run="new")
SELECT = Case(("select", "run", "--index", "1"), ("run",))
REPORT = Case(("report", "run"), ("run",))
MERGE = Case(("merge", "run", "out"), ("run",))
CACHE = Case(("cache",), run=None)
INSPECT = Case(("inspect", "config.yml"), run=None)
UPLOAD = Case(PUSH, ("run", "merged"), run=None)
ALL_OF_IT = Case(DEMO, run="demo/run")


def attacks(seed: int) -> Iterator[Attack]:
    """Let every fault meet several commands."""
    del seed
    yield from _of_full_disks()
    yield from _of_limits()
    yield from _of_rights()


def _of_full_disks() -> Iterator[Attack]:
    for size in (4, 12, 40, 80, 120, 160, 200, 300, 450, 700):
        for name, attempt in {
            "the run folder of a search": (_full, SEARCH, "new"),
            "the scratch of a search to disk": (_full, SEARCH_DISK, "tmp"),
            "the cache of a search": (_full, SEARCH, "home"),
            "the folder that a merge is written to": (_full, MERGE, "out"),
            "the run folder of a merge": (_nearly_full, MERGE, "run"),
            "the run folder of a choice": (_nearly_full, SELECT, "run"),
            "the run folder of a report": (_nearly_full, REPORT, "run"),
        }.items():
            meet, case, where = attempt
            title = f"{size} kB are free for {name}"
            yield Attack(title, functools.partial(meet, case, where, size * KB))


def _of_limits() -> Iterator[Attack]:
    cases = {"search": SEARCH, "merge": MERGE, "select": SELECT, "report": REPORT}
    for name, case in {**cases, "inspect": INSPECT, "push": UPLOAD}.items():
        for size in (1, 8, 30, 60, 140):
            limits = Limits(file_size=size * KB, seconds=300)
            title = f"{name}: no file over {size} kB"
            yield Attack(title, functools.partial(_limited, case, limits))


def _of_rights() -> Iterator[Attack]:
    for name, case in {
        "select": SELECT,
        "report": REPORT,
        "merge": MERGE,
        "search": Case(("search", "config.yml", "run"), ("run",)),
        "push": UPLOAD,
    }.items():
        title = f"{name}: the run folder can only be read"
        yield Attack(title, functools.partial(_read_only, case, "run"))
    for name, case, where in (
        ("search", SEARCH, "home"),
        ("cache", Case(("cache", "--limit", "1GB"), run=None), "home"),
        ("search to disk", SEARCH_DISK, "tmp"),
        ("merge", Case(("merge", "run", "box/out"), ("run",)), "box"),
        ("report", Case(("report", "run", "--out", "box/a.html"), ("run",)), "box"),
        ("search", Case(("search", "config.yml", "box/new"), run=None), "box"),
        ("init", Case(("init", "box/a.yml", "--model", "a", "--base", "b"), (), None),
         "box"),
    ):  # fmt: skip
        title = f"{name}: {where} can only be read"
        yield Attack(title, functools.partial(_read_only, case, where))
    readers = {"select": SELECT, "report": REPORT, "cache": CACHE, "push": UPLOAD}
    for name, case in readers.items():
        title = f"{name}: of another user"
        yield Attack(title, functools.partial(_of_another, case))


def _full(case: Case, where: str, free: int, folder: Path) -> str:
    """Let a folder be a small disk."""
    copied(folder, *case.needs)
    place = folder / where
    if where == "out":  # a folder that is there is not written to
        place, case = folder / "box", _moved(case, "out", "box/out")
    if where == "new":
        place, case = folder / "box", _moved(case, "new", "box/new")
    kept = folder / "kept"
    if place.exists():
        place.rename(kept)
    place.mkdir()
    with _disk(place, 64 << 20):
        if kept.exists():
            shutil.copytree(kept, place, dirs_exist_ok=True)
            shutil.rmtree(kept)
        _leave_free(place, free)
        return _met(case, folder, Limits(seconds=300), place)


def _nearly_full(case: Case, where: str, free: int, folder: Path) -> str:
    """Let what is there lie on a disk that has so little free; the rest of it, too."""
    copied(folder, *case.needs)
    place = folder / where
    place.rename(folder / "kept")
    place.mkdir()
    with _disk(place, 64 << 20):
        shutil.copytree(folder / "kept", place, dirs_exist_ok=True)
        shutil.rmtree(folder / "kept")
        _leave_free(place, min(free, 40 * KB) if case is not REPORT else free)
        return _met(case, folder, Limits(seconds=300), place)


def _met(case: Case, folder: Path, limits: Limits, disk: Path) -> str:
    before = _logs(folder)
    done = run_in(folder, case.words, limits)
    problem = _failed_well(done)
    if problem:
        return problem
    with contextlib.suppress(OSError):
        (disk / ".filling").unlink()
    return _goes_on(case, folder, before)


def _limited(case: Case, limits: Limits, folder: Path) -> str:
    copied(folder, *case.needs)
    before = _logs(folder)
    # What is said goes into files, too.
    done = run_in(folder, case.words, limits)
    return first(
        _failed_well(done),
        _goes_on(case, folder, before),
    )


def _read_only(case: Case, where: str, folder: Path) -> str:
    copied(folder, *case.needs)
    place = folder / where
    place.mkdir(exist_ok=True)
    before = _logs(folder)
    with _disk(place, 64 << 20, of=place):
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        done = run_in(folder, case.words)
        subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
        problem = _failed_well(done)
        return problem or _goes_on(case, folder, before)


def _of_another(case: Case, folder: Path) -> str:
    _ask_for_root()
    copied(folder, *case.needs)
    folder.chmod(0o755)
    before = _logs(folder)
    limits = Limits(user=65534, before=_import_what_others_cannot_read)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o777)
    for name in (".out", ".err"):
        (folder / name).touch()
    done = run_in(folder, case.words, limits)
    problem = _failed_well(done)
    return problem or _goes_on(case, folder, before)


def _import_what_others_cannot_read() -> None:
    import contourpy  # noqa: F401
    import rich._emoji_codes  # noqa: F401


def _failed_well(outcome: Outcome) -> str:
    """Say what is wrong with how a command met a fault; nothing if it went on."""
    problems = []
    if outcome.code == 1 and "OpenBLAS error: Memory allocation" in outcome.err:
        return ""  # it ends the process by itself, with these words
    if outcome.code not in {0, 2}:
        problems.append(f"exit {outcome.code}")
    for word in ("Traceback", "Exception ignored"):
        if word in outcome.said:
            problems.append(word)
    if outcome.code == 2 and outcome.err.lower().count("error: ") < 1:
        problems.append("no error is said")
    return f"{'; '.join(problems)}: {outcome.said[-700:]}" if problems else ""


def _goes_on(case: Case, folder: Path, before: dict[str, Any]) -> str:
    """Say whether the same command does not work once the fault is gone."""
    again = run_in(folder, case.words)
    if again.code and "exists already" not in again.err:
        return f"then: exit {again.code}: {again.said[-500:]}"
    logs = {*before, *_logs(folder)}
    return first(
        *(lost_or_doubled(before.get(n, []), folder / n) for n in logs),
        disagreement(folder / case.run) if case.run else "",
        wrongly_pushed(folder) if case.words == PUSH else "",
    )


def _logs(folder: Path) -> dict[str, Any]:
    found = folder.glob("*/evaluations.jsonl")
    return {str(path.relative_to(folder)): lines(path) for path in found}


@contextmanager
def _disk(place: Path, size: int, of: Path | None = None) -> Iterator[None]:
    """Mount a small disk, with what is in a folder."""
    _ask_for_root()
    kept = place.with_name("of.disk")
    if of is not None:
        shutil.copytree(of, kept)
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    try:
        subprocess.run(["mount", *options, str(place)], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        raise Impossible(f"no small disk: {error.stderr.decode().strip()}") from None
    if of is not None:
        shutil.copytree(kept, place, dirs_exist_ok=True)
        shutil.rmtree(kept)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _ask_for_root() -> None:
    if os.geteuid() != 0:
        raise Impossible("small disks and other users are for root alone")


def _leave_free(place: Path, size: int) -> None:
    free = shutil.disk_usage(place).free
    (place / ".filling").write_bytes(b"\0" * max(0, free - size))


def _moved(case: Case, old: str, new: str) -> Case:
    words = tuple(new if word == old else word for word in case.words)
    return Case(words, case.needs, new if case.run == old else case.run)
