"""Shards that run at the same time, and are killed, end as one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

# Imports once what shards import, then runs them in children. Some are killed at a
# random moment and started again; the parent itself runs nothing: what has threads must
# not be forked.
SCRIPT = """
import contextlib, gc, importlib, os, random, signal, sys, time
import mergekit_map.commands.search, mergekit_map.commands.sharding
import mergekit_map.results.company as company
from mergekit_map.cli import main
from quick_fronts import blank_pictures, fronts_of_few_points

company._SILENCE, company._STUCK, company._BEAT = 4.0, 2.0, 0.1

def search(*words):
    child = os.fork()
    if child == 0:
        with fronts_of_few_points(), blank_pictures():
            main(["search", "config.yml", *words], standalone_mode=False)
        with open("modules", "w") as file:
            print(*sys.modules, sep=chr(10), file=file)
        os._exit(0)
    return child

def ended(child):
    return os.waitpid(child, os.WNOHANG)[0] != 0

os.waitpid(search("whole"), 0)
for name in open("modules").read().split():
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.freeze()  # what was imported is no garbage of any child
random.seed(int(sys.argv[2]))
shards = [f"{i}/2" for i in (1, 2)]
hired = sys.argv[3:]
running = {shard: search("shared", "--shard", shard, *hired) for shard in shards}
kills = int(sys.argv[1])
killed = 0
while running:
    time.sleep(random.uniform(0.05, 0.6))
    for shard, child in list(running.items()):
        if ended(child):
            del running[shard]
    if killed < kills and running:
        shard = random.choice(sorted(running))
        os.kill(running[shard], signal.SIGKILL)
        os.waitpid(running[shard], 0)
        killed += 1
        running[shard] = search("shared", "--shard", shard, *hired)
os.waitpid(search("shared"), 0)
print(killed)
"""


def in_children(kills: int, seed: int, *options: str) -> int:
    """Search in one process, and in two shards of which so many are killed."""
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(kills), str(seed), *options],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        timeout=500,
    )
    Path("said.txt").write_text(done.stdout)
    return int(done.stdout.splitlines()[-1])


def lines(path: str) -> list[str]:
    """Read a log without its timings."""
    found = [json.loads(text) for text in Path(path).read_text().splitlines()]
    return [json.dumps({**line, "seconds": 0}) for line in found]


def measured(text: str) -> str:
    """Leave out of a line what only its turn says."""
    line = json.loads(text)
    return json.dumps({k: v for k, v in line.items() if k not in {"role", "foretold"}})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "options"), [(0, ()), (10, ()), (4, ("--workers", "2"))]
)
def test_two_shards_find_what_one_process_finds_however_often_they_are_killed(
    family: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("hello world, one plus two\n" * 400)
    Path("two.txt").write_text("def return three\n" * 400)
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "abc"],
        "map": {
            "tasks": {
                "one": {"perplexity": {"file": "one.txt"}, "block": 32},
                "two": {"perplexity": {"file": "two.txt"}, "block": 32},
            },
            "search": {"evaluations": 60, "remeasure": 3},
        },
    }
    Path("config.yml").write_text(yaml.safe_dump(config))

    killed = in_children(kills, kills, *options)

    assert killed == kills
    whole, shared = lines("whole/evaluations.jsonl"), lines("shared/evaluations.jsonl")
    assert len(whole) == len(set(whole)) > 30
    assert shared == whole
    for name in ("front.json", "front.csv", "surrogates.json"):
        assert Path("shared", name).read_bytes() == Path("whole", name).read_bytes()
    parts = [
        [measured(line) for line in lines(f"shared/evaluations.{i}-of-2.jsonl")]
        for i in (1, 2)
    ]
    assert {*parts[0], *parts[1]} == set(map(measured, whole))
    if not kills:
        # Nothing is measured twice, and each does about the same.
        assert sum(map(len, parts)) == len(whole)
        assert abs(len(parts[0]) - len(parts[1])) <= 2
    for part in parts:
        assert len(part) == len(set(part))
