"""Faults of the machine: full disks, no rights.

Whatever fails, a command says in a sentence what is short and where; what was there
before is there afterwards; and once the fault is gone the same command goes on.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attack import Attack, Impossible, Limits, held
from small_search import PATIENT, PUSH, SECONDS, Case, copied, goes_on, logs, run_in

KB = 1 << 10

SEARCH = Case("search config.yml new", run="new")
SEARCH_DISK = Case("search disk.yml new", run="new")
SELECT, REPORT = Case("select run --index 1"), Case("report run")
MERGE = Case("merge run out", out="out")
CACHE, INSPECT = Case("cache", run=None), Case("inspect config.yml", run=None)
UPLOAD = Case(PUSH, run=None)


def attacks(_: int) -> Iterator[Attack]:
    """Let every fault meet several commands."""
    yield from _of_full_disks()
    yield from _of_limits()
    yield from _of_rights()


def _of_full_disks() -> Iterator[Attack]:
    for size in (4, 12, 40, 80, 120, 160, 200, 300, 450):
        for name, of in {
            "the run folder of a search": (SEARCH, "new"),
            "the scratch of a search to disk": (SEARCH_DISK, "tmp"),
            "the cache of a search": (SEARCH, "home"),
            "the folder that a merge is written to": (MERGE, "out"),
            "the run folder of a merge": (MERGE, "run"),
            "the run folder of a choice": (SELECT, "run"),
            "the run folder of a report": (REPORT, "run"),
        }.items():
            title = f"{size} kB are free for {name}"
            free = min(size, 40) if name.endswith(("a merge", "a choice")) else size
            yield Attack(title, functools.partial(_full, *of, free * KB))


def _of_limits() -> Iterator[Attack]:
    cases = SEARCH, MERGE, SELECT, REPORT, UPLOAD, INSPECT
    for case, size in itertools.product(cases, (1, 4, 8, 30, 60)):
        limits = Limits(SECONDS, file_size=size * KB)
        title = f"{case.command}: no file over {size} kB"
        yield Attack(title, functools.partial(_limited, case, limits))


def _of_rights() -> Iterator[Attack]:
    for case, where in (
        *((case, "run") for case in (SELECT, REPORT, MERGE, UPLOAD)),
        (Case("search config.yml run"), "run"),
        (SEARCH, "home"),
        (SEARCH_DISK, "tmp"),
        (Case("merge run box/out"), "box"),
        (Case("report run --out box/a.html"), "box"),
        (Case("search config.yml box/new", run=None), "box"),
        (Case("init box/a.yml --model a --base b", run=None), "box"),
    ):
        title = f"{case.command}: {where} can only be read"
        yield Attack(title, functools.partial(_read_only, case, where))
    for case in (SELECT, REPORT, CACHE, UPLOAD):
        title = f"{case.command}: of another user"
        yield Attack(title, functools.partial(_of_another, case))


def _full(case: Case, where: str, free: int, folder: Path) -> str:
    """Let a folder be a disk that has so little free, with what is there already."""
    copied(folder, *case.needs)
    if where in ("out", "new"):  # a folder that is there is not written to
        case, where = _moved(case, where, f"box/{where}"), "box"
    with _disk(folder / where):
        size = shutil.disk_usage(folder / where).free - free
        (folder / where / ".filling").write_bytes(b"\0" * max(0, size))
        return _met(case, folder, lambda: (folder / where / ".filling").unlink())


def _limited(case: Case, limits: Limits, folder: Path) -> str:
    copied(folder, *case.needs)
    return _met(case, folder, lambda: None, limits)


def _read_only(case: Case, where: str, folder: Path) -> str:
    copied(folder, *case.needs)

    def remount(how: str) -> None:
        command = ["mount", "-o", f"remount,{how}", str(folder / where)]
        subprocess.run(command, check=True)

    with _disk(folder / where):
        remount("ro")
        return _met(case, folder, lambda: remount("rw"))


def _of_another(case: Case, folder: Path) -> str:
    _ask_for_root()
    copied(folder, *case.needs)
    folder.chmod(0o755)
    limits = Limits(user=65534, before=_import_what_others_cannot_read)
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o777)
    for name in (".out", ".err"):
        (folder / name).touch()
    return _met(case, folder, lambda: None, limits)


def _met(
    case: Case, folder: Path, mend: Callable[[], None], limits: Limits = PATIENT
) -> str:
    """Say what is wrong with how a command meets a fault, and goes on without it."""
    before = logs(folder)
    problem = held(run_in(folder, case.command, limits), seconds=SECONDS)
    with contextlib.suppress(OSError):
        mend()
    return problem or goes_on(case, folder, before)


def _import_what_others_cannot_read() -> None:
    import contourpy  # noqa: F401
    import rich._emoji_codes  # noqa: F401


@contextmanager
def _disk(place: Path) -> Iterator[None]:
    """Mount a small disk in the place of a folder, with what is in it."""
    _ask_for_root()
    place.mkdir(exist_ok=True)
    kept = shutil.copytree(place, place.with_name("of.disk"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={64 << 20}", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        raise Impossible(f"no small disk: {error.stderr.decode().strip()}") from None
    try:
        shutil.copytree(kept, place, dirs_exist_ok=True)
        shutil.rmtree(kept)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def _ask_for_root() -> None:
    if os.geteuid() != 0:
        raise Impossible("small disks and other users are for root alone")


def _moved(case: Case, old: str, new: str) -> Case:
    words = (new if word == old else word for word in case.command.split())
    run, out = (new if name == old else name for name in (case.run, case.out))
    return Case(" ".join(words), run, out)
