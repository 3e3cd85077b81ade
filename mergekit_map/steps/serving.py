"""A worker that is asked from elsewhere: requests in, answers out, as plain values."""

from __future__ import annotations

import importlib.util
import io
import logging
import pickle
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
import transformers

from mergekit_map.errors import ConfigError, EvaluationError, in_words
from mergekit_map.pulse import heard_by
from mergekit_map.steps.evaluate import merges_as_asked
from mergekit_map.steps.project import Project
from mergekit_map.steps.worker import Work, Worker


@dataclass(frozen=True)
class Open:
    """Open the models of a project, in place of those that are open."""

    project: bytes
    paths: Sequence[str]  # where its modules are
    threads: int


@dataclass(frozen=True)
class Count:
    """Count the pieces of some work."""

    work: Work


@dataclass(frozen=True)
class Some:
    """Measure some pieces of some work, those from a first one to before a last."""

    work: Work
    first: int
    end: int
    join: bool = False  # where these are all of them


@dataclass(frozen=True)
class Join:
    """Make a measurement of what its pieces found."""

    work: Work
    found: Sequence[Any]


Request: TypeAlias = Open | Count | Some | Join


@dataclass(frozen=True)
class Answer:
    """What came of a request."""

    value: Any
    seconds: float
    error: BaseException | None = None
    noticed: Sequence[str] = ()  # what the user should know


class _Noticed:
    """Keeps what the user should know, for whoever asked to say it."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def staged(self, text: str, seconds: float | None) -> None:
        """Leave it to whoever asked to say what goes on."""

    def stepped(self, done: int, total: int) -> None:
        """Leave it to whoever asked to count."""

    def notice(self, text: str) -> None:
        """Keep it."""
        self.texts.append(text)


def opening(project: Project, threads: int) -> Open:
    """Pack a project for workers of so many threads.

    Raises:
        ConfigError: something of it cannot be sent.
    """
    try:
        packed = pickle.dumps(project)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"what is measured cannot be sent to workers ({error}); define it at the "
            "top of a module, or search without --workers"
        ) from None
    return Open(packed, [str(project.directory), *sys.path], threads)


class Serving:
    """Answers requests, failures too."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def answer(self, request: Request) -> Answer:
        """Do what is asked."""
        started = time.perf_counter()
        value, error, noticed = None, None, _Noticed()
        try:
            with heard_by(noticed):
                value = self._done(request)
        except BaseException as failure:  # noqa: BLE001 - whoever asked raises it
            error = _portable(failure)
        seconds = time.perf_counter() - started
        return Answer(value, seconds, error, noticed.texts)

    def _done(self, request: Request) -> Any:
        if isinstance(request, Open):
            return self._open(request)
        worker = self._worker
        assert worker is not None
        match request:
            case Count(work):
                return worker.pieces(work)
            case Some(work, first, end, join):
                found = [worker.piece(work, index) for index in range(first, end)]
                return worker.whole(work, found) if join else found
            case Join(work, found):
                return worker.whole(work, found)

    def _open(self, request: Open) -> None:
        if self._worker is not None:
            self._worker.close()
        sys.path[:] = request.paths
        torch.set_num_threads(request.threads)
        project: Project = _Unpickler(io.BytesIO(request.project)).load()
        self._worker = Worker(merges_as_asked(project))
        self._worker.open()


class _Unpickler(pickle.Unpickler):
    """Finds the modules that lm-eval calls by their paths, too."""

    def find_class(self, module: str, name: str, /) -> Any:
        file = Path(f"{module}.py")
        if file.is_absolute() and module not in sys.modules:
            spec = importlib.util.spec_from_file_location(module, file)
            assert spec is not None
            assert spec.loader is not None
            made = importlib.util.module_from_spec(spec)
            sys.modules[module] = made
            spec.loader.exec_module(made)
        return super().find_class(module, name)


def silence() -> None:
    """Leave it to whoever asks to say something."""
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)


def _portable(error: BaseException) -> BaseException:
    """Give an error that can be sent: of the same kind and words, if that can be.

    Nobody presses Ctrl-C here, and an exit is of whoever was measured.
    """
    if not isinstance(error, Exception):
        return EvaluationError(in_words(error))
    try:
        sent = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - of others, who never sent it anywhere
        return RuntimeError(in_words(error))
    return error if type(sent) is type(error) else RuntimeError(str(error))
