"""A configuration, checked as far as it can be without a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.config import (
    Problem,
    parse_map_block,
    parse_tasks,
    raise_problems,
    repeated_keys,
)
from mergekit_map.merging.adapters import with_adapter_cache
from mergekit_map.merging.entries import check_merge
from mergekit_map.merging.gradients import check_gradients
from mergekit_map.merging.models import absolute_references
from mergekit_map.merging.preflight import check_models
from mergekit_map.merging.recipe import merge_identity
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.staged import is_linear, staging_problems
from mergekit_map.merging.weights import check_plan
from mergekit_map.specs import MapSpec
from mergekit_map.study.checking import search_problems
from mergekit_map.study.study import Study
from mergekit_map.tasks.loading import LoadedTask, load_tasks
from mergekit_map.yamlfile import YamlFile, read_yaml


@dataclass(frozen=True, eq=False)
class Project:
    """A configuration that has been checked as far as it can be without a model."""

    file: YamlFile
    directory: Path  # where its relative paths start
    spec: MapSpec
    space: MergeSpace
    tasks: Mapping[str, LoadedTask]
    options: MergeOptions

    @property
    def identity(self) -> dict[str, Any]:
        """Name all that decides what a merge is."""
        return merge_identity(self.space, self.options)

    def study(self) -> Study:
        """Reduce to what the study room needs: numbers, names, fingerprints."""
        space = self.space
        return Study(
            bounds=dict(
                zip(space.names, map(tuple, space.bounds.tolist()), strict=True)
            ),
            anchors={a.label: a.coefficients for a in space.anchors()},
            tasks={name: task.metric for name, task in self.tasks.items()},
            definitions={name: self._definition(name) for name in self.tasks},
            merge=digest(self.identity),
            search=self.spec.search,
            select=self.spec.select,
        )

    def _definition(self, name: str) -> str:
        """Digest what is measured, and by what where it is not by this program."""
        backend = self.spec.backend
        if backend is None or self.spec.tasks[name].kind != "lm_eval":
            return self.tasks[name].fingerprint[:16]
        return digest([self.tasks[name].fingerprint, backend.model_dump()])


def load_project(
    config: Path, options: MergeOptions | None = None, directory: Path | None = None
) -> Project:
    """Read a configuration and report every problem of it at once.

    Relative paths start at ``directory``, by default the working directory, as they do
    in mergekit and lm-eval. The seed of mergekit's random methods is that of the search
    unless the options name one.

    Raises:
        ConfigError: with all problems, located by file, line and key.
    """
    directory = (directory or Path.cwd()).resolve()
    options = options or MergeOptions()
    file = read_yaml(config)
    spec, problems = parse_map_block(file)
    tasks, found = load_tasks(parse_tasks(file)[0], directory)
    problems += repeated_keys(file)
    problems += [Problem(("map", "tasks", p.task, *p.key), p.message) for p in found]
    merge = {key: value for key, value in file.content.items() if key != "map"}
    problems += check_merge(merge)
    problems += check_gradients(merge, spec) if spec is not None else []
    if not _concerns_merge(problems):
        merge = absolute_references(merge, directory)
        problems += check_models(merge, options)
    if not _concerns_merge(problems):
        options = with_adapter_cache(merge, options)
    space = None
    if spec is not None and not _concerns_merge(problems):
        if options.random_seed is None:
            options = options.model_copy(update={"random_seed": spec.search.seed})
        space, found_in_space = build_space(merge, spec.search)
        problems += found_in_space
        problems += check_plan(space, options) if space is not None else []
    if space is not None and spec is not None and not problems:
        project = Project(file, directory, spec, space, tasks, options)
        if spec.search.strategy == "nested" and not is_linear(space):
            problems += staging_problems(space)
        problems += search_problems(project.study())
        if not problems:
            return project
    raise_problems(file, problems)
    raise AssertionError("no problem, and no project either")


def _concerns_merge(problems: list[Problem]) -> bool:
    return any(problem.key[:1] != ("map",) for problem in problems)


def digest(content: Any) -> str:
    """Shorten any content that JSON can write to 16 digits."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
