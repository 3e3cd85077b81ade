"""Ctrl-C and SIGTERM at random moments of a search: it ends cleanly and loses nothing.

    PYTHONPATH=$PWD:$PWD/tests python benchmarks/fuzzing/interrupts.py \\
        [MOMENTS] [STARTS] [SEED]

A search of tiny models runs undisturbed first, in a process of its own and in a fork of
this one, which has imported everything. Then searches of the same configuration are
interrupted MOMENTS times, STARTS of them in processes of their own, imports included. A
moment is uniform between the start of a process and the end that it would have; every
fourth signal is SIGTERM. A search goes on in the same folder until it is finished.

After each moment: exit code 130 or 143, no traceback, no temporary file, a log of whole
lines that begins with the lines it had before. After each finished search: the bytes of
the undisturbed one. Signals that come before the first line of the program, while the
interpreter starts, are counted by themselves: no program can handle those.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

FOUND = ("front.json", "front.csv", ".state/surrogates.json")
TRACES = ("Traceback", "Exception ignored", "KeyboardInterrupt", "Aborted")
UNTOUCHED = "finished before a signal, so not counted"
AT_ONCE = 2  # seconds; the interpreter ends meanwhile
LONGEST = 300  # seconds until a process that was told to end counts as hanging

TASKS = {
    "one": {"perplexity": {"file": "one.txt"}, "block": 32},
    "two": {"perplexity": {"file": "two.txt"}, "block": 32},
    "questions": {"lm_eval": "q.yaml", "metric": "acc"},
}
QUESTIONS = {
    "task": "questions",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{q}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{gold}}",
    "metric_list": [{"metric": "acc"}],
}


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int  # negative: killed by that signal
    said: str
    seconds: float  # from its start
    latency: float | None  # from the signal, if one was sent


def main() -> None:
    """Interrupt searches, compare, and print how often what happened."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("moments", type=int, nargs="?", default=300)
    parser.add_argument("starts", type=int, nargs="?", default=40)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
        os.chdir(name)
        prepare()
        failures = interrupt(asked.moments, asked.starts, random.Random(asked.seed))
    sys.exit(bool(failures))


def prepare() -> None:
    """Write models, texts, tasks and a configuration into the working folder."""
    for key, value in {
        "MERGEKIT_MAP_HOME": "home",
        "HF_HOME": "hub",
        "TMPDIR": "tmp",
    }.items():
        Path(value).mkdir()
        os.environ[key] = str(Path(value).resolve())
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    run_in_fork(_write_models)
    Path("one.txt").write_text("hello world, one plus two\n" * 200)
    Path("two.txt").write_text("def return three\n" * 200)
    choices = ["one", "two", "three"]
    rows = [{"q": f"hello {n}", "choices": choices, "gold": n % 3} for n in range(12)]
    Path("q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = {"data_files": {"test": str(Path("q.jsonl").resolve())}}
    Path("q.yaml").write_text(json.dumps({**QUESTIONS, "dataset_kwargs": files}))
    config = {
        "merge_method": "dare_ties",
        "base_model": "base",
        "models": [{"model": n, "parameters": {"density": 0.6}} for n in "ab"],
        "dtype": "float32",
        "map": {"tasks": TASKS, "search": {"evaluations": 12, "remeasure": 3}},
    }
    Path("config.yml").write_text(json.dumps(config))


def _write_models() -> None:
    from tiny_models import write_models

    write_models(Path(), ["base", "a", "b"], noise=0.004)


def interrupt(moments: int, starts: int, rng: random.Random) -> list[str]:
    """Interrupt searches so often; return what went wrong."""
    whole = {}
    for begin in (begin_anew, begin_in_fork):
        ended = wait(begin("whole"), None, 0)
        assert ended.code == 0, ended.said
        whole[begin] = ended.seconds
        if begin is begin_anew:
            import_all()
            shutil.move("whole", "first")
    problems = different(Path("first"), Path("whole"))
    shutil.rmtree("first")
    print(f"undisturbed: {whole[begin_anew]:.1f} s, forked {whole[begin_in_fork]:.1f}")
    counts: Counter[str] = Counter()
    latencies: list[float] = []
    total = len(lines(Path("whole")))
    run, done = Path("run"), 0
    while done < moments:
        begin = begin_anew if done < starts else begin_in_fork
        number = signal.SIGTERM if rng.random() < 0.25 else signal.SIGINT
        before = lines(run)
        # What is measured already is not measured again: about half of the time.
        left = whole[begin] * (1 - 0.5 * len(before) / total)
        after = rng.uniform(0, left)
        ended = wait(begin(run.name), number, after)
        what, problem = judged(ended, number, before, run)
        counts[what] += 1
        if problem:
            problems.append(f"{number.name} after {after:.3f} s: {problem}")
            print(problems[-1], ended.said[-2000:], sep="\n", flush=True)
        if ended.latency is not None:
            done += 1
            latencies.append(ended.latency)
        if ended.code == 0:
            problems += different(run, Path("whole"))
            shutil.rmtree(run)
    if run.exists():
        ended = wait(begin_in_fork(run.name), None, 0)
        problems += [ended.said] if ended.code else different(run, Path("whole"))
    print(f"{done} moments, {min(starts, done)} of them in processes of their own")
    print(*(f"  {count} {what}" for what, count in counts.most_common()), sep="\n")
    middle, longest = statistics.median(latencies), max(latencies)
    print(f"seconds from signal to end: median {middle:.2f}, most {longest:.2f}")
    print(*(problems or ["nothing lost, no traceback, the same bytes"]), sep="\n")
    return problems


def begin_anew(run: str) -> tuple[int, str]:
    """Start the program as a shell does; return its process and what it writes to."""
    command = [sys.executable, "-W", "ignore", "-m", "mergekit_map"]
    return _fork(lambda: os.execv(sys.executable, [*command, *_words(run)]))


def begin_in_fork(run: str) -> tuple[int, str]:
    """Start the program where everything is imported."""

    def work() -> None:
        from mergekit_map.utils.shutdown import handle_signals

        handle_signals()
        os.write(ready, b"1")
        from mergekit_map.cli.main import main as program

        sys.argv = ["mergekit-map", *_words(run)]
        try:
            program()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)

    told, ready = os.pipe()
    begun = _fork(work)
    os.read(told, 1)
    os.close(told)
    os.close(ready)
    return begun


def _words(run: str) -> list[str]:
    return ["search", "config.yml", run]


def _fork(work: Callable[[], None]) -> tuple[int, str]:
    said = f"said-{len(list(Path().glob('said-*')))}"
    child = os.fork()
    if child:
        return child, said
    code = 1
    with suppress(BaseException):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handle = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        work()
        code = 0
    os._exit(code)


def run_in_fork(work: Callable[[], None]) -> None:
    """Do something in a child: a process that has threads must not be forked."""
    child, said = _fork(work)
    _, status = os.waitpid(child, 0)
    assert status == 0, Path(said).read_text()


def import_all() -> None:
    """Import what a search imports."""

    def list_modules() -> None:
        sys.argv = ["mergekit-map", *_words("listed")]
        from mergekit_map.cli.main import main as program

        with suppress(SystemExit):
            program()
        Path("modules").write_text("\n".join(sys.modules))

    run_in_fork(list_modules)
    shutil.rmtree("listed")
    for name in Path("modules").read_text().split():
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def wait(begun: tuple[int, str], number: int | None, after: float) -> Ended:
    """Wait for the end of a process; send a signal after so many seconds."""
    child, said = begun
    started = time.monotonic()
    sent: float | None = None
    ended = 0
    while not ended:
        now = time.monotonic()
        if number is not None and sent is None and now - started >= after:
            os.kill(child, number)
            sent = now
        assert now - (sent or started) < LONGEST, f"hangs: {Path(said).read_text()}"
        time.sleep(0.002)
        ended, status = os.waitpid(child, os.WNOHANG)
    now = time.monotonic()
    text = Path(said).read_text()
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, text, now - started, None if sent is None else now - sent)


def judged(
    ended: Ended, number: signal.Signals, before: list[object], run: Path
) -> tuple[str, str]:
    """Return what happened, and what is wrong with it."""
    ours = "mergekit_map" in ended.said or "mergekit-map" in ended.said
    if "init_import_site" in ended.said or (not ours and ended.code == -number):
        return "before the first line of the program", ""
    if ended.latency is None:
        return UNTOUCHED, "" if ended.code == 0 else f"exit code {ended.code}"
    if ended.code == 0 and ended.latency < AT_ONCE:
        return "finished when the signal came", ""
    what = f"ended by {number.name} with {128 + number}"
    if ended.code != 128 + number:
        return "failed", f"exit code {ended.code}"
    if found := [word for word in TRACES if word in ended.said]:
        return "failed", f"shows {found[0]}"
    text = (run / "evaluations.jsonl").read_text() if before else ""
    if not text.endswith("\n" if before else ""):
        return "failed", "a torn line"
    if lines(run)[: len(before)] != before:
        return "failed", "measurements are lost"
    if left := [*run.rglob("*.partial"), *Path("tmp").glob("mergekit-map-*")]:
        return "failed", f"{left[0]} is left"
    return what, ""


def lines(run: Path) -> list[object]:
    """Read a log without how long measurements took."""
    log = run / "evaluations.jsonl"
    text = log.read_text() if log.exists() else ""
    return [{**json.loads(line), "seconds": 0} for line in text.splitlines()]


def different(run: Path, whole: Path) -> list[str]:
    """Compare the files of two finished searches."""
    found = [] if lines(run) == lines(whole) else ["the logs differ"]
    for name in FOUND:
        if (run / name).read_bytes() != (whole / name).read_bytes():
            found.append(f"{name} differs")
    recipe = (run / "recipe.yml").read_text().replace(f"{run}/", f"{whole}/")
    return found + ["recipe.yml differs"] * (
        recipe != (whole / "recipe.yml").read_text()
    )


if __name__ == "__main__":
    main()
