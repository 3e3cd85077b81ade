"""Shared by the benchmarks of searches: records of JSON lines, tables of Markdown."""

from __future__ import annotations

import json
import os
import platform
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

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


def run_missing(
    path: Path, jobs: Iterable[Entry], search: Callable[[Entry], Entry]
) -> None:
    """Do the searches of which a record has no line yet, and keep them, timed.

    Seconds are those of the processor.
    """
    wanted = list(jobs)
    keys = wanted[0] if wanted else ()
    done = {tuple(line[key] for key in keys) for line in read(path)}
    for job in wanted:
        if tuple(job.values()) in done:
            continue
        started = time.process_time()
        found = search(job)
        seconds = round(time.process_time() - started, 2)
        append(path, {**job, **found, "seconds": seconds})
        print(*job.values(), f"{seconds:.1f} s", flush=True)


def parsers(
    about: str | None,
    run: Callable[[Namespace], object],
    table: Callable[[Namespace], object],
    seeds: int,
) -> tuple[ArgumentParser, ArgumentParser, ArgumentParser]:
    """Make the parser of a program of two commands, and that of each of them.

    ``run`` searches the families of a folder with some seeds, for a record.
    """
    parser = ArgumentParser(description=about)
    commands = parser.add_subparsers(required=True)
    running, reading = commands.add_parser("run"), commands.add_parser("table")
    running.set_defaults(call=run)
    running.add_argument("folder", type=Path, help="of the families")
    running.add_argument("runs", type=Path, help="a .jsonl file, which grows")
    running.add_argument("--seeds", type=int, default=seeds)
    reading.set_defaults(call=table)
    return parser, running, reading


def markdown(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write the lines of a table."""
    lines = [list(columns)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def machine() -> str:
    """Name the processor and how many cores there are of it, and the GPUs."""
    cores = len(os.sched_getaffinity(0))
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    model = (names or [platform.processor() or platform.machine()])[0]
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ", ".join([f"{model}, {cores} core{'s' if cores > 1 else ''}", *gpus])
