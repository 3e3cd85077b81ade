"""How the program ends: what it says last, on which streams, and with which code."""

from __future__ import annotations

import errno
import os
import select
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from mergekit_map.errors import MapError
from mergekit_map.shortage import advised, shortage
from mergekit_map.stopping import StopWords, exit_code, stopped_by
from mergekit_map.words import printable

UNREAD = 128 + 13  # as a shell says of who was ended by SIGPIPE


def open_standard_streams() -> None:
    """Keep files from becoming the standard streams where those are closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def sentence(error: Exception) -> str:
    """Say what a user can act on; nothing of what is a mistake of this program."""
    if isinstance(error, MapError):
        return advised(error)
    short = shortage(error)
    if short or not isinstance(error, OSError):
        return short
    return f"{error}; look at who may read and write there"


def stopped(error: BaseException, typed: Sequence[str]) -> int:
    """Say that a command was stopped and how to go on, unless it says so itself."""
    stop = error
    if isinstance(error, click.Abort):
        stop = error.__cause__ or error.__context__ or error
    again = shlex.join(["mergekit-map", *typed])
    words = StopWords(
        f"{stopped_by(stop)}; to go on, type it again: {again}", aside=True
    )
    if stop.args and isinstance(stop.args[0], StopWords):
        (words,) = stop.args
    say(f"\n{printable(words.text)}", aside=words.aside)
    return exit_code(stop)


def say(text: str, *, aside: bool = True) -> None:
    """Write a line, on standard error or output, where somebody reads it."""
    with suppress(OSError):
        click.echo(text, err=aside)


def unread() -> bool:
    """Tell whether who read what is said here is gone; then it is said to nobody."""
    gone = [number for number in (1, 2) if _reader_is_gone(number)]
    _write_nowhere(gone)
    return bool(gone)


def flushed(code: int) -> int:
    """Write out what is said, and give the exit code: another one if that cannot be."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE and unread():
            return code or UNREAD
        say(f"error: what was done is done, but standard output is lost: {error}")
        _write_nowhere([1])
        return code or MapError.exit_code
    return code


def _reader_is_gone(number: int) -> bool:
    looking = select.poll()
    looking.register(number, 0)
    return any(event & select.POLLERR for _, event in looking.poll(0))


def _write_nowhere(numbers: Sequence[int]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(nowhere, number)
    os.close(nowhere)
