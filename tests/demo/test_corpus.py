import numpy as np
import pytest

from mergekit_map.demo.corpus import CorpusSizes, Problem, read_corpus, split_problems
from mergekit_map.errors import ArtifactError

SIZES = CorpusSizes(
    code_characters=150_000, math_pages=20, held_out_math_pages=5, largest_operand=20
)


def lines_of(pages: tuple[str, ...]) -> list[str]:
    return [line for page in pages for line in page.splitlines()]


@pytest.mark.slow
def test_no_document_and_no_problem_is_both_trained_on_and_held_out() -> None:
    corpus = read_corpus(np.random.default_rng(0), SIZES)

    for split in corpus.values():
        assert split.train
        assert split.held_out
        assert not set(split.train) & set(split.held_out)
    math = corpus["math"]
    assert len(lines_of(math.train + math.held_out)) == 25 * 40
    assert not {*lines_of(math.train)} & {*lines_of(math.held_out)}


def test_all_problems_are_in_one_part_in_either_order_and_solved() -> None:
    def unordered(problem: Problem) -> tuple[str, frozenset[int]]:
        return problem.operation, frozenset({problem.left, problem.right})

    train, held_out = split_problems(np.random.default_rng(0), 5, 0.3)
    parts = train + held_out

    assert len(parts) == len(set(parts)) == 36 + 21 + 64
    assert all(problem.result >= 0 for problem in parts)
    assert all(eval(problem.equation.replace("=", "==")) for problem in parts)
    assert not {*map(unordered, train)} & {*map(unordered, held_out)}


def test_says_that_python_came_without_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})

    with pytest.raises(ArtifactError, match=r"holds 0 readable ones; use a Python"):
        read_corpus(np.random.default_rng(0), SIZES)
