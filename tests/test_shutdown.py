"""Signals, a closed standard output and errors of the system end a command cleanly."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs import invoke

from mergekit_map.utils.shutdown import Interrupted, check_interrupt, deferred

PROGRAM = [sys.executable, "-W", "ignore", "-m", "mergekit_map"]
START = """
import os, signal, time; signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup
from mergekit_map.utils.files import scratch_folder
from mergekit_map.utils.shutdown import check_interrupt, deferred, handle_signals
handle_signals()
send = lambda number: os.kill(os.getpid(), number)
made = lambda *names, make=os.mkdir: (make(*names), send(signal.SIGINT))
"""


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without job control lets background processes ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_sigterm_while_libraries_are_imported_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.yml").touch()
    process = start(*PROGRAM, "search", str(tmp_path / "config.yml"), "run")
    line = process.stderr.readline()
    assert "loading mergekit ..." in line, line

    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()

    assert process.returncode == 143, said
    again = f"mergekit-map search {tmp_path}/config.yml run"
    assert said == f"\nstopped by SIGTERM; to go on, type it again: {again}\n"


@pytest.mark.parametrize(
    ("script", "code", "out"),
    [
        ("send(signal.SIGHUP); print('later')", 129, ""),
        ("os.mkdir = made; f = scratch_folder(); f.__enter__(); send(2)", 130, ""),
        (
            "with deferred():\n"
            "    send(signal.SIGINT); send(signal.SIGINT); print('later')\n"
            "    try: check_interrupt()\n"
            "    except KeyboardInterrupt as error: print(type(error).__name__)\n"
            "    os._exit(0)",
            0,
            "later\nInterrupted\n",
        ),
        (
            "with scratch_folder(), deferred():\n"
            "    send(signal.SIGINT); time.sleep(.6); send(signal.SIGTERM)",
            143,
            "",
        ),
        (
            "if child := os.fork():\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "else: send(signal.SIGTERM)",
            0,
            f"{-signal.SIGTERM}\n",
        ),
    ],
    ids=["at once", "no temporary files", "a flag", "twice", "not in children"],
)
def test_a_signal_sets_a_flag_or_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, code: int, out: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    process = start(sys.executable, "-u", "-c", START + script)
    printed, said = process.communicate()

    assert (process.returncode, printed) == (code, out), said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_notebook_has_its_own_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may ignore it
    with pytest.raises(KeyboardInterrupt, match=r"^\Z") as found, deferred():
        signal.raise_signal(signal.SIGINT)

    assert not isinstance(found.value, Interrupted)
    check_interrupt()


def test_nothing_is_said_where_standard_output_is_closed() -> None:
    read, write = os.pipe()
    os.close(read)

    done = subprocess.run(
        [*PROGRAM, "cache"], stdout=write, stderr=subprocess.PIPE, check=False
    )

    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_error_of_the_system_is_one_line_that_names_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> dict[str, Any]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run/front.json")

    monkeypatch.setattr("mergekit_map.workflows.init.config_schema", fail)

    result = invoke("schema", code=2)

    words = "error: [Errno 28] No space left on device: 'run/front.json'"
    assert result.stderr.splitlines() == ["loading mergekit ...", words]
