"""What a process has once for all, kept as it is from code of others.

Their own numbers may hang on the working directory, torch's default dtype or a closed
standard output; those of others must not.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import logging
import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TextIO, TypeAlias

import numpy as np
import torch
from torch.nn.modules import module as torch_modules

_Put: TypeAlias = Callable[[Any], object]

_BACKENDS: tuple[tuple[Any, str], ...] = (
    (torch.backends.cudnn, "enabled"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.mkldnn, "enabled"),
)
_ATTENTION: tuple[tuple[Callable[[], Any], _Put], ...] = (
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
)

# What decides numbers, or where files are: its name, how it is read and how it is set.
_NUMBERS: tuple[tuple[str, Callable[[], Any], _Put], ...] = (
    ("the working directory", os.getcwd, os.chdir),
    ("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
    (
        "torch's matmul precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    (
        "torch's deterministic algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda known: torch.use_deterministic_algorithms(known[0], warn_only=known[1]),
    ),
    (
        "torch's autocast",
        lambda: _autocast(torch.is_autocast_enabled, torch.get_autocast_dtype),
        lambda known: _set_autocast(known),
    ),
    (
        "torch's handling of the smallest numbers",
        lambda: float(torch.tensor([5e-324], dtype=torch.float64).mul(1.0)) == 0,
        torch.set_flush_denormal,
    ),
    (
        "torch's ways to attend",
        lambda: tuple(read() for read, _ in _ATTENTION),
        lambda known: [put(v) for (_, put), v in zip(_ATTENTION, known, strict=True)],
    ),
    (
        "torch's backends",
        lambda: tuple(getattr(place, name) for place, name in _BACKENDS),
        lambda known: _set_backends(known),
    ),
    ("NumPy's errors", np.geterr, lambda known: np.seterr(**known)),
)
# What may change without another number. Signals end a search that never ends.
_OTHERS: tuple[tuple[Callable[[], Any], _Put], ...] = (
    (lambda: _umask(), os.umask),
    (
        lambda: [(s, signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM)],
        lambda known: [signal.signal(*one) for one in known],
    ),
    (
        lambda: signal.getitimer(signal.ITIMER_REAL),
        lambda known: signal.setitimer(signal.ITIMER_REAL, *known),
    ),
    (lambda: dict(vars(builtins)), lambda known: vars(builtins).update(known)),
    (sys.gettrace, sys.settrace),
    # What is added stays: modules are found there.
    (
        lambda: [*sys.path],
        lambda known: sys.path.extend(p for p in known if p not in sys.path),
    ),
)
# What libraries set while they are imported.
_SET_BY_IMPORTS: tuple[tuple[Callable[[], Any], _Put], ...] = (
    (lambda: dict(os.environ), lambda known: _set_environment(known)),
    (
        lambda: (logging.root.level, [*logging.root.handlers], logging.root.disabled),
        lambda known: _set_logging(*known),
    ),
    (lambda: logging.root.manager.disable, logging.disable),
)
_GLOBAL_HOOKS = [
    content
    for name, content in vars(torch_modules).items()
    if name.startswith("_global_") and isinstance(content, dict)
]


_TWINS: weakref.WeakKeyDictionary[TextIO, TextIO] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def process_kept(changed: list[str], *, importing: bool = False) -> Iterator[None]:
    """Put back in the end what was changed inside; name what decides numbers.

    While code is imported it may set the environment, as libraries do.
    """
    numbers = [read() for _, read, _ in _NUMBERS]
    in_main = threading.current_thread() is threading.main_thread()
    kept = [*(_OTHERS if in_main else ()), *(() if importing else _SET_BY_IMPORTS)]
    others = [(read, put, read()) for read, put in kept]
    hooks = [dict(content) for content in _GLOBAL_HOOKS]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_own_streams())
        if not importing:
            stack.enter_context(warnings.catch_warnings())
        try:
            yield
        finally:
            for (name, read, put), known in zip(_NUMBERS, numbers, strict=True):
                _put_back(name, read, put, known, changed)
            for read, put, known in others:
                if read() != known:
                    put(known)
            _without_hooks(hooks, changed)


def _put_back(
    name: str, read: Callable[[], Any], put: _Put, known: Any, changed: list[str]
) -> None:
    try:
        if read() == known:
            return
    except OSError:  # the working directory is no more
        pass
    changed.append(name)
    with contextlib.suppress(OSError):
        put(known)


def _without_hooks(known: list[dict[Any, Any]], changed: list[str]) -> None:
    for content, before in zip(_GLOBAL_HOOKS, known, strict=True):
        if content.keys() != before.keys():
            changed.append("hooks of all modules")
            content.clear()
            content.update(before)


@contextlib.contextmanager
def _own_streams() -> Iterator[None]:
    """Have others write to copies of standard output and error, which they may close.

    What was closed is opened again: the next file would take its number, and what is
    printed would be written into it.
    """
    names = ("__stdin__", "__stdout__", "__stderr__", "stdin", "stdout", "stderr")
    objects = {name: getattr(sys, name) for name in names}
    files = {number: _copy(number) for number in (0, 1, 2)}
    for name in ("stdout", "stderr"):
        setattr(sys, name, _twin(objects[name]))
    for name in ("__stdout__", "__stderr__"):
        setattr(sys, name, getattr(sys, name.strip("_")))
    try:
        yield
    finally:
        for name in ("stdout", "stderr"):
            with contextlib.suppress(ValueError, OSError, AttributeError):
                getattr(sys, name).flush()
        for name, stream in objects.items():
            setattr(sys, name, stream)
        for number, copy in files.items():
            _reopen(number, copy)


def _copy(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:  # it was closed before
        return None


def _reopen(number: int, copy: int | None) -> None:
    if copy is None:
        return
    try:
        same = os.path.sameopenfile(number, copy)
    except OSError:
        same = False
    if not same:
        os.dup2(copy, number)
    os.close(copy)


def _twin(stream: TextIO | None) -> TextIO | None:
    """Give a stream to the same place, which may be closed without harm.

    What is no file, as in a notebook or a test, stays what it is.
    """
    if stream is None:
        return None
    known = _TWINS.get(stream)
    with contextlib.suppress(ValueError):  # what was taken apart does not even say
        if known is not None and not known.closed:
            return known
    try:
        stream.flush()
        handle = os.dup(stream.fileno())
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return stream
    made = os.fdopen(
        handle, "w", 1, encoding=stream.encoding, errors="backslashreplace"
    )
    # Handlers of logs may hold it as long as there is the other one.
    weakref.finalize(stream, made.close)
    _TWINS[stream] = made
    return made


def _autocast(
    enabled: Callable[[str], bool], dtype: Callable[[str], torch.dtype]
) -> list[tuple[str, bool, torch.dtype]]:
    return [(kind, enabled(kind), dtype(kind)) for kind in ("cpu", "cuda")]


def _set_autocast(known: list[tuple[str, bool, torch.dtype]]) -> None:
    for kind, enabled, dtype in known:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)


def _set_backends(known: tuple[bool, ...]) -> None:
    for (place, name), value in zip(_BACKENDS, known, strict=True):
        setattr(place, name, value)


def _umask() -> int:
    known = os.umask(0o22)
    os.umask(known)
    return known


def _set_environment(known: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(known)


def _set_logging(level: int, handlers: list[logging.Handler], disabled: bool) -> None:  # noqa: FBT001
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers
    logging.root.disabled = disabled
