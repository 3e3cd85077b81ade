"""Text from every Python installation, divided into training and held-out parts.

English is the language reference of ``pydoc``; code is the source of the standard
library; arithmetic is generated: every problem of a small range, as equations and
sentences. Whole topics, files and problems are held out. The demo's tasks are two
held-out texts and two multiple-choice tasks for lm-eval.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from mergekit_map.errors import ArtifactError

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_SENTENCES = {
    "+": "Add {right} to {left} and you get {result}.",
    "-": "Take {right} from {left} and {result} are left.",
    "*": "There are {left} boxes of {right}, which makes {result} in all.",
}
_SENTENCE_SHARE = 0.1
_CHOICES = 4
_PROMPT_CHARACTERS = (24, 60)
_LINE_CHARACTERS = (24, 72)
_BREAK_AFTER = 0.4  # share of a line that its prompt holds at least
_SHORTEST_ENDING = 10
_SURPRISE_TOLERANCE = 0.04  # of the true ending's, for those it is set against
_NEAREST_WRONG, _FARTHEST_WRONG = 3, 20  # distance of a wrong result from the right


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


_HELD_OUT_SHARE = 0.1


_FILE_CHARACTERS = (1_000, 60_000)  # leave out stubs, and files that are all tables


_SKIPPED_FOLDERS = {
    *("test", "tests", "idle_test"),
    *("site-packages", "dist-packages"),
    "encodings",  # tables
}


_PAGE_LINES = 40


_PASSAGE_CHARACTERS = 1_000


@dataclass(frozen=True)
class Split:
    """Documents of one domain; none is in both parts."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """The three domains, and the problems that are missing from the training pages."""

    english: Split
    code: Split
    math: Split
    held_out_problems: tuple[Problem, ...]


@dataclass(frozen=True)
class CorpusSizes:
    """The amount of text for training."""

    code_characters: int = 2_000_000
    math_pages: int = 1_200
    held_out_math_pages: int = 60
    largest_operand: int = 49


def read_corpus(rng: np.random.Generator, sizes: CorpusSizes) -> Corpus:
    """Collect and divide the documents; the same on every call on one machine.

    Raises:
        ArtifactError: Python was installed without the source of its library.
    """
    english_rng, code_rng, math_rng = rng.spawn(3)
    code = _read_code(code_rng, sizes.code_characters)
    train, held_out = split_problems(math_rng, sizes.largest_operand, _HELD_OUT_SHARE)
    math = Split(
        tuple(write_pages(math_rng, train, sizes.math_pages, _PAGE_LINES)),
        tuple(write_pages(math_rng, held_out, sizes.held_out_math_pages, _PAGE_LINES)),
    )
    english = [text.strip() + "\n" for _, text in sorted(topics.items())]
    return Corpus(_divide(english_rng, english), code, math, tuple(held_out))


def interleaved_passages(documents: Sequence[str], characters: int) -> list[str]:
    """Cut documents into passages of whole lines, in turn from each document.

    So the first few thousand tokens come from many documents. Stops once ``characters``
    are reached.
    """
    passages: list[str] = []
    by_document = [_passages(text) for text in documents]
    for turn in zip_longest(*by_document):
        for passage in turn:
            if passage is not None and sum(map(len, passages)) < characters:
                passages.append(passage)
    return passages


def _passages(text: str) -> list[str]:
    passages = [""]
    for line in text.splitlines(keepends=True):
        if len(passages[-1]) + len(line) > _PASSAGE_CHARACTERS and passages[-1]:
            passages.append("")
        passages[-1] += line
    return passages


def _read_code(rng: np.random.Generator, characters: int) -> Split:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = _source_files(library)
    drawn: list[str] = []
    for index in rng.permutation(len(files)):
        text = _source_text(files[index])
        if text is not None:
            drawn.append(text)
        if sum(map(len, drawn)) >= characters:
            break
    if len(drawn) < 2:
        raise ArtifactError(
            "the demo trains on the source files of Python's standard library, but "
            f"{library} holds {len(drawn)} readable ones; use a Python installation "
            "that comes with its source (python.org, a Linux distribution, conda, uv)"
        )
    return _divide(rng, drawn)


def _source_files(library: Path) -> list[Path]:
    # Only modules that belong to Python: a distribution adds files of its own, some
    # with paths of the machine in them (_sysconfigdata, sitecustomize).
    found = []
    for path in library.rglob("*.py"):
        parts = path.relative_to(library).with_suffix("").parts
        if parts[0] in sys.stdlib_module_names and not _SKIPPED_FOLDERS & set(parts):
            found.append(path)
    return sorted(found, key=lambda path: path.relative_to(library).as_posix())


def _source_text(path: Path) -> str | None:
    """Return the text of a file; None for an unsuitable length or encoding."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    shortest, longest = _FILE_CHARACTERS
    if path.name.startswith("_sysconfigdata") or not shortest <= len(text) <= longest:
        return None
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def _divide(rng: np.random.Generator, documents: list[str]) -> Split:
    """Hold out whole documents, at least one; equal texts never land in both."""
    distinct = sorted(set(documents))
    order = rng.permutation(len(distinct))
    held_out = max(1, round(_HELD_OUT_SHARE * len(distinct)))
    return Split(
        tuple(distinct[index] for index in order[held_out:]),
        tuple(distinct[index] for index in order[:held_out]),
    )


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
