"""Logic as text: boolean expressions and what they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_OPERATIONS = {
    "and": lambda left, right: left and right,
    "or": lambda left, right: left or right,
}
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_OPERANDS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_WORDS = {True: "true", False: "false"}
_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Expression:
    """An expression in words, and its value."""

    words: str
    value: bool

    @property
    def fact(self) -> str:
        """The expression with its value."""
        return f"{self.words} is {_WORDS[self.value]}"


def split_expressions(
    rng: np.random.Generator,
) -> tuple[list[Expression], list[Expression]]:
    """Divide all expressions into those to train on and those held out.

    Of those held out as many are true as are false, in turn.
    """
    expressions = list(_expressions())
    chosen = rng.random(len(expressions)) < _HELD_OUT_SHARE
    train = [one for one, held in zip(expressions, chosen, strict=True) if not held]
    held_out = [expressions[index] for index in rng.permutation(np.flatnonzero(chosen))]
    true = [one for one in held_out if one.value]
    false = [one for one in held_out if not one.value]
    return train, list(itertools.chain.from_iterable(zip(true, false, strict=False)))


def write_facts(
    rng: np.random.Generator, expressions: Sequence[Expression], pages: int, lines: int
) -> list[str]:
    """Draw pages of expressions with their values, one per line."""
    drawn = rng.integers(len(expressions), size=(pages, lines))
    return ["".join(f"{expressions[index].fact}\n" for index in page) for page in drawn]


def _expressions() -> Iterator[Expression]:
    """Go through all expressions of two to four operands."""
    pairs = list(_joined(_singles(), _singles()))
    bracketed = [Expression(f"( {pair.words} )", pair.value) for pair in pairs]
    yield from pairs
    yield from _joined(_singles(), bracketed)
    yield from _joined(bracketed, _singles())
    yield from _joined(bracketed, bracketed)


def _singles() -> list[Expression]:
    return [Expression(words, value) for words, value in _OPERANDS.items()]


def _joined(
    lefts: Sequence[Expression], rights: Sequence[Expression]
) -> Iterator[Expression]:
    for left, (name, operation), right in itertools.product(
        lefts, _OPERATIONS.items(), rights
    ):
        value = operation(left.value, right.value)
        yield Expression(f"{left.words} {name} {right.words}", value)
