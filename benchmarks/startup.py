"""Seconds of the processor that commands take where there is next to nothing to do.

    python benchmarks/startup.py RUN [--repeats 5]

RUN is the folder of a finished search. Each command runs in a process of its own, on
one core and with one thread; the table has medians of user and system time of the whole
process, and of the time until it said its first words on standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

OURS = [sys.executable, "-W", "ignore", "-m", "mergekit_map"]
SHARE = 1.15  # of what mergekit and lm-eval take, for a search that starts


def measure(command: list[str]) -> tuple[float, float | None]:
    """Give the processor seconds, and the seconds until the first words if any."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    with process.stderr:
        first = process.stderr.read(1)
        said = time.perf_counter() - started
        process.stderr.read()
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, said if first else None


def medians(command: list[str], repeats: int) -> tuple[float, float | None]:
    """Measure a command several times, after once for the caches of the disk."""
    measure(command)
    seconds, words = zip(*(measure(command) for _ in range(repeats)), strict=True)
    said = [second for second in words if second is not None]
    return statistics.median(seconds), statistics.median(said) if said else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    run, nowhere = str(options.run), str(options.run / "no such file")
    mergekit = shutil.which("mergekit-yaml", path=Path(sys.executable).parent)
    assert mergekit is not None, "mergekit stands beside this Python"
    theirs = [[mergekit, "--help"], [sys.executable, "-c", "import lm_eval"]]
    bound = SHARE * sum(medians(command, options.repeats)[0] for command in theirs)
    bounds = {
        ("--help",): 0.15,
        ("push", "--help"): 1.0,
        ("compare", "--help"): 1.0,
        ("schema",): 1.0,
        ("select", run, "--index", "0"): 1.0,
        ("report", run): 1.0,
        ("search", "--help"): bound,
        ("search", nowhere, nowhere): bound,  # imports all, and finds no file
    }
    print(
        "| command | seconds | at most | first words after |\n| --- | --- | --- | --- |"
    )
    for words, most in bounds.items():
        seconds, said = medians([*OURS, *words], options.repeats)
        name = " ".join(words).replace(nowhere, "-").replace(run, "RUN")
        after = "" if said is None else f"{said:.2f} s"
        print(f"| {name} | {seconds:.2f} | {most:.2f} | {after} |", flush=True)


if __name__ == "__main__":
    main()
