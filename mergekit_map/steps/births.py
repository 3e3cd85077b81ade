"""How processes begin that work for a search: anew, or forked from one that imported.

What they import takes seconds, of each of them. Forked from a process that has imported
it and done nothing else, they have it at once, and share its memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_SCRIPT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from mergekit_map.steps.worker_process import {name}
{name}(int(sys.argv[2]), *sys.argv[3:])
"""
_PAUSE = 0.02  # seconds


class Birth(Protocol):
    """A process that was started."""

    number: int | None  # once it is known

    def exit_code(self, seconds: float) -> int | None:
        """Wait for its end for some seconds; None where it is not known to be over."""
        ...

    def end(self) -> None:
        """Kill it, unless it is over."""
        ...


class Started:
    """A process with an interpreter of its own."""

    def __init__(self, process: subprocess.Popen[bytes]):
        self._process = process
        self.number: int | None = process.pid

    @classmethod
    def anew(cls, line: int, scratch: Path, environment: Mapping[str, str]) -> Started:
        """Start one that answers over an open socket."""
        return cls(_interpreter("main", line, str(scratch), environment=environment))

    def exit_code(self, seconds: float) -> int | None:
        """Wait for its end for some seconds; None where it is not known to be over."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> None:
        """Kill it, unless it is over."""
        self._process.kill()
        self._process.wait()


class Nursery:
    """A process that imports, and of which others are forked."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = _interpreter("bear", theirs.fileno())
        self._codes: dict[int, int] = {}
        self._rest = b""

    def fork(self, line: int, scratch: Path) -> Forked:
        """Let it fork one that answers over an open socket."""
        name = [str(scratch).encode()]
        try:
            socket.send_fds(self._control, name, [line])
        except OSError:  # it died; those forked of it live on
            self.close()
            self._begin()
            socket.send_fds(self._control, name, [line])
        return Forked(self)

    def exit_code(self, number: int) -> int | None:
        """Say how one of them ended, if it is known."""
        with suppress(BlockingIOError, OSError):
            while heard := self._control.recv(1 << 16, socket.MSG_DONTWAIT):
                *lines, self._rest = (self._rest + heard).split(b"\n")
                for words in map(bytes.split, lines):
                    self._codes[int(words[0])] = int(words[1])
        return self._codes.get(number)

    def close(self) -> None:
        """End it; those forked of it end with their lines."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class Forked:
    """A process that a nursery forked."""

    def __init__(self, nursery: Nursery):
        self._nursery = nursery
        self.number: int | None = None

    def exit_code(self, seconds: float) -> int | None:
        """Wait for its end for some seconds; None where it is not known to be over."""
        until = time.monotonic() + seconds
        while self.number is not None:
            code = self._nursery.exit_code(self.number)
            if code is not None or time.monotonic() >= until:
                return code
            time.sleep(_PAUSE)
        return None

    def end(self) -> None:
        """Kill it, unless it is over."""
        if self.number is not None and self.exit_code(0) is None:
            with suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)


def _interpreter(
    name: str,
    handle: int,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            *("-c", _SCRIPT.format(name=name)),
            *(json.dumps(sys.path), str(handle), *arguments),
        ],
        pass_fds=[handle],
        stdin=subprocess.DEVNULL,
        stdout=2,  # what tasks print is for people
        env=environment,
        start_new_session=True,  # Ctrl-C is for whoever gives out the work
    )
