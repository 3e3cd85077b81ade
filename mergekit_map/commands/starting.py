"""How a command starts: it says what it does, then imports what it does it with."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def starting(doing: str | None = None) -> Iterator[None]:
    """Import inside, after saying on standard error what is being done.

    Imports make no garbage, yet to look for it among all that they make takes a third
    of their time, and again as long when the program ends.
    """
    if doing:
        click.echo(f"{doing} ...", err=True)
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        gc.enable()
