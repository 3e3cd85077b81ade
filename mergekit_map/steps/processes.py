"""Processes on this machine that work for a search.

They are started at once, before anybody has a project for them, since what they import
takes seconds. What is imported here is light.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from mergekit_map.errors import ConfigError
from mergekit_map.files import scratch_folder
from mergekit_map.steps.births import Birth, Nursery, Started

_SECONDS_BETWEEN_LOOKS = 1.0  # at processes whose line somebody else holds open


@dataclass(frozen=True)
class Died:
    """What is heard of a worker that is no more."""

    how: str


@dataclass(frozen=True, eq=False)
class _Process:
    born: Birth
    line: Connection
    scratch: ExitStack  # that has the folder of its temporary files

    def end(self) -> None:
        self.line.close()  # which ends it, whatever it is doing
        self.born.end()
        self.scratch.close()


class Processes:
    """So many processes, each of which answers one request after the other.

    A context; they end with it, or with this program however it ends.
    """

    def __init__(self, count: int):
        if os.name != "posix":
            raise ConfigError("workers need Linux or macOS; search without --workers")
        self.count, self.asked = count, str(count)  # as the command line says it
        self._gpus = visible_gpus()
        # What has opened CUDA must not be forked; without a GPU nothing has.
        forks = sys.platform == "linux" and not self._gpus
        self._nursery = Nursery() if forks else None
        self._torn: set[int] = set()  # whose answer was cut short, by Ctrl-C
        self._told: deque[tuple[int, Any]] = deque()
        self._processes = [self._start(index) for index in range(count)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()
        self._processes = []
        if self._nursery is not None:
            self._nursery.close()

    def send(self, index: int, request: object) -> None:
        """Ask one of them, who answers nothing else now."""
        refuse_ended(self._processes)
        try:
            self._processes[index].line.send(request)
        except OSError:
            pass  # it died, which is heard next
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(f"workers cannot be sent this: {error}") from None

    def hear(self, seconds: float | None = None) -> tuple[int, Any] | None:
        """Wait for an answer, or a ``Died``, and who it is of; None after some time."""
        refuse_ended(self._processes)
        while self._torn:
            self._lose(self._torn.pop())  # what it says next begins in the middle
        lines = {
            process.line: index
            for index, process in enumerate(self._processes)
            if not process.line.closed
        }
        while not self._told:
            ready = wait(
                list(lines), _SECONDS_BETWEEN_LOOKS if seconds is None else seconds
            )
            for line in ready:
                assert isinstance(line, Connection)
                self._take(lines[line])
            for index in () if ready else lines.values():
                if self._processes[index].born.exit_code(0) is not None:
                    self._lose(index)
            if seconds is not None:
                break
        return self._told.popleft() if self._told else None

    def restart(self, index: int) -> None:
        """Put another one in the place of one that died."""
        self._processes[index].end()
        self._processes[index] = self._start(index)

    def _take(self, index: int) -> None:
        self._torn.add(index)  # unless it is read to its end
        try:
            heard = self._processes[index].line.recv()
            if isinstance(heard, int):
                self._processes[index].born.number = heard
            self._told.append((index, heard))
        except (EOFError, OSError):
            self._lose(index)
        self._torn.discard(index)

    def _lose(self, index: int) -> None:
        lost = self._processes[index]
        lost.line.close()
        code = lost.born.exit_code(_SECONDS_BETWEEN_LOOKS)
        lost.born.end()
        self._told.append((index, Died(_how(code))))

    def _start(self, index: int) -> _Process:
        ours, theirs = Pipe()
        stack = ExitStack()
        scratch = stack.enter_context(scratch_folder())
        environment = {**os.environ, "TMPDIR": str(scratch)}
        if self._gpus:
            share = self._gpus[index :: self.count]
            own = share or [self._gpus[index % len(self._gpus)]]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(own)
        born: Birth
        try:
            if self._nursery is not None:
                born = self._nursery.fork(theirs.fileno(), scratch)
            else:
                born = Started.anew(theirs.fileno(), scratch, environment)
        finally:
            theirs.close()
        return _Process(born, ours, stack)


def visible_gpus() -> Sequence[str]:
    """List the GPUs that this program may use, without opening CUDA."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    asked = subprocess.run(
        ["nvidia-smi", "--list-gpus"], check=False, capture_output=True, text=True
    )
    count = sum(line.startswith("GPU ") for line in asked.stdout.splitlines())
    return [str(number) for number in range(count)]


def refuse_ended(workers: Sequence[object]) -> None:
    """Refuse to ask workers that ended with their context.

    Raises:
        ConfigError: there are none.
    """
    if not workers:
        raise ConfigError(
            "these workers have ended with their 'with'; search inside of it, or make "
            "new ones"
        )


def _how(code: int | None) -> str:
    if code is None:
        return "ended"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
