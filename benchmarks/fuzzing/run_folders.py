"""Run folders to attack: made once in this process, copied for each attack."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from attack import Outcome, command
from quick_fronts import blank_pictures, configurations_read_once, fronts_of_few_points
from tiny_models import scratch

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "run_v1"
CONFIG = """\
merge_method: ties
base_model: models/base
models:
  - model: models/greeting-model
    parameters: {density: 0.7}
  - model: models/code-model
    parameters: {density: 0.7}
dtype: bfloat16
map:
  tasks:
    greeting: {perplexity: {file: texts/greeting.txt}, block: 32}
    code: {perplexity: {file: texts/code.txt}, block: 32}
  search: {evaluations: 10, remeasure: 2, holdout: 0.3, seed: 3}
  select: {prefer: {greeting: 2, code: 1}}
"""
SEARCH = ("search", "config.yml", "run")


def project(target: Path, *, finished: bool = True) -> Path:
    """Copy a search, ``run``, with all that it needs; gives the folder of it all."""
    shutil.copytree(made(finished=finished), target, dirs_exist_ok=True)
    return target


def attacked(folder: Path, *words: str | Path) -> Outcome:
    """Run a command in a project, by the project's own cache."""
    with _quickly(folder):
        return command(words, folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Read the files of a folder, by path; what is no file is left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30
    }


@functools.cache
def made(*, finished: bool) -> Path:
    """Make a search, once; finished and merged, or stopped and looked at."""
    folder = scratch("attacked-")
    for model in (DATA / "hub").iterdir():
        (files,) = (model / "snapshots").iterdir()
        shutil.copytree(files, folder / "models" / model.name.rpartition("--")[2])
    shutil.copytree(DATA / "texts", folder / "texts")
    (folder / "config.yml").write_text(CONFIG)
    if finished:
        _do(folder, *SEARCH)
        _do(folder, "merge", "run", "out")
    else:
        with _stopping_after(21):
            _do(folder, *SEARCH, code=130)
        _do(folder, "select", "run")
    return folder


def _do(folder: Path, *words: str, code: int = 0) -> None:
    outcome = attacked(folder, *words)
    assert outcome.code == code, outcome.said


@contextmanager
def _quickly(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("MERGEKIT_MAP_HOME", str(folder / "home"))
        for quick in (fronts_of_few_points, blank_pictures, configurations_read_once):
            stack.enter_context(quick())
        yield


@contextmanager
def _stopping_after(lines: int) -> Iterator[None]:
    """Interrupt a search when its log has so many lines."""
    from mergekit_map.results import log

    append, left = log.append_line, iter(range(lines))

    def append_or_stop(path: Path, evaluation: log.Evaluation) -> None:
        append(path, evaluation)
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "append_line", append_or_stop)
        yield
