"""Arithmetic as text: every problem of a small range, as equations and sentences."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_SENTENCES = {
    "+": "Add {right} to {left} and you get {result}.",
    "-": "Take {right} from {left} and {result} are left.",
    "*": "There are {left} boxes of {right}, which makes {result} in all.",
}
_SENTENCE_SHARE = 0.1


@dataclass(frozen=True, order=True)
class Problem:
    """``left operation right``; the operation is a key of ``ARITHMETIC``."""

    operation: str
    left: int
    right: int

    @property
    def result(self) -> int:
        """The right answer."""
        answer: int = ARITHMETIC[self.operation](self.left, self.right)
        return answer

    @property
    def question(self) -> str:
        """The equation up to and including its equals sign."""
        return f"{self.left} {self.operation} {self.right} ="

    @property
    def equation(self) -> str:
        """The equation with its right answer."""
        return f"{self.question} {self.result}"

    @property
    def sentence(self) -> str:
        """The same fact in words."""
        form = _SENTENCES[self.operation]
        return form.format(left=self.left, right=self.right, result=self.result)


def split_problems(
    rng: np.random.Generator, largest: int, held_out_share: float
) -> tuple[list[Problem], list[Problem]]:
    """Divide all problems into those to train on and those held out.

    ``7 + 5`` is held out exactly when ``5 + 7`` is: seeing one answers the other.
    Sums and differences have operands up to ``largest``, differences are never
    negative, and products are those of the times table up to 12.
    """
    train: list[Problem] = []
    held_out: list[Problem] = []
    for operation, first, last in (("+", 0, largest), ("-", 0, largest), ("*", 2, 9)):
        for small in range(first, last + 1):
            for large in range(small, last + 1):
                chosen = held_out if rng.random() < held_out_share else train
                chosen.append(Problem(operation, large, small))
                if operation != "-" and large != small:
                    chosen.append(Problem(operation, small, large))
    return train, held_out


def write_pages(
    rng: np.random.Generator, problems: Sequence[Problem], pages: int, lines: int
) -> list[str]:
    """Draw pages of solved problems, one per line, a few of them as sentences."""
    written = []
    for _ in range(pages):
        drawn = [problems[index] for index in rng.integers(len(problems), size=lines)]
        in_words = rng.random(lines) < _SENTENCE_SHARE
        solved = zip(drawn, in_words, strict=True)
        text = (p.sentence if words else p.equation for p, words in solved)
        written.append("\n".join(text) + "\n")
    return written
