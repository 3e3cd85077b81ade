"""Text from every Python installation, divided into training and held-out parts.

English is the language reference of ``pydoc``; code is the source of the standard
library; arithmetic is generated: every problem of a small range, as equations and
sentences. Whole topics, files and problems are held out.
"""

from __future__ import annotations

import json
import operator
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

from mergekit_map.errors import ArtifactError

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_SENTENCES = {
    "+": "Add {right} to {left} and you get {result}.",
    "-": "Take {right} from {left} and {result} are left.",
    "*": "There are {left} boxes of {right}, which makes {result} in all.",
}
_SENTENCE_SHARE = 0.1
_HELD_OUT_SHARE = 0.1
_FILE_CHARACTERS = (1_000, 60_000)  # leave out stubs, and files that are all tables
# Tests, packages of others, and tables.
_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings"}
_PAGE_LINES = 40
_PASSAGE_CHARACTERS = 1_000


@dataclass(frozen=True, order=True)
class Problem:
    """``left operation right``; the operation is a key of ``ARITHMETIC``."""

    operation: str
    left: int
    right: int

    @property
    def result(self) -> int:
        """The right answer."""
        return int(ARITHMETIC[self.operation](self.left, self.right))

    @property
    def equation(self) -> str:
        """The equation with its right answer."""
        return f"{self.left} {self.operation} {self.right} = {self.result}"

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
    negative, and products are those of the times table from 2 to 9.
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
    rng: np.random.Generator, problems: Sequence[Problem], pages: int
) -> tuple[str, ...]:
    """Draw pages of solved problems, one per line, a few of them as sentences."""
    written = []
    for _ in range(pages):
        indices = rng.integers(len(problems), size=_PAGE_LINES)
        drawn = [problems[index] for index in indices]
        solved = zip(drawn, rng.random(_PAGE_LINES) < _SENTENCE_SHARE, strict=True)
        text = (p.sentence if in_words else p.equation for p, in_words in solved)
        written.append("\n".join(text) + "\n")
    return tuple(written)


@dataclass(frozen=True)
class Split:
    """Documents of one domain; none is in both parts."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class CorpusSizes:
    """The amount of text for training."""

    code_characters: int = 1_000_000
    math_pages: int = 600
    held_out_math_pages: int = 60
    largest_operand: int = 49


def read_corpus(rng: np.random.Generator, sizes: CorpusSizes) -> dict[str, Split]:
    """Collect and divide the documents of ``english``, ``code`` and ``math``."""
    english_rng, code_rng, math_rng = rng.spawn(3)
    code = _read_code(code_rng, sizes.code_characters)
    train, held_out = split_problems(math_rng, sizes.largest_operand, _HELD_OUT_SHARE)
    math = Split(
        write_pages(math_rng, train, sizes.math_pages),
        write_pages(math_rng, held_out, sizes.held_out_math_pages),
    )
    english = [text.strip() + "\n" for _, text in sorted(topics.items())]
    return {"english": _divide(english_rng, english), "code": code, "math": math}


def interleaved_passages(documents: Sequence[str], characters: int) -> list[str]:
    """Cut passages of whole lines, in turn from each document, up to ``characters``.

    So the first few thousand tokens come from many documents.
    """
    passages: list[str] = []
    for turn in zip_longest(*map(_passages, documents)):
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
    shortest, longest = _FILE_CHARACTERS
    drawn: list[str] = []
    for index in rng.permutation(len(files)):
        with suppress(UnicodeDecodeError):
            text = files[index].read_text(encoding="utf-8")
            if shortest <= len(text) <= longest:
                lines = (line.rstrip() for line in text.splitlines())
                drawn.append("\n".join(lines).strip() + "\n")
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
        if parts[0] in sys.stdlib_module_names and not _SKIPPED & set(parts):
            found.append(path)
    return sorted(found, key=lambda path: path.relative_to(library).as_posix())


def _divide(rng: np.random.Generator, documents: list[str]) -> Split:
    """Hold out whole documents, at least one; equal texts never land in both."""
    distinct = sorted(set(documents))
    shuffled = tuple(distinct[index] for index in rng.permutation(len(distinct)))
    held_out = max(1, round(_HELD_OUT_SHARE * len(distinct)))
    return Split(shuffled[held_out:], shuffled[:held_out])


def write_documents(path: Path, documents: Iterable[str]) -> None:
    """Write one JSON object per document, with its text in ``text``."""
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    path.write_text(lines, encoding="utf-8", newline="\n")
