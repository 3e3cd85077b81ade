"""Engines side by side, how they share a GPU, and which one a search goes on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mergekit_map.errors import ConfigError
from mergekit_map.evaluation.evaluator import side_by_side
from mergekit_map.evaluation.project import Project, load_project
from mergekit_map.merging.devices import share_beside
from mergekit_map.tasks.engines import EngineChoice, installed_vllm
from mergekit_map.workflows.search import search_front

Write = Callable[..., Path]


class Counting:
    """An engine that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    @contextmanager
    def opened(self) -> Iterator[Counting]:
        self.told.append("open")
        yield self
        self.told.append("close")

    def __call__(self, coefficients: Mapping[str, float]) -> Mapping[str, Any]:
        self.told.append(coefficients["a"])
        return {"one": "measures one", "two": "measures two", "three": "measures three"}


def test_engines_are_opened_at_once_and_written_to_when_a_task_is_measured() -> None:
    first, second = Counting(), Counting()
    shared = first.opened()
    engines = {"one": shared, "two": shared, "three": second.opened()}

    with side_by_side(engines) as merges:  # type: ignore[arg-type]
        for a in (0.0, 1.0):
            measures = merges({"a": a})
            for task in ("one", "two"):
                assert measures[task] == f"measures {task}"
        assert second.told == ["open"]
        for _ in range(2):  # after a failure
            assert merges({"a": 0.5})["three"] == "measures three"

    assert first.told == ["open", 0.0, 1.0, "close"]
    assert second.told == ["open", 0.5, 0.5, "close"]


@pytest.mark.parametrize(
    ("free", "wanted", "share"),
    [(100, 0, 0.9), (100, 40, 0.5), (80, 30, 0.4), (60, 0, 0.5), (20, 15, 0.0)],
)
def test_an_engine_takes_what_is_left(free: int, wanted: int, share: float) -> None:
    assert share_beside(100, free, wanted) == share


def test_a_search_goes_on_with_what_generated_its_answers(write_config: Write) -> None:
    project = load_project(write_config("llama"))

    def going_on(engine: str) -> Project:
        definition = EngineChoice(engine, "").definition(project.tasks["ask"])
        known = {"identity": project.identity, "merge": ""}
        return project.continuing(Mock(definitions={"ask": definition}, **known))

    assert going_on("vllm").engines["ask"].name == "vllm"
    assert going_on("hf").engines["ask"].name == "hf"


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed here")
def test_a_search_that_needs_vllm_says_how_to_install_it(write_config: Write) -> None:
    config = write_config("llama", engine="vllm")

    with pytest.raises(ConfigError, match=r"pip install 'mergekit-map\[vllm\]'"):
        search_front(config, "run")
