"""The demo's tasks: two held-out texts and two multiple-choice tasks for lm-eval.

The files a family can be measured on: two texts, two local lm-eval tasks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.demo.corpus import Problem

_CHOICES = 4
_PROMPT_CHARACTERS = (24, 60)
_LINE_CHARACTERS = (24, 72)
_BREAK_AFTER = 0.4  # share of a line that its prompt holds at least
_SHORTEST_ENDING = 10
_SURPRISE_TOLERANCE = 0.04  # of the true ending's, for those it is set against
_NEAREST_WRONG, _FARTHEST_WRONG = 3, 20  # distance of a wrong result from the right


@dataclass(frozen=True)
class Question:
    """A question with exactly one choice that continues the prompt correctly."""

    prompt: str
    choices: tuple[str, ...]  # each with the white space that precedes it
    answer: int  # index of the right choice


@dataclass(frozen=True)
class _Broken:
    """A line split at a space: the part before the split, and the part after."""

    file: int
    prompt: str
    ending: str


def code_questions(
    rng: np.random.Generator,
    documents: Sequence[str],
    surprise: Callable[[str], float],
    count: int,
) -> list[Question]:
    """Ask for the rest of a line of code, as ``line_questions`` does."""
    return line_questions(rng, documents, surprise, count, _is_code)


def line_questions(
    rng: np.random.Generator,
    documents: Sequence[str],
    surprise: Callable[[str], float],
    count: int,
    fits: Callable[[str], bool],
) -> list[Question]:
    """Ask for the rest of a line that ``fits``: its own, or that of other files.

    All four endings are about equally likely by their tokens' frequencies
    (``surprise``, in any unit), so that only the prompt distinguishes them. Returns
    fewer than ``count`` questions where the documents hold no more.
    """
    lines = [
        line
        for file, text in enumerate(documents)
        for line in _broken_lines(file, text, fits)
    ]
    surprises = np.array([surprise(line.ending) for line in lines])
    files = np.array([line.file for line in lines])
    questions: list[Question] = []
    for index in rng.permutation(len(lines)):
        if len(questions) == count:
            break
        true, distance = lines[index], np.abs(surprises - surprises[index])
        near = distance <= _SURPRISE_TOLERANCE * surprises[index]
        alike = np.flatnonzero(near & (files != files[index]))
        others = sorted({lines[other].ending for other in alike} - {true.ending})
        if len(others) >= _CHOICES - 1:
            drawn = rng.choice(len(others), _CHOICES - 1, replace=False)
            wrong = [others[other] for other in drawn]
            questions.append(_shuffled(rng, true.prompt, true.ending, wrong))
    return questions


def math_questions(
    rng: np.random.Generator, problems: Sequence[Problem], count: int
) -> list[Question]:
    """Ask for the result of a problem, with three wrong ones near it."""
    distances = range(_NEAREST_WRONG, _FARTHEST_WRONG + 1)
    questions = []
    for index in rng.permutation(len(problems))[:count]:
        right = problems[index].result
        near = [right + sign * step for step in distances for sign in (-1, 1)]
        possible = [result for result in near if result >= 0]
        drawn = rng.choice(possible, _CHOICES - 1, replace=False)
        wrong = [f" {result}" for result in drawn]
        questions.append(_shuffled(rng, problems[index].question, f" {right}", wrong))
    return questions


def _broken_lines(file: int, text: str, fits: Callable[[str], bool]) -> list[_Broken]:
    found = []
    start = 0  # of the line, in the text
    for line in text.split("\n"):
        if fits(line):
            indent = len(line) - len(line.lstrip())
            after = indent + round(_BREAK_AFTER * (len(line) - indent))
            at = line.find(" ", after)
            prompt = text[max(0, start + at - _PROMPT_CHARACTERS[1]) : start + at]
            long_enough = len(prompt) >= _PROMPT_CHARACTERS[0]
            if at >= 0 and long_enough and len(line) - at >= _SHORTEST_ENDING:
                found.append(_Broken(file, prompt, line[at:]))
        start += len(line) + 1
    return found


def _is_code(line: str) -> bool:
    # Comments and most prose have none of these characters.
    words = line.strip()
    shortest, longest = _LINE_CHARACTERS
    if not shortest <= len(words) <= longest or words.startswith("#"):
        return False
    return bool(set("=([:") & set(words))


def _shuffled(
    rng: np.random.Generator, prompt: str, right: str, wrong: Sequence[str]
) -> Question:
    answer = int(rng.integers(len(wrong) + 1))
    return Question(prompt, (*wrong[:answer], right, *wrong[answer:]), answer)


def write_documents(path: Path, documents: Iterable[str]) -> None:
    """Write one JSON object per document, with its text in ``text``."""
    _write_lines(path, ({"text": text} for text in documents))


def write_questions(path: Path, questions: Sequence[Question]) -> None:
    """Write one JSON object per question."""
    _write_lines(path, (dataclasses.asdict(question) for question in questions))


def write_choice_task(path: Path, questions: Path) -> None:
    """Write the lm-eval task that reads ``questions``, named as its file.

    lm-eval resolves relative data files against the working directory, so the path
    of ``questions`` is written in full.
    """
    lines = {
        "task": path.stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions.resolve())}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{prompt}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "target_delimiter": "",
        "num_fewshot": 0,
        "metric_list": [
            {"metric": "acc", "aggregation": "mean", "higher_is_better": True}
        ],
        "metadata": {"version": 1.0},
    }
    # Every JSON value is a YAML value, with the same quotes and escapes.
    text = "".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in lines.items()
    )
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")


def _write_lines(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(document) + "\n" for document in documents)
    path.write_text(text, encoding="utf-8", newline="\n")
