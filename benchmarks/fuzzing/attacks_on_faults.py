"""Faults of the machine: full disks, little memory, few files, strange names, a crowd.

Whatever fails, a command says in a sentence what is short and where; what was there
before is there afterwards; and once the fault is gone the same command goes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from attack import Attack, Impossible, Limits, Outcome, first, held
from hub_server import TOKEN
from odd_hubs import ANSWERS, ASKED
from small_search import (
    DEMO,
    PUSH,
    copied,
    disagreement,
    hub_of,
    left_over,
    lines,
    lost_or_doubled,
    place,
    run_in,
    wrongly_pushed,
)

BEFORE = (245, 26)
QUICK = 5

KB = 1 << 10
NAMES = {
    "a line break": "a\nb",
    "blanks": " a  b ",
    "quotes": "a'b\"c",
    "a shell's words": "$(touch x);`touch x`&",
    "no UTF-8": os.fsdecode(b"a\xff\xfeb"),
    "255 bytes": "a" * 255,
    "250 bytes": "b" * 250,
    "200 letters of two bytes": "é" * 100,
    "per cents and braces": "%s{0}{x}%",
    "a dash": "-a",
    "a bell": "a\x07\x1b[31mb",
}


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
    yield from _of_names()
    yield from _of_homes()
    yield from _of_streams()
    yield from _of_clocks()
    yield from _of_crowds()
    yield from _of_logs()
    yield from _of_hubs()
    yield from _of_demos()


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
            yield Attack(title, functools.partial(_limited, case, limits, "too large"))


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


def _of_names() -> Iterator[Attack]:
    for kind, name in NAMES.items():
        for what, words in {
            "a run folder": ("search", "config.yml", f"./{name}"),
            "a merge": ("merge", "run", f"./{name}"),
            "a page": ("report", "run", "--out", f"./{name}"),
            "a configuration": ("init", f"./{name}", "--base", "b", "--model", "a"),
        }.items():
            title = f"{what} whose name has {kind}"
            yield Attack(title, functools.partial(_named, words))


def _of_homes() -> Iterator[Attack]:
    nobody = {"MERGEKIT_MAP_HOME": "", "XDG_CACHE_HOME": ""}
    for kind, home in {
        "is not set": None,
        "is empty": "",
        "is not there": "/there/is/no/such/home",
        "is a file": "/etc/hostname",
    }.items():
        for name, case in {"cache": CACHE, "search": SEARCH}.items():
            title = f"{name}: HOME {kind}"
            meet = functools.partial(_at_home, case, nobody, home)
            yield Attack(title, meet)
    for name, case in {"search to disk": SEARCH_DISK, "cache": CACHE}.items():
        title = f"{name}: TMPDIR is not there"
        others = {"TMPDIR": "/there/is/no/such/folder"}
        yield Attack(title, functools.partial(_run_with, case, Limits(others=others)))


def _of_streams() -> Iterator[Attack]:
    cases = {"select": SELECT, "report": REPORT, "search": SEARCH, "push": UPLOAD}
    for name, case in cases.items():
        for number in (1, 2):
            title = f"{name}: nobody reads stream {number}"
            unread = functools.partial(_unread, number)
            yield Attack(title, functools.partial(_without_streams, case, unread))


def _of_clocks() -> Iterator[Attack]:
    for name, case in {"search": SEARCH, "select": SELECT}.items():
        for kind, seconds in {"back": -1e7, "on": 1e9, "to and fro": 0.0}.items():
            jump = functools.partial(_jumping, seconds)
            title = f"{name}: the clock jumps {kind}"
            limits = Limits(seconds=300, before=jump)
            yield Attack(title, functools.partial(_run_with, case, limits))


def _of_crowds() -> Iterator[Attack]:
    many: dict[str, list[tuple[str, ...]]] = {
        "ten choices": [("select", "run", "--index", str(i)) for i in range(10)],
        "ten reports": [("report", "run")] * 10,
        "ten searches": [("search", "config.yml", "new")] * 10,
        "ten merges to one folder": [("merge", "run", "out")] * 10,
        "ten merges": [("merge", "run", f"out{i}") for i in range(10)],
        "ten limits of the cache": [("cache", "--limit", f"{i}GB") for i in range(10)],
        "ten configurations": [
            ("init", "a.yml", "--model", "a", "--base", "b", "--task", f"gsm8k:{i}")
            for i in range(10)
        ],
        "choices, reports, merges and a search": [
            *[("select", "run", "--index", str(i)) for i in range(4)],
            *[("report", "run")] * 3,
            *[("merge", "run", f"out{i}") for i in range(2)],
            ("search", "config.yml", "run"),
        ],
    }
    for name, commands in many.items():
        yield Attack(f"{name} at once", functools.partial(_at_once, commands))


def _of_logs() -> Iterator[Attack]:
    changes: dict[str, Callable[[Path], Any]] = {
        "removed": lambda log: log.unlink(),
        "emptied": lambda log: log.write_text(""),
        "halved": lambda log: os.truncate(log, log.stat().st_size // 2),
        "copied over itself": lambda log: log.write_bytes(log.read_bytes() * 2),
    }
    for when, change_when in {"after": _after_line, "while": _while_line}.items():
        for count in (1, 5, 11, 29):
            for name, change in changes.items():
                title = f"the log is {name} {when} line {count} is written"
                meet = functools.partial(_log_changed, change_when, count)
                yield Attack(title, functools.partial(meet, change))
        title = f"the run folder is removed {when} line 3 is written"
        meet = functools.partial(_log_changed, change_when, 3)
        yield Attack(title, functools.partial(meet, _without_its_folder))


def _of_hubs() -> Iterator[Attack]:
    """Push to Hubs that answer nonsense, and over networks that are not there."""
    for question, asked in ASKED.items():
        for name, answer in ANSWERS.items():
            title = f"push: asked for {question}, the Hub answers {name}"
            meet = functools.partial(_odd_hub, asked, answer)
            yield Attack(title, meet)
    for count in range(12):
        title = f"push: the network is gone after {count} requests"
        yield Attack(title, functools.partial(_gone_after, count))
    for kind, change in {
        "is replaced": lambda file: file.write_bytes(b"other" * 1000),
        "is emptied": lambda file: file.write_bytes(b""),
        "is gone": lambda file: file.unlink(),
        "grows": lambda file: file.write_bytes(file.read_bytes() + b"\0" * 100),
    }.items():
        for count in (3, 5, 6, 7):
            title = f"push: a file of weights {kind} at request {count}"
            yield Attack(title, functools.partial(_changed_at, count, change))
    for name, url in {
        "has no name": "http://no.such.host.invalid",
        "listens to nobody": "http://127.0.0.1:9",
        "is no address": "ftp:/x y",
    }.items():
        title = f"push: the Hub {name}"
        yield Attack(title, functools.partial(_no_hub, url))


def _of_demos() -> Iterator[Attack]:
    boxed = Case(("demo", "--out", "box/demo"), run="box/demo/run")
    for size in (4, 300, 900, 2000):
        for where, case in {"home": ALL_OF_IT, "box": boxed}.items():
            title = f"{size} kB are free for {where} of a demo"
            yield Attack(title, functools.partial(_full, case, where, size * KB))
    for size in (100, 400):
        limits = Limits(file_size=size * KB, seconds=300)
        title = f"demo: no file over {size} kB"
        yield Attack(title, functools.partial(_limited, ALL_OF_IT, limits, "too large"))
    title = "demo: home can only be read"
    yield Attack(title, functools.partial(_read_only, ALL_OF_IT, "home"))


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
        return _met(case, folder, Limits(seconds=300), ("No space", str(where)), place)


def _odd_hub(asked: tuple[str, str], answer: Any, folder: Path) -> str:
    """Let a Hub answer nonsense to one question, and then as it should."""
    copied(folder, *UPLOAD.needs)
    hub = hub_of(folder)
    hub.odd[asked] = answer
    done = run_in(folder, PUSH, Limits(seconds=90))
    hub.odd.clear()
    return first(
        held(done, seconds=60),
        "it says the token" if TOKEN in done.said else "",
        f"the token goes to {hub.tokens}" if hub.tokens > {"127.0.0.1"} else "",
        wrongly_pushed(folder) if done.code == 0 else "",
        _goes_on(UPLOAD, folder, {}),
    )


def _gone_after(count: int, folder: Path) -> str:
    """Let a network go down after so many requests, and come back."""
    copied(folder, *UPLOAD.needs)
    hub = hub_of(folder)

    def hang_up() -> None:
        if len(hub.requests) > count:
            raise ConnectionResetError

    hub.heard = hang_up
    done = run_in(folder, PUSH, Limits(seconds=90))
    hub.heard = lambda: None
    return first(held(done, seconds=60), _goes_on(UPLOAD, folder, {}))


def _changed_at(count: int, change: Callable[[Path], Any], folder: Path) -> str:
    """Change what is uploaded meanwhile; what was looked through goes, or nothing."""
    copied(folder, *UPLOAD.needs)
    hub, weights = hub_of(folder), folder / "merged" / "model.safetensors"
    whole = weights.read_bytes()

    def change_it() -> None:
        if len(hub.requests) == count:
            change(weights)

    hub.heard = change_it
    done = run_in(folder, PUSH, Limits(seconds=90))
    hub.heard = lambda: None
    weights.write_bytes(whole)
    return first(
        held(done, seconds=60),
        wrongly_pushed(folder) if done.code == 0 else "",
        _goes_on(UPLOAD, folder, {}),
    )


def _no_hub(url: str, folder: Path) -> str:
    copied(folder, *UPLOAD.needs)

    def elsewhere() -> None:
        import huggingface_hub

        huggingface_hub.constants.ENDPOINT = url

    limits = Limits(seconds=90, before=elsewhere)
    done = run_in(folder, PUSH, limits)
    return first(held(done, seconds=60), _goes_on(UPLOAD, folder, {}))


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
        return _met(case, folder, Limits(seconds=300), ("No space", where), place)


def _met(
    case: Case, folder: Path, limits: Limits, words: Sequence[str], disk: Path
) -> str:
    before = _logs(folder)
    done = run_in(folder, case.words, limits)
    problem = _failed_well(done, words)
    if problem:
        return problem
    left = list(folder.rglob("*.partial"))
    if left:
        return f"left: {left[0].name}"
    with contextlib.suppress(OSError):
        (disk / ".filling").unlink()
    return _goes_on(case, folder, before)


def _limited(case: Case, limits: Limits, word: str, folder: Path) -> str:
    copied(folder, *case.needs)
    before = _logs(folder)
    # What is said goes into files, too.
    done = run_in(folder, case.words, limits)
    if limits.file_size is not None and done.code in {2, 120}:
        word = ""
    return first(
        _failed_well(done, (word,)),
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
        problem = _failed_well(done, ("Read-only",))
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
    problem = _failed_well(done, ("annot",))
    return problem or _goes_on(case, folder, before)


def _import_what_others_cannot_read() -> None:
    import contourpy  # noqa: F401
    import rich._emoji_codes  # noqa: F401


def _named(words: Sequence[str], folder: Path) -> str:
    copied(folder, "run")
    known = {path.name for path in folder.iterdir()}
    done = run_in(
        folder, [os.fsencode(word).decode("utf-8", "surrogateescape") for word in words]
    )
    strange = {path.name for path in folder.iterdir()} - known - {"tmp"}
    wanted = words[-1] if words[0] != "init" else words[1]
    if done.code == 0 and strange != {os.path.basename(wanted)}:
        return f"made are {sorted(strange)}"
    if done.code == 2 and strange - {os.path.basename(wanted)}:
        return f"refused, and made {sorted(strange)}"
    return first(
        _failed_well(done, ()),
        "" if done.code in {0, 2} else f"exit {done.code}",
        left_over(folder),
    )


def _at_home(case: Case, others: dict[str, str], home: str | None, folder: Path) -> str:
    copied(folder)

    def before() -> None:
        os.environ.pop("HOME", None)
        if home is not None:
            os.environ["HOME"] = home
        for name in others:
            os.environ.pop(name, None)
        if home is None:  # and nobody knows whose process this is
            pwd.getpwuid = _unknown

    made = run_in(folder, case.words, Limits(seconds=300, before=before))
    if home is None and case is CACHE and "HOME" not in made.said:
        return f"it does not say HOME: {made.said[-300:]}"
    return _failed_well(made, ())


def _run_with(case: Case, limits: Limits, folder: Path) -> str:
    copied(folder, *case.needs)
    before = _logs(folder)
    done = run_in(folder, case.words, limits)
    problem = f"exit {done.code}: {done.said[-500:]}" if done.code else ""
    return problem or _goes_on(case, folder, before)


def _without_streams(case: Case, change: Callable[[], None], folder: Path) -> str:
    copied(folder, *case.needs)
    before = _logs(folder)
    done = run_in(folder, case.words, Limits(seconds=300, before=change))
    if done.code not in {0, 1, 2}:
        return f"exit {done.code}: {done.said[-500:]}"
    if "Traceback" in done.said or "Exception ignored" in done.said:
        return done.said[-500:]
    return _goes_on(case, folder, before)


def _at_once(commands: Sequence[Sequence[str]], folder: Path) -> str:
    copied(folder, "run")
    before = _logs(folder)
    children = {}
    for index, words in enumerate(commands):
        child = os.fork()
        if child == 0:
            os._exit(_say_how(words, index, folder))
        children[child] = index
    problems = []
    for child, index in children.items():
        _, status = os.waitpid(child, 0)
        said = (folder / f"said{index}").read_text()
        code = os.waitstatus_to_exitcode(status)
        found = Outcome(code, "", said, 0, 0, late=False)
        problems.append(_failed_well(found, ()))
    codes = [problem for problem in problems if problem]
    if codes:
        return codes[0]
    for index in range(len(commands)):
        (folder / f"said{index}").unlink()
        shutil.rmtree(folder / f"of{index}")
    runs = [name for name in ("run", "new") if (folder / name / "front.json").exists()]
    again = run_in(folder, commands[-1])
    if again.code and "exists already" not in again.said:
        return f"then: exit {again.code}: {again.said[-400:]}"
    after = {name: folder / name for name in before}
    return first(
        *(disagreement(folder / name) for name in runs),
        *(lost_or_doubled(before[name], path) for name, path in after.items()),
        left_over(folder),
    )


def _say_how(words: Sequence[str], index: int, folder: Path) -> int:
    """Run a command beside others; what it says has a file of its own."""
    here = folder / f"of{index}"
    here.mkdir()
    move = functools.partial(os.chdir, folder)
    found = run_in_two(here, folder, words, move)
    (folder / f"said{index}").write_text(found.said)
    return found.code if found.code >= 0 else 99


def run_in_two(
    here: Path, folder: Path, words: Sequence[str], before: Callable[[], None]
) -> Outcome:
    """Run a command whose streams go to one folder, and its work to another."""
    others = {
        "MERGEKIT_MAP_HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }
    (folder / "tmp").mkdir(exist_ok=True)
    return run_in(here, words, Limits(seconds=400, others=others, before=before))


def _log_changed(
    change_when: Callable[[Path, int, Callable[[], object]], None],
    count: int,
    change: Callable[[Path], Any],
    folder: Path,
) -> str:
    copied(folder)
    log = folder / "new" / "evaluations.jsonl"

    def now() -> None:
        shutil.copyfile(log, folder / "log.before")
        change(log)

    limits = Limits(seconds=300, before=lambda: change_when(log, count, now))
    done = run_in(folder, SEARCH.words, limits)
    if not (folder / "log.before").exists():
        return f"there were no {count} lines: {done.said[-300:]}"
    problem = _failed_well(done, ("evaluations.jsonl",))
    if problem or done.code == 0:
        return problem or "it ends as if nothing had happened"
    had = lines(folder / "log.before") if "there again" in done.said else []
    lost = lost_or_doubled(had, log) if had else ""
    again = run_in(folder, SEARCH.words)
    if again.code:
        # What is no line any more is refused; the user repairs it.
        return "" if f"{log.name}:" in again.said else again.said[-300:]
    # What was answered item by item is gone with the folder, and is not in the front.
    other = "" if change is _without_its_folder else _other_front(folder / "new")
    return first(lost, disagreement(folder / "new"), other)


def _after_line(log: Path, count: int, change: Callable[[], object]) -> None:
    """Let another process change a log that has so many lines, at any moment."""
    owner = os.getpid()
    if os.fork():
        return
    while os.getppid() == owner:
        with contextlib.suppress(OSError):
            if log.read_bytes().count(b"\n") >= count:
                os.kill(owner, signal.SIGSTOP)
                change()
                os.kill(owner, signal.SIGCONT)
                break
        time.sleep(0.002)
    os._exit(0)


def _while_line(log: Path, count: int, change: Callable[[], object]) -> None:
    """Change a log when a line of it is written, and who writes it has it open."""
    sync, left = os.fsync, [count]

    def sync_and_change(number: int) -> None:
        sync(number)
        if log.exists() and os.path.samestat(os.fstat(number), log.stat()):
            left[0] -= 1
            if left[0] == 0:
                change()

    os.fsync = sync_and_change


def _without_its_folder(log: Path) -> None:
    shutil.rmtree(log.parent)


def _other_front(run: Path) -> str:
    """Say whether a front is not that of a search that nobody disturbed."""
    fronts = [json.loads((at / "front.json").read_text()) for at in (run, _finished())]
    return "" if fronts[0] == fronts[1] else "the front is another one"


def _finished() -> Path:
    return place() / "run"


def _failed_well(outcome: Outcome, words: Sequence[str]) -> str:
    """Say what is wrong with how a command met a fault; nothing if it went on."""
    problems = []
    if outcome.code == 1 and "OpenBLAS error: Memory allocation" in outcome.err:
        return ""  # it ends the process by itself, with these words
    if outcome.code not in {0, 2}:
        problems.append(f"exit {outcome.code}")
    for word in ("Traceback", "Exception ignored"):
        if word in outcome.said:
            problems.append(word)
    if outcome.code == 2:
        if outcome.err.lower().count("error: ") < 1:
            problems.append("no error is said")
        said = outcome.said.replace("\n", " ")
        problems += [f"{word!r} is not said" for word in words if word not in said]
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
        left_over(folder),
        wrongly_pushed(folder) if case.words == PUSH else "",
    )


def _logs(folder: Path) -> dict[str, Any]:
    found = folder.glob("*/evaluations.jsonl")
    return {str(path.relative_to(folder)): lines(path) for path in found}


def _moved(case: Case, old: str, new: str) -> Case:
    words = tuple(new if word == old else word for word in case.words)
    return Case(words, case.needs, new if case.run == old else case.run)


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


def _unknown(number: int) -> Any:
    raise KeyError(f"uid not found: {number}")


def _unread(number: int) -> None:
    read, write = os.pipe()
    os.dup2(write, number)
    os.close(write)
    os.close(read)


def _jumping(seconds: float) -> None:
    real, calls = time.time, [0]

    def now() -> float:
        calls[0] += 1
        return real() + (seconds or 1e6 * (-1) ** calls[0])

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(now(), tz)

    time.time = now
    import mergekit_map.commands.showing as showing

    showing.datetime = Jumping
