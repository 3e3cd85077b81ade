"""Ten random kills of workers and drivers: nothing is lost, nothing is doubled.

Run it: python benchmarks/fuzzing/kills.py [--ray] [--share S] CONFIG OUT [KILLS] [SEED]

A search by one process comes first; then one with workers (with ``--ray``, actors of a
Ray cluster that each search starts) is killed so often, workers and driver by turns as
chance has it, and goes on with another number of workers each time. In the end log,
front, surrogates and recipes must be the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

FOUND = ("front.json", "front.csv", ".state/surrogates.json")
_ENDED_WITHIN = 120  # seconds; processes of Ray look for their driver now and then


def command(config: str, run: Path, workers: str | None) -> list[str]:
    """Give the command that searches, in the program that runs this."""
    main = "from mergekit_map.__main__ import main; main()"
    words = [sys.executable, "-c", main, "search", config, str(run), "--quiet"]
    return [*words, *(["--workers", workers] if workers else [])]


def descendants(process: int) -> list[int]:
    """List the processes that one started, and those that they started."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)],
        check=False,
        capture_output=True,
        text=True,
    )
    children = [int(word) for word in found.stdout.split()]
    return [*children, *(other for child in children for other in descendants(child))]


def lines(run: Path, name: str = "evaluations.jsonl") -> list[dict[str, object]]:
    """Read the finished lines of a log."""
    path = run / name
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def measured(run: Path) -> set[str]:
    """Tell measurements of a run folder apart, by what nobody gets twice: the time."""
    names = ("evaluations.jsonl", ".state/evaluations.early.jsonl")
    found = [line for name in names for line in lines(run, name)]
    return {f"{e['coefficients']} {e['task']} {e['seconds']}" for e in found}


def measuring(driver: int) -> list[int]:
    """List the workers: children of the forkserver, or actors of Ray."""
    names = {}
    for process in descendants(driver):
        with contextlib.suppress(OSError):
            names[process] = Path(f"/proc/{process}/cmdline").read_bytes()
    forked = [p for p, name in names.items() if b"forkserver" in name]
    actors = [p for p, name in names.items() if name.startswith(b"ray::Actor")]
    return actors + [p for p in forked if parent(p) != driver]


def parent(process: int) -> int:
    """Read which process started one; 0 where it is gone."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_text()
        return int(status.rpartition(")")[2].split()[1])
    return 0


def kill_some(driver: subprocess.Popen[bytes], rng: random.Random, share: float) -> str:
    """Kill the driver, or one of its workers: so often, as a share."""
    workers = descendants(driver.pid)
    if workers and rng.random() < share and (some := measuring(driver.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(some), signal.SIGKILL)
        return "a worker"
    how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    os.kill(driver.pid, how)
    driver.wait()
    ends = time.monotonic() + _ENDED_WITHIN
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < ends, "a worker lives on without its driver"
        time.sleep(0.05)
    return f"the driver by {how.name}"


def disturbed(
    config: str, run: Path, kills: int, rng: random.Random, kind: str, share: float
) -> None:
    """Search to the end, killing so often on the way."""
    count = 0
    while True:
        known = measured(run)
        driver = subprocess.Popen(
            command(config, run, f"{kind}{rng.choice([1, 2, 3])}")
        )
        more = rng.randrange(1, 8)
        while driver.poll() is None:
            if count < kills and len(measured(run) - known) >= more:
                time.sleep(rng.uniform(0, 0.3))
                before = measured(run)
                whom = kill_some(driver, rng, share)
                count += 1
                after = measured(run)
                assert before <= after, "what was measured is lost"
                print(f"kill {count} of {whom}, {len(after)} measured", flush=True)
                known, more = after, rng.randrange(1, 8)
            time.sleep(0.02)
        if driver.returncode == 0:
            break
        assert driver.returncode not in {1, 2}, "a search fails"
    print(f"{count} kills")


def main() -> None:
    """Search twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("out", type=Path)
    parser.add_argument("kills", type=int, nargs="?", default=10)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--ray", action="store_true")
    about = "how many kills are of a worker and not of the driver"
    parser.add_argument("--share", type=float, default=0.5, help=about)
    asked = parser.parse_args()
    alone, killed = asked.out / "alone", asked.out / "killed"
    subprocess.run(command(asked.config, alone, None), check=True)
    kind = "ray:" if asked.ray else ""
    rng = random.Random(asked.seed)
    disturbed(asked.config, killed, asked.kills, rng, kind, asked.share)
    logs = [[{**e, "seconds": 0} for e in lines(run)] for run in (alone, killed)]
    assert logs[0] == logs[1], "the logs differ"
    for name in FOUND:
        assert (alone / name).read_bytes() == (killed / name).read_bytes(), name
    recipes = sorted(alone.glob("recipes/*.yml"))
    assert recipes
    for path in [*recipes, alone / "recipe.yml"]:
        text = (killed / path.relative_to(alone)).read_text()
        assert text.replace(str(killed), str(alone)) == path.read_text(), path
    assert not (killed / ".state/evaluations.early.jsonl").exists()
    print(f"the same bytes: {len(logs[0])} measurements")


if __name__ == "__main__":
    main()
