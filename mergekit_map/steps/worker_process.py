"""What a process that works for a search runs."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing.connection import Connection

READY = "ready"  # said once, when all is imported


def main(handle: int) -> None:
    """Answer what comes over an open socket, until its other end is closed."""
    os.set_inheritable(handle, False)  # noqa: FBT003 - as it is called
    # Whoever started this is to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[handle], daemon=True).start()
    line = Connection(handle)
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from mergekit_map.steps.serving import Serving, silence

    silence()
    serving = Serving()
    line.send(READY)
    while True:
        try:
            request = line.recv()
        except EOFError:
            break
        line.send(serving.answer(request))
    sys.exit()


def _end_with(handle: int) -> None:
    """End this process when the other end of its line is gone, whatever it is doing."""
    other_end = select.poll()
    other_end.register(handle, select.POLLHUP)
    other_end.poll()
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    os._exit(1)
