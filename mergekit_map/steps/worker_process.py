"""What a process that works for a search runs."""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

_LOOKS = 200  # milliseconds between looks at who died


def main(handle: int, scratch: str) -> None:
    """Answer what comes over an open socket, until its other end is closed.

    The first that is said is the number of this process, when all is imported. The
    folder ``scratch`` is for this process alone, and goes with it.
    """
    os.set_inheritable(handle, False)  # noqa: FBT003 - as it is called
    # Whoever started this is to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[handle, scratch], daemon=True).start()
    _import_all()
    from mergekit_map.steps.serving import Serving

    line, serving = Connection(handle), Serving()
    with suppress(EOFError, OSError):  # when the other end is gone
        line.send(os.getpid())
        while True:
            line.send(serving.answer(line.recv()))
    _end(scratch)


def bear(handle: int) -> None:
    """Import all, once, and fork a process for each line that comes over a socket.

    Each comes with the folder for its process. Who died is said as its number and its
    exit code, as text. Ends when the other end is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=handle)
    control.set_inheritable(False)
    _import_all()
    asked = select.poll()
    asked.register(control, select.POLLIN)
    while True:
        if asked.poll(_LOOKS):
            scratch, lines, *_ = socket.recv_fds(control, 1 << 16, 1)
            if not lines:
                os._exit(0)
            if os.fork() == 0:
                control.close()
                _begin(lines[0], scratch.decode())
            os.close(lines[0])
        _tell_deaths(control)


def _begin(handle: int, scratch: str) -> None:
    """Be a process of its own, in a session of its own."""
    os.setsid()
    os.environ["TMPDIR"], tempfile.tempdir = scratch, None
    try:
        main(handle, scratch)
    finally:
        traceback.print_exc()  # it never comes back but by an error
        os._exit(1)


def _tell_deaths(control: socket.socket) -> None:
    with suppress(ChildProcessError, OSError):
        while (died := os.waitpid(-1, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(died[1])
            control.send(f"{died[0]} {code}\n".encode())


def _import_all() -> None:
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    gc.disable()  # imports make no garbage
    from mergekit_map.steps.serving import silence

    gc.freeze()
    gc.enable()
    silence()


def _end_with(handle: int, scratch: str) -> None:
    """End this process when the other end of its line is gone, whatever it is doing."""
    other_end = select.poll()
    other_end.register(handle, select.POLLHUP)
    other_end.poll()
    _end(scratch)


def _end(scratch: str) -> None:
    """End at once, leaving no file behind."""
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)
