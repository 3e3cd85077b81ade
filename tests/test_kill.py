"""Nothing measured is lost or measured twice, whenever a search is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runs import assert_same_run, untimed, write_plain, write_texts

# Imports once what a search imports, then runs each search in a child of its own: a
# whole one, one that is stopped by Ctrl-C, and one that is killed before it measured
# anything, within its design, and when all is measured but not written yet. The parent
# itself runs nothing: what has threads must not be forked.
SCRIPT = """
import gc, os, signal, sys, time
import mergekit_map.workflows.search
from mergekit_map.cli.main import main
from mergekit_map.utils.shutdown import handle_signals
from quick_fronts import blank_pictures, fronts_of_few_points
from transformers import LlamaForCausalLM

gc.freeze()  # what was imported is no garbage of any child
# A shell without job control lets background processes ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.SIG_DFL)

def search(folder):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(folder + ".txt", os.O_WRONLY | os.O_CREAT), 2)
        handle_signals()
        with fronts_of_few_points(), blank_pictures():
            try:
                main(["search", "config.yml", folder])
            except SystemExit as end:
                os._exit(end.code)
    return child

def lines(folder):
    log = folder + "/evaluations.jsonl"
    return open(log).read().count(chr(10)) if os.path.exists(log) else 0

def stopped(folder, count, number):
    child = search(folder)
    while not os.path.exists(folder) or lines(folder) < count:
        time.sleep(0.002)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

os.waitpid(search("whole"), 0)
codes = [stopped("my run", 2, signal.SIGINT)]
for count in (0, 11, lines("whole")):
    codes.append(stopped("killed", count, signal.SIGKILL))
os.waitpid(search("killed"), 0)
print(codes)
"""


@pytest.mark.slow
def test_a_search_that_is_killed_ends_as_if_undisturbed_and_ctrl_c_says_how_to_go_on(
    family: dict[str, Path],
) -> None:
    more = {"density": 0.5, "evaluations": 9, "remeasure": 2}
    write_plain(family, write_texts("one", "two", block=64), method="dare_ties", **more)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    env = {**os.environ, "PYTHONPATH": path}
    said = subprocess.check_output(command, env=env, text=True, timeout=300)

    code, *codes = json.loads(said.splitlines()[-1])
    assert codes.count(-signal.SIGKILL) >= 2  # the last one may just have finished
    whole = [json.dumps(line) for line in untimed(Path("whole"))]
    assert len(whole) == len(set(whole)) > 20
    assert_same_run(Path("killed"), Path("whole"))

    said = Path("my run.txt").read_text()
    assert code == 130, said
    assert "Traceback" not in said
    assert "type it again: mergekit-map search config.yml 'my run'" in said
    count = len(untimed(Path("my run")))
    assert 2 <= count < len(whole)
    assert Path("my run/evaluations.jsonl").read_bytes().endswith(b"\n")
    assert f"{count} of at most" in said
