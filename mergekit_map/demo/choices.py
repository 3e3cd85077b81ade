"""Multiple-choice questions from held-out text, one right answer each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from mergekit_map.demo.arithmetic import Problem

_CHOICES = 4
_PROMPT_CHARACTERS = (24, 60)
_LINE_CHARACTERS = (18, 44)
_SURPRISE_TOLERANCE = 0.04  # of the true line's, for the lines it is set against
_FAMILIAR_SHARE = 0.5  # of a line's words that must stand in its prompt
_NEAREST_WRONG, _FARTHEST_WRONG = 3, 20  # distance of a wrong result from the right


@dataclass(frozen=True)
class Question:
    """One document: exactly one of the choices continues the prompt rightly."""

    prompt: str
    choices: tuple[str, ...]  # each with the white space that precedes it
    answer: int  # index of the right choice


@dataclass(frozen=True)
class _Line:
    file: int
    prompt: str
    text: str


def code_questions(
    rng: np.random.Generator,
    documents: Sequence[str],
    surprise: Callable[[str], float],
    count: int,
) -> list[Question]:
    """Ask which line comes next: the true one, or one of three from other files.

    All four are about equally likely by their tokens' frequencies (``surprise``, in
    any unit), so that only the prompt tells them apart. Fewer than ``count``
    questions come back where the documents do not hold more.
    """
    lines = [line for file, text in enumerate(documents) for line in _lines(file, text)]
    surprises = np.array([surprise(line.text) for line in lines])
    files = np.array([line.file for line in lines])
    asked = (
        _code_question(rng, lines, index, _alike(surprises, files, index))
        for index in rng.permutation(len(lines))
        if _familiar(lines[index])
    )
    return list(islice((question for question in asked if question), count))


def math_questions(
    rng: np.random.Generator, problems: Sequence[Problem], count: int
) -> list[Question]:
    """Ask which result is right, against three that are near it."""
    return [
        _math_question(rng, problems[index])
        for index in rng.permutation(len(problems))[:count]
    ]


def _math_question(rng: np.random.Generator, problem: Problem) -> Question:
    distances = range(_NEAREST_WRONG, _FARTHEST_WRONG + 1)
    near = [problem.result + sign * step for step in distances for sign in (-1, 1)]
    possible = [result for result in near if result >= 0]
    wrong = rng.choice(possible, _CHOICES - 1, replace=False)
    return _shuffled(
        rng, problem.question, f" {problem.result}", [f" {result}" for result in wrong]
    )


def _lines(file: int, text: str) -> list[_Line]:
    """List the lines of code, each with the text that leads to it."""
    shortest_prompt, longest_prompt = _PROMPT_CHARACTERS
    shortest, longest = _LINE_CHARACTERS
    found = []
    end = -1  # of the line before
    for line in text.split("\n"):
        prompt = text[max(0, end - longest_prompt) : max(0, end)].rstrip()
        end += 1 + len(line)
        fits = shortest <= len(line.strip()) <= longest
        if fits and _is_code(line) and len(prompt) >= shortest_prompt:
            found.append(_Line(file, prompt, "\n" + line))
    return found


def _is_code(line: str) -> bool:
    # Comments and most prose have none of these characters.
    return not line.lstrip().startswith("#") and bool(set("=([:") & set(line))


def _familiar(line: _Line) -> bool:
    words = _words(line.text)
    return len(words & _words(line.prompt)) >= max(1, _FAMILIAR_SHARE * len(words))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z]{3,}", text))


def _alike(
    surprises: np.ndarray[tuple[int], np.dtype[np.float64]],
    files: np.ndarray[tuple[int], np.dtype[np.int64]],
    index: int,
) -> list[int]:
    """Find the lines of other files that are as likely before reading the prompt."""
    distance = np.abs(surprises - surprises[index])
    near = distance <= _SURPRISE_TOLERANCE * surprises[index]
    return [int(other) for other in np.flatnonzero(near & (files != files[index]))]


def _code_question(
    rng: np.random.Generator, lines: Sequence[_Line], index: int, alike: Sequence[int]
) -> Question | None:
    true = lines[index]
    others = sorted({lines[other].text for other in alike} - {true.text})
    if len(others) < _CHOICES - 1:
        return None
    drawn = rng.choice(len(others), _CHOICES - 1, replace=False)
    return _shuffled(rng, true.prompt, true.text, [others[other] for other in drawn])


def _shuffled(
    rng: np.random.Generator, prompt: str, right: str, wrong: Sequence[str]
) -> Question:
    answer = int(rng.integers(len(wrong) + 1))
    return Question(prompt, (*wrong[:answer], right, *wrong[answer:]), answer)
