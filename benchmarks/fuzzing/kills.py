"""Ten random kills of workers and drivers: nothing is lost, nothing is doubled.

Run it: python benchmarks/fuzzing/kills.py [--ray] CONFIG OUT [KILLS] [SEED]

A search by one process comes first; then one with workers (with ``--ray``, actors of a
Ray cluster that each search starts) is killed so often, workers and driver by turns as
chance has it, and goes on with another number of workers each time. In the end log,
front, surrogates and recipes must be the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

FOUND = ("front.json", "front.csv", "surrogates.json")
_ENDED_WITHIN = 120  # seconds; processes of Ray look for their driver now and then


def command(config: str, run: Path, workers: str | None) -> list[str]:
    """Give the command that searches, in the program that runs this."""
    main = "from mergekit_map.cli import main; main()"
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
    names = ("evaluations.jsonl", "evaluations.early.jsonl")
    found = [line for name in names for line in lines(run, name)]
    return {f"{e['coefficients']} {e['task']} {e['seconds']}" for e in found}


def measuring(processes: list[int]) -> list[int]:
    """Leave out what only serves those that measure: Ray has a dozen such processes."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes}
    actors = [pid for pid in processes if names[pid].startswith(b"ray::Actor")]
    ray = any(b"raylet" in name for name in names.values())
    return actors if ray else processes


def kill_some(driver: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kill the driver, or one of its workers."""
    workers = descendants(driver.pid)
    if workers and rng.random() < 0.5 and (some := measuring(workers)):
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
    config: str, run: Path, kills: int, rng: random.Random, kind: str
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
                whom = kill_some(driver, rng)
                count += 1
                after = measured(run)
                assert before <= after, "what was measured is lost"
                print(f"kill {count} of {whom}, {len(after)} measured", flush=True)
                known, more = after, rng.randrange(1, 8)
            time.sleep(0.02)
        if driver.returncode == 0:
            break
    print(f"{count} kills")


def main() -> None:
    """Search twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("out", type=Path)
    parser.add_argument("kills", type=int, nargs="?", default=10)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--ray", action="store_true")
    asked = parser.parse_args()
    alone, killed = asked.out / "alone", asked.out / "killed"
    subprocess.run(command(asked.config, alone, None), check=True)
    kind = "ray:" if asked.ray else ""
    disturbed(asked.config, killed, asked.kills, random.Random(asked.seed), kind)
    logs = [[{**e, "seconds": 0} for e in lines(run)] for run in (alone, killed)]
    assert logs[0] == logs[1], "the logs differ"
    for name in FOUND:
        assert (alone / name).read_bytes() == (killed / name).read_bytes(), name
    recipes = sorted(alone.glob("recipes/*.yml"))
    assert recipes
    for path in [*recipes, alone / "recipe.yml"]:
        text = (killed / path.relative_to(alone)).read_text()
        assert text.replace(str(killed), str(alone)) == path.read_text(), path
    assert not (killed / "evaluations.early.jsonl").exists()
    print(f"the same bytes: {len(logs[0])} measurements")


if __name__ == "__main__":
    main()
