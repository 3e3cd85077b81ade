"""Templates of tasks, rendered in a sandbox and in bounded time.

A task YAML has templates of Jinja, which is a programming language.
"""

from __future__ import annotations

import functools
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lm_eval.utils
from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment

_SECONDS = 10.0  # for one document
_LONGEST = 1 << 24  # characters, or items, of what is made by a multiplication
_LONGEST_TEXT = 1 << 22  # characters of what comes of a template; no model reads more
_DIGITS = 1 << 14  # bits of a number
_WIDE = re.compile(r"%[^%a-zA-Z]*(\d{6}|\*)")
# Of '{:9}'.format: six digits, or a width that another field says.
_WIDE_FIELD = re.compile(r"\{[^{}]*(\d{6}|\{)")
_FORMATS = ("format", "format_map")
_FILLING = ("ljust", "rjust", "center", "zfill", "expandtabs")


class _Sandbox(SandboxedEnvironment):
    """Jinja without Python behind it, and without what fills the memory."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Multiply, add, fill in, within limits."""
        if operator == "*" and _long(left, right):
            raise SecurityError("a template repeats a text or a list too often")
        if operator == "**" and _large(left, right):
            raise SecurityError("a template computes a number of too many digits")
        if operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise SecurityError("a template fills in a text with '%' that is too wide")
        if operator == "+" and isinstance(left, str | list) and len(left) > _LONGEST:
            raise SecurityError("a template makes a text or a list that is too long")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, *given: Any, **named: Any) -> Any:
        """Call what a template may call, within limits."""
        inner = getattr(function, "__wrapped__", function)  # of a format
        owner = getattr(inner, "__self__", None)
        if isinstance(owner, str) and inner.__name__ in _FORMATS:
            if _WIDE_FIELD.search(owner):
                raise SecurityError("a template fills in a text that is too wide")
            return super().call(context, function, *given, **named)
        fills = isinstance(owner, str) and function.__name__ in _FILLING
        if fills and any(isinstance(n, int) and n > _LONGEST for n in given):
            raise SecurityError("a template makes a text that is too long")
        return super().call(context, function, *given, **named)


@functools.cache
def sandbox() -> _Sandbox:
    """Make what renders templates as lm-eval's own environment does."""
    known = lm_eval.utils.env
    made = _Sandbox(
        loader=known.loader,
        undefined=known.undefined,
        keep_trailing_newline=known.keep_trailing_newline,
    )
    made.filters.update(known.filters)
    for name in ("center", "indent", "wordwrap", "format"):
        made.filters[name] = _bounded(name, known.filters[name])
    return made


class Bounded:
    """A template that is rendered in bounded time."""

    def __init__(self, template: Any):
        self._template = template

    def render(self, *given: Any, **named: Any) -> str:
        """Render it.

        Raises:
            SecurityError: it takes or makes too long, or does what it may not.
        """
        with _in_time():
            rendered: str = self._template.render(*given, **named)
        if len(rendered) > _LONGEST_TEXT:
            raise SecurityError(
                f"a template makes a text of {len(rendered):,} characters for a "
                f"document, more than {_LONGEST_TEXT:,}"
            )
        return rendered


@contextmanager
def _in_time() -> Iterator[None]:
    """Stop what takes too long, where this is the thread that hears of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise SecurityError(f"a template takes more than {_SECONDS:g} s for a document")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _bounded(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse widths of a filter that fill the memory."""

    def within(value: Any, *given: Any, **named: Any) -> Any:
        numbers = [n for n in (*given, *named.values()) if isinstance(n, int)]
        wide = name == "format" and _WIDE.search(str(value))
        if wide or (name != "format" and any(n > _LONGEST for n in numbers)):
            raise SecurityError(f"a template makes a text that is too long ({name})")
        return make(value, *given, **named)

    return within


def _long(left: Any, right: Any) -> bool:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, str | bytes | list | tuple) and isinstance(other, int):
            return len(one) * other > _LONGEST
    return isinstance(left, int) and isinstance(right, int) and _bits(left, right)


def _bits(left: int, right: int) -> bool:
    return left.bit_length() + right.bit_length() > _DIGITS


def _large(left: Any, right: Any) -> bool:
    if not (isinstance(left, int) and isinstance(right, int)):
        return False
    return left.bit_length() * abs(right) > _DIGITS
