import re

import numpy as np
import pytest

from mergekit_map.demo.corpus import (
    CorpusSizes,
    Problem,
    Split,
    read_corpus,
    split_problems,
)
from mergekit_map.errors import ArtifactError

SIZES = CorpusSizes(
    code_characters=150_000, math_pages=20, held_out_math_pages=5, largest_operand=20
)
EQUATION = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")
SENTENCES = {
    "+": re.compile(r"Add (?P<right>\d+) to (?P<left>\d+) and you get (?P<result>\d+)"),
    "-": re.compile(r"Take (?P<right>\d+) from (?P<left>\d+) and (?P<result>\d+) are"),
    "*": re.compile(
        r"(?P<left>\d+) boxes of (?P<right>\d+), which makes (?P<result>\d+)"
    ),
}


@pytest.fixture(scope="module")
def corpus() -> dict[str, Split]:
    return read_corpus(np.random.default_rng(0), SIZES)


def parse(line: str) -> tuple[Problem, int]:
    """Read a line of a page independently of the code that wrote it."""
    equation = EQUATION.fullmatch(line)
    if equation:
        left, operation, right, result = equation.groups()
        return Problem(operation, int(left), int(right)), int(result)
    for operation, form in SENTENCES.items():
        found = form.search(line)
        if found:
            problem = Problem(operation, int(found["left"]), int(found["right"]))
            return problem, int(found["result"])
    raise AssertionError(line)


def lines_of(pages: tuple[str, ...]) -> list[str]:
    return [line for page in pages for line in page.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["english", "code", "math"])
def test_no_document_is_both_trained_on_and_held_out(
    corpus: dict[str, Split], domain: str
) -> None:
    split = corpus[domain]

    assert split.train
    assert split.held_out
    assert not set(split.train) & set(split.held_out)


def test_every_written_answer_is_right(corpus: dict[str, Split]) -> None:
    lines = lines_of(corpus["math"].train + corpus["math"].held_out)
    assert len(lines) == 25 * 40
    results = {
        "+": lambda left, right: left + right,
        "-": lambda left, right: left - right,
        "*": lambda left, right: sum([left] * right),
    }
    for line in lines:
        problem, written = parse(line)
        assert written == results[problem.operation](problem.left, problem.right)


def test_pages_to_train_on_hold_no_held_out_problem_in_either_order(
    corpus: dict[str, Split],
) -> None:
    def unordered(problem: Problem) -> tuple[str, frozenset[int]]:
        return problem.operation, frozenset({problem.left, problem.right})

    trained = {unordered(parse(line)[0]) for line in lines_of(corpus["math"].train)}
    held_out = {unordered(parse(line)[0]) for line in lines_of(corpus["math"].held_out)}

    assert held_out
    assert not trained & held_out


def test_all_problems_are_in_exactly_one_part() -> None:
    train, held_out = split_problems(np.random.default_rng(0), 5, 0.3)
    parts = train + held_out

    assert len(parts) == len(set(parts)) == 36 + 21 + 64
    assert all(problem.result >= 0 for problem in parts)


def test_says_that_python_came_without_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})

    with pytest.raises(ArtifactError, match=r"holds 0 readable ones; use a Python"):
        read_corpus(np.random.default_rng(0), SIZES)
