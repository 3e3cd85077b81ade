"""The time of a search by workers beside that of one process, in turns in one run.

    python benchmarks/workers.py [--evaluations 32] [--tokens 32768] [--times 2]

On an earlier family of the demo. A time is the best of several whole commands, that of
the processor of the first process and, as ``workers``, the most of another. Log,
front and table must be the bytes of one process of as many threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from family8 import EARLIER_DEMO
from records import machine, markdown, read

from mergekit_map.demo.family import demo_config, train_family
from mergekit_map.utils.files import cache_home

RESULT = Path(__file__).resolve().parent / "results" / "workers.md"
_FOUND = ("front.json", "front.csv")


@dataclass(frozen=True)
class Way:
    """A way to search."""

    name: str
    threads: int
    options: tuple[str, ...] = ()


WAYS = (
    Way("one process of one thread", 1),
    Way("two workers of one thread", 2, ("--workers", "2")),
    Way("one process of two threads", 2),
)


@dataclass(frozen=True)
class Took:
    """Seconds of one search."""

    wall: float
    driver: float  # of the processor
    workers: float  # of the processor: the most that one of them took


def write_config(folder: Path, family: Path, evaluations: int, tokens: int) -> Path:
    """Write what is searched: two texts of so many tokens."""
    library = sorted(Path(json.__file__).parents[1].glob("*.py"))
    tasks = {}
    for index, name in enumerate(("odd", "even")):
        text = "\n".join(path.read_text("utf-8") for path in library[index::2])
        path = folder / f"{name}.txt"
        path.write_text(text[: 8 * tokens], encoding="utf-8")
        tasks[name] = {"perplexity": {"file": str(path)}, "max_tokens": tokens}
    search = {"evaluations": evaluations, "bounds": [0, 1], "seed": 0}
    content = yaml.safe_load(demo_config(family))
    content["map"] = {"tasks": tasks, "search": search}
    config = folder / "config.yml"
    config.write_text(yaml.safe_dump(content), encoding="utf-8")
    return config


def search(config: Path, run: Path, way: Way) -> Took:
    """Search in one way, on the clock."""
    main = "from mergekit_map.__main__ import main; main()"
    words = [sys.executable, "-c", main, "search", str(config), str(run), "--quiet"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(way.threads),
        "MERGEKIT_MAP_HOME": str(run.with_name(f"{run.name}-home")),  # nothing kept
    }
    started = time.monotonic()
    words += way.options
    process = psutil.Popen(words, env=environment, stdout=subprocess.DEVNULL)
    seen, driver = dict[int, float](), 0.0
    while process.poll() is None:
        with suppress(psutil.Error):  # what has just ended
            driver = sum(process.cpu_times()[:2])  # of the user and of the system
            for child in process.children(recursive=True):
                seen[child.pid] = sum(child.cpu_times()[:2])
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{way.name} failed")
    return Took(time.monotonic() - started, driver, max(seen.values(), default=0.0))


def assert_same(run: Path, other: Path) -> None:
    """Compare what was found."""
    for name in _FOUND:
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    logs = [
        [{**line, "seconds": 0} for line in read(one / "evaluations.jsonl")]
        for one in (run, other)
    ]
    assert logs[0] == logs[1], "the logs differ"


def table(times: dict[Way, list[Took]]) -> str:
    """Write the best of each way, and its share of the first."""
    best = {way: min(took, key=lambda one: one.wall) for way, took in times.items()}
    first = best[WAYS[0]].wall
    columns = ["search", "seconds", "of one process", "processor: first", "workers"]
    rows = [
        [way.name, f"{took.wall:.1f}", f"{took.wall / first:.2f}"]
        + [f"{seconds:.1f}" for seconds in (took.driver, took.workers)]
        for way, took in best.items()
    ]
    return "\n".join(markdown(columns, rows))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    folder = cache_home() / f"demo-family-{EARLIER_DEMO.recipe}"
    family = train_family(folder, EARLIER_DEMO)
    times: dict[Way, list[Took]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        config = write_config(folder, family, asked.evaluations, asked.tokens)
        for number in range(asked.times):
            for index, way in enumerate(WAYS):
                run = folder / f"{number}-{index}"
                times[way].append(search(config, run, way))
                print(way.name, times[way][-1], os.getloadavg(), flush=True)
        # As many threads fit, so that they must find the same to the last bit.
        assert_same(folder / "0-1", folder / "0-2")
    text = table(times)
    print(text)
    if asked.keep:
        size = f"--evaluations {asked.evaluations} --tokens {asked.tokens}"
        command = f"python benchmarks/workers.py {size} --times {asked.times}"
        RESULT.write_text(f"# Workers\n\n`{command}`: {machine()}.\n\n{text}\n")


if __name__ == "__main__":
    main()
