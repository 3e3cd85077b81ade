"""Engines, which hold merges and measure tasks; several can run side by side.

An engine is *opened* when its context is entered, *written* to and *measured*. Today's
are Hugging Face's model in memory, vLLM in place, and checkpoints on disk that either
of them loads. ``tasks/engines.py`` chooses the engine of a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

from mergekit_map.evaluation.project import Project
from mergekit_map.evaluation.worker import Merges, Worker
from mergekit_map.tasks.engines import VLLM
from mergekit_map.types import Measure


def by_engine(project: Project) -> tuple[Project, Project]:
    """Divide the tasks into those of Hugging Face's model and those of vLLM."""
    there = {n for n, chosen in project.engines.items() if chosen.name == VLLM}
    parts = (
        {n: task for n, task in project.tasks.items() if (n in there) == wanted}
        for wanted in (False, True)
    )
    here, rest = (replace(project, tasks=part) for part in parts)
    return (here if there else project), rest


@contextmanager
def side_by_side(
    engines: Mapping[str, AbstractContextManager[Merges]],
) -> Iterator[Merges]:
    """Yield merges whose tasks are each measured by their own engine.

    An engine is opened, and a merge written to it, when one of its tasks is measured.
    """
    with ExitStack() as stack:
        opened: dict[int, Worker] = {}
        for engine in engines.values():
            if id(engine) not in opened:
                opened[id(engine)] = Worker(engine)
                stack.callback(opened[id(engine)].close)
        yield _SideBySide({task: opened[id(e)] for task, e in engines.items()})


@dataclass(frozen=True, eq=False)
class _SideBySide:
    engines: Mapping[str, Worker]

    def at(self, coefficients: Mapping[str, float]) -> Mapping[str, Measure]:
        return _LazyMeasures(self.engines, dict(coefficients))


@dataclass(frozen=True, eq=False)
class _LazyMeasures(Mapping[str, Measure]):
    """The measures of a merge; looking one up writes the merge to its engine."""

    engines: Mapping[str, Worker]
    coefficients: Mapping[str, float]

    def __getitem__(self, task: str) -> Measure:
        return self.engines[task].at(self.coefficients)[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self.engines)

    def __len__(self) -> int:
        return len(self.engines)
