"""Shared by the benchmarks of searches: records of JSON lines, tables of Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def read(*paths: Path) -> list[Entry]:
    """Read the lines of records; of one that is not there yet, none."""
    there = [path for path in paths if path.exists()]
    return [
        json.loads(line) for path in there for line in path.read_text().splitlines()
    ]


def append(path: Path, *entries: Mapping[str, Any]) -> None:
    """Keep what a run came to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def missing(path: Path, jobs: Iterable[Entry]) -> list[Entry]:
    """List the jobs of which a record has no line with the same values."""
    wanted = list(jobs)
    keys = wanted[0] if wanted else ()
    done = {tuple(entry[key] for key in keys) for entry in read(path)}
    return [job for job in wanted if tuple(job.values()) not in done]


def markdown(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write the lines of a table."""
    lines = [list(columns)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def machine() -> str:
    """Name the processor, and how many cores there are of it."""
    cores = len(os.sched_getaffinity(0))
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    model = (names or [platform.processor() or platform.machine()])[0]
    return f"{model}, {cores} core{'s' if cores > 1 else ''}"
