"""A pool of workers that measure merges, one task of one merge at a time.

Workers finish in any order; the caller gets measurements in the order of one process. A
worker is a process on this machine, or an actor of a Ray cluster (``workers/ray.py``).
This module imports little, so that worker processes can begin their slow imports before
this process does.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from mergekit_map.errors import ConfigError, EvaluationError, MergeError, first_line
from mergekit_map.types import Measurement, MeasurementRequest
from mergekit_map.utils.files import scratch_folder, sha256_of_file, temporary
from mergekit_map.utils.progress import stage
from mergekit_map.utils.shutdown import check_interrupt

if TYPE_CHECKING:
    from mergekit_map.evaluation.evaluator import Arrived
    from mergekit_map.evaluation.project import Project

_DEATHS = 2  # of workers at the same task
_LONGEST_FOLDER = 70  # characters, before /pymp-xxxxxxxx/listener-xxxxxxxx
_SECONDS_BETWEEN_CHECKS = 0.2  # for signals, which do not end a wait
_SLOW_IMPORT = "mergekit_map.workers.worker_main"


@dataclass(frozen=True)
class Opening:
    """A project, packed for workers, which open its models."""

    project: bytes
    paths: Sequence[str]  # where its modules are
    # Files of modules, and their digests, by the names that lm-eval gave them.
    sources: Mapping[str, tuple[str, str]]
    threads: int  # of each worker, when it measures
    threads_of_search: int  # with which ``merge`` writes, and a worker opens the models


# The measurement of a worker, or the error that one process would have raised.
Answer: TypeAlias = Measurement | Exception


def packed(project: Project, count: int, threads: int | None = None) -> Opening:
    """Pack a project for ``count`` workers, or raise ConfigError."""
    import torch  # here, as the forkserver is started before it

    # lm-eval's tasks bring modules, which it names by their paths or as its own.
    modules = {
        name: module
        for name, module in [*sys.modules.items()]
        if "__mtime__" in getattr(module, "__dict__", {})
    }
    for name in modules:
        add_parent(name)
    try:
        content = pickle.dumps(project)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"what is measured cannot be sent to workers ({error}); define it at the "
            "top of a module, or search without --workers"
        ) from None
    files = {
        name: (str(module.__file__), sha256_of_file(Path(str(module.__file__))))
        for name, module in modules.items()
        if os.fsencode(name) in content
    }
    for name, (file, _) in files.items():
        if os.stat(file).st_mtime_ns != vars(modules[name])["__mtime__"]:
            raise MergeError(f"{file} changed; start again")
    return Opening(
        project=content,
        paths=[*sys.path],
        sources=files,
        threads=threads or max(1, torch.get_num_threads() // count),
        threads_of_search=torch.get_num_threads(),
    )


def add_parent(name: str) -> None:
    """Add what pickle takes for a module's package: the path before its first dot."""
    parent = name.partition(".")[0]
    sys.modules.setdefault(parent, types.ModuleType(parent))


class WorkerHandle(Protocol):
    """A process or an actor, started anew for each project and after each death."""

    dies_with: type[Exception]  # the error that its futures raise once it is dead

    def ask(self, opening: Opening, request: MeasurementRequest) -> Future[Answer]:
        """Return the future of an answer; start a worker if there is none."""

    def end(self) -> None:
        """End the worker, dead or alive."""


@dataclass(eq=False)
class PendingTask:
    """A measurement that was requested, or announced."""

    request: MeasurementRequest
    arrived: Arrived | None = None  # None where the caller waits for it
    running: bool = False
    deaths: int = 0  # of workers at it
    answer: Answer | None = None


@dataclass(eq=False)
class _Slot:
    handle: WorkerHandle
    task: PendingTask | None = None
    future: Future[Answer] | None = None
    merge: object = None  # that it has made


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Measures merges with several workers; a context that ends them.

    They start at the first measurement of a project. By default, they share the threads
    of this process.
    """

    def __init__(self, handles: Sequence[WorkerHandle], threads: int | None = None):
        self.count = len(handles)
        self.threads = threads
        self._slots = [_Slot(handle) for handle in handles]
        self._opening: Opening | None = None
        # In the order of one process.
        self._pending: dict[MeasurementRequest, PendingTask] = {}
        self._measured = False  # whether there is a measurement of this project

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            slot.handle.end()
        self._slots = []

    def work_for(self, opening: Opening) -> WorkerPool:
        """Measure merges of this project from now on."""
        if not self._slots:
            raise ConfigError(
                "these workers have ended with their 'with'; search inside of it, or "
                "make new ones"
            )
        for slot in self._slots:
            slot.handle.end()  # with the models of another project
        self._slots = [_Slot(slot.handle) for slot in self._slots]
        self._opening = opening
        self._pending = {}
        self._measured = False
        return self

    def expect(self, ahead: Iterable[MeasurementRequest], arrived: Arrived) -> None:
        """Announce the next measurements in order; running ones are finished."""
        announced = {one: self._pending.get(one) or PendingTask(one) for one in ahead}
        for task in announced.values():
            task.arrived = arrived
        begun = {r: t for r, t in self._pending.items() if t.running or t.answer}
        self._pending = {**announced, **begun}
        self._collect()
        self._assign()

    def measure(self, request: MeasurementRequest) -> Measurement:
        """Return a measurement as soon as it is finished.

        Raises:
            EvaluationError: two workers died at it.
            MergeError: they died before anything was measured.
            MapError: the same error as in one process.
        """
        task = self._pending.pop(request, None) or PendingTask(request)
        task.arrived = None
        self._pending = {request: task, **self._pending}
        text = f"opening the models in {self.count} workers, and measuring"
        with nullcontext() if self._measured else stage(text):
            self._collect()
            while task.answer is None:
                self._assign()
                running = [s.future for s in self._slots if s.future is not None]
                wait(running, _SECONDS_BETWEEN_CHECKS, "FIRST_COMPLETED")
                check_interrupt()
                self._collect()
        del self._pending[request]
        if isinstance(task.answer, Exception):
            raise task.answer
        return task.answer

    def close(self) -> None:
        """Collect finished measurements, and discard running ones."""
        self._collect()
        self._pending = {}

    def _assign(self) -> None:
        assert self._opening is not None
        for slot in self._slots:
            if slot.task is None and (task := self._next_task(slot)) is not None:
                slot.future = slot.handle.ask(self._opening, task.request)
                slot.task = task
                slot.merge = task.request.merge
                task.running = True

    def _next_task(self, slot: _Slot) -> PendingTask | None:
        """Return a task of the worker's merge, else of nobody's merge, else any."""
        tasks = [t for t in self._pending.values() if not t.running and not t.answer]
        busy = {other.merge for other in self._slots if other.task is not None}
        own = [task for task in tasks if task.request.merge == slot.merge]
        new = [task for task in tasks if task.request.merge not in busy]
        return next(iter(own or new or tasks), None)

    def _collect(self) -> None:
        for slot in self._slots:
            task, future = slot.task, slot.future
            if task is None or future is None or not future.done():
                continue
            slot.task = slot.future = None
            task.running = False
            try:
                task.answer = future.result()
            except slot.handle.dies_with as error:
                slot.handle.end()
                slot.merge = None
                self._retry(task, error)
            if not isinstance(task.answer, Measurement):
                continue
            self._measured = True
            # What is no number would not be found on record.
            is_kept = math.isfinite(task.answer.value)
            is_pending = self._pending.get(task.request) is task
            if task.arrived is not None and is_kept and is_pending:
                del self._pending[task.request]  # it was only announced
                task.arrived(task.request, task.answer)

    def _retry(self, task: PendingTask, death: Exception) -> None:
        """Let another worker try a task at which one died; a second death is final."""
        task.deaths += 1
        if task.deaths == _DEATHS:
            # Without any measurement so far, the failure may not be this task's.
            kind = EvaluationError if self._measured else MergeError
            task.answer = kind(
                f"task {task.request.task!r}: the worker that opened the models or "
                "measured it died, and so did a second one; if memory is short, take "
                "fewer workers or lower batch_size, else none, which shows why it "
                f"dies; what was measured is kept ({first_line(death)})"
            )


def process_pool(count: int) -> WorkerPool:
    """Return workers that are processes of this machine and share its GPUs."""
    gpus = visible_gpus()
    handles = [WorkerProcess(gpus_of(gpus, index, count)) for index in range(count)]
    return WorkerPool(handles)


def start_forkserver() -> None:
    """Start the forkserver, from which worker processes are forked.

    On Linux without GPUs it imports what they need. Elsewhere imports may open what
    must not be forked, such as CUDA.
    """
    if sys.platform == "linux" and not visible_gpus():
        forkserver.set_forkserver_preload([_SLOW_IMPORT])
    # Multiprocessing's folder has the forkserver's socket. It lies in /tmp where the
    # path of a socket, 107 bytes at most, would be too long.
    usual = tempfile.gettempdir()
    if len(os.fsencode(usual)) > _LONGEST_FOLDER:
        tempfile.tempdir = "/tmp"
    try:
        temporary.add(Path(util.get_temp_dir()))
    finally:
        tempfile.tempdir = usual
    # The tracker need not warn when it removes semaphores of a program that was killed.
    sys.warnoptions.append("ignore:resource_tracker")
    with _isolated():
        resource_tracker.ensure_running()  # which unblocks signals
    sys.warnoptions.remove("ignore:resource_tracker")
    with _isolated():
        forkserver.ensure_running()


class WorkerProcess:
    """A worker that is a process of this machine, with some GPUs if there are any."""

    dies_with: type[Exception] = BrokenProcessPool

    def __init__(self, gpus: str | None):
        self._gpus = gpus
        self._executor: ProcessPoolExecutor | None = None
        self._stack = ExitStack()  # ends the process

    def ask(self, opening: Opening, request: MeasurementRequest) -> Future[Answer]:
        """Return the future of an answer; start a process if there is none."""
        if self._executor is not None:
            try:
                return self._executor.submit(answer, request)
            except BrokenProcessPool:  # it died while it had nothing to do
                self.end()
        scratch = self._stack.enter_context(scratch_folder())
        environment = {**os.environ, "TMPDIR": str(scratch)}
        if self._gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus
        start_forkserver()
        before = set(multiprocessing.active_children())
        context = multiprocessing.get_context("forkserver")
        arguments = (environment, os.getcwd(), opening)
        with _isolated():
            self._executor = ProcessPoolExecutor(1, context, _become_worker, arguments)
            future = self._executor.submit(answer, request)
        self._stack.callback(self._executor.shutdown, cancel_futures=True)
        (process,) = set(multiprocessing.active_children()) - before
        self._stack.callback(process.kill)
        return future

    def end(self) -> None:
        """End the process, dead or alive."""
        self._stack.close()
        self._executor = None


def visible_gpus() -> Sequence[str]:
    """List the GPUs that this program may use, without opening CUDA."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [n for name in named.split(",") if (n := name.strip()) not in {"", "-1"}]
    if shutil.which("nvidia-smi") is None:
        return []
    listing = subprocess.run(
        ["nvidia-smi", "--list-gpus"], check=False, capture_output=True, text=True
    )
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return [str(number) for number in range(count)]


def gpus_of(gpus: Sequence[str], index: int, count: int) -> str | None:
    """Return the GPUs of one of ``count`` workers, in CUDA's notation."""
    return ",".join(gpus[index::count] or [gpus[index % len(gpus)]]) if gpus else None


@contextmanager
def _isolated() -> Iterator[None]:
    """Hide signals, the working directory and the main script from started processes.

    The main process handles Ctrl-C and the terminal's signals. Modules of the working
    directory would be imported in place of others. A main script without a guard would
    search again.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    directory = os.getcwd()
    main = sys.modules["__main__"]
    os.chdir(os.sep)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.chdir(directory)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_OPENING: list[Opening] = []  # of the project of this process, if it is a worker


def _become_worker(environment: dict[str, str], folder: str, opening: Opening) -> None:
    """Make this process a worker in a folder, which ends with its parent."""
    _OPENING.append(opening)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = scratch = environment["TMPDIR"]
    logging.disable(logging.WARNING)  # the main process logs the same
    os.dup2(2, 1)  # what tasks print is for people
    threading.Thread(target=_end_with_parent, args=[scratch], daemon=True).start()


def _end_with_parent(scratch: str) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1)


def answer(request: MeasurementRequest) -> Answer:
    """Measure; runs in a worker."""
    from mergekit_map.workers import worker_main

    return worker_main.answer(_OPENING[0], request)
