from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from runs import files_of
from tiny_demo import TINY

from mergekit_map.demo.corpus import Problem, read_corpus, split_problems
from mergekit_map.demo.family import train_family
from mergekit_map.errors import ArtifactError
from mergekit_map.utils.progress import notifying
from mergekit_map.workflows.callbacks import Callback


def stages(callback: Mock) -> list[str]:
    """List what was begun."""
    calls = (call.args for call in callback.on_stage.call_args_list)
    return [text for text, seconds in calls if seconds is None]


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_family(tmp_path_factory.mktemp("cache") / "family", TINY)


@pytest.mark.slow
def test_elsewhere_it_trains_to_the_same_bytes(family: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    callback = Mock(spec=Callback)
    torch.manual_seed(12345)

    with notifying(callback):
        second = train_family(folder, TINY)

    assert stages(callback) == ["training base", "training code", "training math"]
    assert len(files_of(family)) >= 2 + 3 * 4
    assert files_of(second) == files_of(family)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_complete_family_is_used_again(family: Path) -> None:
    callback = Mock(spec=Callback)

    with notifying(callback):
        again = train_family(family, TINY)

    assert again == family
    assert stages(callback) == []


@pytest.mark.slow
def test_an_interrupted_training_leaves_nothing_behind(tmp_path: Path) -> None:
    stop = Mock(spec=Callback)
    stop.on_step.side_effect = KeyboardInterrupt("stop")

    with pytest.raises(KeyboardInterrupt, match="stop"), notifying(stop):
        train_family(tmp_path / "family", TINY)
    assert list(tmp_path.iterdir()) == []


def lines_of(pages: tuple[str, ...]) -> list[str]:
    return [line for page in pages for line in page.splitlines()]


@pytest.mark.slow
def test_no_document_and_no_problem_is_both_trained_on_and_held_out() -> None:
    corpus = read_corpus(np.random.default_rng(0), TINY.corpus)

    for split in corpus.values():
        assert split.train
        assert split.held_out
        assert not set(split.train) & set(split.held_out)
    math = corpus["math"]
    assert len(lines_of(math.train + math.held_out)) == (10 + 3) * 40
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


def test_says_that_python_came_without_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(Path.cwd())})

    with pytest.raises(ArtifactError, match=r"holds 0 readable ones; use a Python"):
        read_corpus(np.random.default_rng(0), TINY.corpus)
