"""What a process that works for a search runs."""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

READY = "ready"  # said once, when all is imported


def main(handle: int, scratch: str) -> None:
    """Answer what comes over an open socket, until its other end is closed.

    The folder ``scratch`` is for this process alone, and goes with it.
    """
    os.set_inheritable(handle, False)  # noqa: FBT003 - as it is called
    # Whoever started this is to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[handle, scratch], daemon=True).start()
    line = Connection(handle)
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    gc.disable()  # imports make no garbage
    from mergekit_map.steps.serving import Serving, silence

    gc.freeze()
    gc.enable()
    silence()
    serving = Serving()
    with suppress(EOFError, OSError):  # when the other end is gone
        line.send(READY)
        while True:
            line.send(serving.answer(line.recv()))
    _end(scratch)


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
