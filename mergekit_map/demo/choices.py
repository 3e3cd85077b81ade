"""Two local multiple-choice tasks for lm-eval, made from held-out text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mergekit_map.demo.arithmetic import Problem

_CHOICES = 4
_CONTEXT_CHARACTERS = 90
_LINE_CHARACTERS = (16, 48)
_LENGTH_TOLERANCE = 4  # characters between the true line and a line of another file


@dataclass(frozen=True)
class Question:
    """One document: exactly one of the choices continues the prompt rightly."""

    prompt: str
    choices: tuple[str, ...]
    answer: int  # index of the right choice


def code_questions(
    rng: np.random.Generator, documents: Sequence[str], count: int, measure=len, overlap=0
) -> list[Question]:
    """Ask which line comes next, against lines of about its length elsewhere."""
    files = [_lines(text) for text in documents]
    owner = np.array([i for i, lines in enumerate(files) for _, _ in lines])
    every = [line for lines in files for line in lines]
    length = np.array([measure(line) for _, line in every])
    questions = []
    for index in rng.permutation(len(every)):
        prompt, line = every[index]
        close = np.abs(length - length[index]) <= (0 if measure is not len else 4)
        if overlap:
            words=set(re.findall(r"[A-Za-z]{3,}", line)); ctx=set(re.findall(r"[A-Za-z]{3,}", prompt))
            if not words or len(words & ctx) < overlap*len(words): continue
        others = sorted({every[i][1] for i in np.flatnonzero(close & (owner != owner[index]))} - {line})
        if len(others) < _CHOICES - 1:
            continue
        wrong = [others[i] for i in rng.choice(len(others), _CHOICES - 1, replace=False)]
        questions.append(_question(rng, prompt, line, wrong))
        if len(questions) == count:
            break
    return questions


def math_questions(
    rng: np.random.Generator, problems: Sequence[Problem], count: int
) -> list[Question]:
    questions = []
    for index in rng.permutation(len(problems))[:count]:
        problem = problems[index]
        near = range(3, 21)
        cands = sorted({problem.result + s * n for n in near for s in (1, -1) if problem.result + s * n >= 0})
        wrong = [f" {cands[i]}" for i in rng.choice(len(cands), _CHOICES - 1, replace=False)]
        questions.append(_question(rng, problem.question, f" {problem.result}", wrong))
    return questions


def _question(rng, prompt, right, wrong):
    position = int(rng.integers(_CHOICES))
    choices = [*wrong[:position], right, *wrong[position:]]
    return Question(prompt, tuple(choices), position)


def _lines(text: str) -> list[tuple[str, str]]:
    lines = text.split("\n")
    found = []
    lo, hi = _LINE_CHARACTERS
    start = 0
    for i in range(3, len(lines)):
        s = lines[i].strip()
        if not (lo <= len(s) <= hi) or not re.search("[a-z]", s):
            continue
        context = "\n".join(lines[max(0, i - 4): i])[-_CONTEXT_CHARACTERS:].rstrip()
        if len(context) < 40: continue
        found.append((context, "\n" + lines[i]))
    return found
