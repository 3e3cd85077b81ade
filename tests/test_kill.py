"""Nothing measured is lost or measured twice, whenever a search is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nested_runs import lines, write
from plain_runs import write_plain

# Imports once what a search imports, then runs each search in a child of its own. Each
# but the first and last is killed at a random moment, some of them before they measured
# anything. The parent itself runs nothing: what has threads must not be forked.
SCRIPT = """
import contextlib, gc, importlib, os, random, signal, sys, time
import mergekit_map.cli.commands.search
from mergekit_map.cli.main import main
from quick_fronts import blank_pictures, fronts_of_few_points

def search(folder):
    child = os.fork()
    if child == 0:
        # Without click's own end of the program, which would unwind the parent's.
        with fronts_of_few_points(), blank_pictures():
            main(["search", "config.yml", folder], standalone_mode=False)
        with open("modules", "w") as file:
            print(*sys.modules, sep=chr(10), file=file)
        os._exit(0)
    return child

def size():
    log = "killed/evaluations.jsonl"
    return os.path.getsize(log) if os.path.exists(log) else 0

start = time.monotonic()
os.waitpid(search("whole"), 0)
seconds = time.monotonic() - start
for name in open("modules").read().split():
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
gc.freeze()  # what was imported is no garbage of any child
text = open("whole/evaluations.jsonl").read()
line = len(text) / text.count(chr(10))
random.seed(int(sys.argv[2]))
killed = 0
for _ in range(int(sys.argv[1])):
    enough = size() + random.choice([0, 0.1, 1, 2, 3]) * line
    child = search("killed")
    ended = 0
    while size() < enough and not ended:
        time.sleep(0.002)
        ended, status = os.waitpid(child, os.WNOHANG)
    time.sleep(random.uniform(0, 0.03) * seconds)
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    killed += os.WIFSIGNALED(status)
os.waitpid(search("killed"), 0)
print(killed)
"""


@pytest.mark.slow
def test_killed_six_times_a_search_ends_as_if_undisturbed(
    family: dict[str, Path],
    make_model: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("hello world, one plus two\n" * 400)
    Path("two.txt").write_text("def return three\n" * 400)
    other = make_model("killed", 70, family["base"])
    tasks = {
        name: {"perplexity": {"file": f"{name}.txt"}, "block": 64}
        for name in ("one", "two")
    }
    config = write_plain(family, evaluations=20, remeasure=5)
    config["map"]["tasks"] = tasks
    del config["dtype"]
    config["merge_method"] = "dare_ties"
    config["models"] = [
        {"model": str(path), "parameters": {"density": 0.5}}
        for path in (family["a"], family["b"], other)
    ]
    write(config)

    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, "6", "1"]
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        timeout=500,
    )

    assert int(done.stdout.splitlines()[-1]) >= 4  # the others were just finished
    whole, killed = evaluations("whole"), evaluations("killed")
    assert len(whole) == len(set(whole)) > 20
    assert killed == whole
    for name in ("front.json", "front.csv", ".state/surrogates.json"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()
    recipe = Path("killed/recipe.yml").read_text().replace("killed/", "whole/")
    assert recipe == Path("whole/recipe.yml").read_text()


def evaluations(run: str) -> list[str]:
    """Read a log without its timings."""
    log = lines(f"{run}/evaluations.jsonl")
    return [json.dumps({**line, "seconds": None}) for line in log]
