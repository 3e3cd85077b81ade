"""Nested MAP where a merge of merges is no merge of the models: TIES and its kin.

Each pair is a search of its own over two checkpoints, in ``RUN/nested/pair-1`` and so
on, with all the files of a search. What is chosen of it goes to
``RUN/nested/merged/pair-1``, where the later pairs find it, and ``mergekit-multi`` too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.config.parsing import parse_map_block, raise_problems
from mergekit_map.config.specs import SearchSpec
from mergekit_map.config.yaml_file import read_yaml, yaml_text
from mergekit_map.files import whole_folder, write_atomically
from mergekit_map.merging.checkpoint import write_checkpoint, write_staged_checkpoint
from mergekit_map.merging.recipe import (
    recipe_command,
    staged_command,
    stock_config,
)
from mergekit_map.merging.space import build_space
from mergekit_map.merging.staged import by_stage_name, is_linear, pair_merge
from mergekit_map.results.choosing import chosen_as, find_limits, measured_anchors
from mergekit_map.results.front import UNKNOWN, Front, Merge, Order
from mergekit_map.results.log import Evaluation
from mergekit_map.steps.project import Project, digest
from mergekit_map.study.grouping import (
    Pair,
    first_groups,
    merge_groups,
    next_pair,
    read_singles,
)
from mergekit_map.study.nested import pair_study
from mergekit_map.study.outcome import measured_at
from mergekit_map.study.study import Study

Search: TypeAlias = Callable[[Project, Path], Front]  # into a folder


@dataclass(frozen=True, eq=False)
class Recipes:
    """How the merges of a front are written in mergekit's own terms."""

    project: Project  # whose coefficients these are
    stages: Sequence[Mapping[str, Any]] = ()  # what is merged before, each with a name
    folder: Path | None = None  # where that lies, if there are stages

    def text(self, coefficients: Mapping[str, float], comments: Sequence[str]) -> str:
        """Write a recipe, for ``mergekit-multi`` where there are stages."""
        config = stock_config(self.project.space, coefficients)
        if self.folder is not None:
            config = by_stage_name(config, self.folder)
        return yaml_text([*self.stages, config], comments)

    def command(self, recipe: Path, out: str) -> str:
        """Give the stock command that writes the checkpoint of a recipe."""
        space, options = self.project.space, self.project.options
        if self.folder is not None:
            return staged_command(space, str(recipe), str(self.folder), out, options)
        return recipe_command(space, str(recipe), out, options)


def nests_checkpoints(project: Project) -> bool:
    """Tell whether a search merges checkpoints pair by pair."""
    return project.spec.search.strategy == "nested" and not is_linear(project.space)


def search_pairs(
    project: Project, evaluations: Sequence[Evaluation], run: Path, search: Search
) -> tuple[Front, Recipes]:
    """Search pair after pair, merging what is chosen of each but the last.

    Args:
        project: Of all the models.
        evaluations: What was measured of its anchors and single models.
        run: The run folder of it all.
        search: Searches one pair.

    Returns:
        The front of the last pair, with the anchors of the project, and how its points
        are written.
    """
    study = project.study()
    singles = read_singles(study, evaluations)
    groups = first_groups(study, singles)
    stages: list[dict[str, Any]] = []
    while True:
        pair = next_pair(study, groups)
        small = _small_study(study, pair, evaluations, last=len(groups) == 2)
        name = f"pair-{len(stages) + 1}"
        config = run / "nested" / f"{name}.yml"
        write_atomically(config, _pair_text(project, small, pair, merged_folder(run)))
        part = pair_project(project, config)
        front = search(part, config.with_suffix(""))
        values = {task: front.chosen.measured[task].value for task in small.tasks}
        known = {task: value for task, value in values.items() if value is not None}
        group = merge_groups(study, singles, pair, name, known)
        if len(groups) == 2:
            recipes = Recipes(part, stages, merged_folder(run) if stages else None)
            return _whole_front(study, evaluations, front, group.order), recipes
        merge = stock_config(part.space, front.chosen.coefficients)
        _write_once(part, merge, merged_folder(run) / name)
        stages.append({"name": name, **by_stage_name(merge, merged_folder(run))})
        groups = [*(g for g in groups if g not in pair), group]


def merge_stages(
    project: Project, run: Path, recipe: str, folder: Path
) -> tuple[Recipes, Path]:
    """Write the checkpoint of a recipe of a nested search into ``folder``.

    Returns how the recipe is carried out otherwise, and the run folder of the last
    pair, whose coefficients the point has.

    Raises:
        MergeError: mergekit refuses the models, or what is merged on the way.
    """
    stages = merged_folder(run)
    write_staged_checkpoint(recipe, stages, folder, project.options)
    last = last_pair_folder(project, run)
    part = pair_project(project, last / "config.yml")
    return Recipes(part, folder=stages if len(project.space.names) > 2 else None), last


def last_pair_folder(project: Project, run: Path) -> Path:
    """Name the run folder of the last pair."""
    return run / "nested" / f"pair-{len(project.space.names) - 1}"


def merged_folder(run: Path) -> Path:
    """Name the folder of the checkpoints that are merged on the way."""
    return (run / "nested" / "merged").resolve()


def pair_project(project: Project, config: Path) -> Project:
    """Read the configuration of a pair of a project.

    Models and tasks are not checked again: two merges may well be alike.

    Raises:
        ConfigError: somebody has changed it, and it is wrong now.
    """
    file = read_yaml(config)
    spec, problems = parse_map_block(file)
    merge = {key: value for key, value in file.content.items() if key != "map"}
    space, more = build_space(merge, spec.search if spec else SearchSpec())
    raise_problems(file, [*problems, *more])
    if spec is None or space is None:
        raise AssertionError("no problem, and no pair either")
    tasks = {task: project.tasks[task] for task in spec.tasks}
    return replace(project, file=file, spec=spec, space=space, tasks=tasks)


def _small_study(
    study: Study, pair: Pair, evaluations: Iterable[Evaluation], *, last: bool
) -> Study:
    """Reduce a study to a pair; shares of single models become limits in numbers."""
    small = pair_study(study, pair, last=last)
    if small.select.require is None:
        return small
    readings = measured_anchors(study.anchors, evaluations)
    limits = find_limits(study.select, study.tasks, readings)
    select = small.select.model_copy(update={"require": limits})
    return replace(small, select=select)


def _pair_text(project: Project, small: Study, pair: Pair, merged: Path) -> str:
    """Write the configuration of a pair: the project's, of two models."""
    merge = pair_merge(project.space, [group.label for group in pair], merged)
    space, problems = build_space(merge, SearchSpec())
    raise_problems(project.file, problems)
    names = space.names if space is not None else ()
    block = project.file.content["map"]
    search = {k: v for k, v in (block.get("search") or {}).items() if k != "order"}
    search["strategy"] = "map"
    search["evaluations"] = small.search.evaluations
    search["remeasure"] = small.search.remeasure
    bounds = zip(names, small.bounds.values(), strict=True)
    search["bounds"] = {name: list(ends) for name, ends in bounds}
    content = {
        **block,
        "tasks": {task: block["tasks"][task] for task in small.tasks},
        "search": search,
        "select": small.select.model_dump(exclude_unset=True),
    }
    order = " and ".join(str(group.order) for group in pair)
    comment = f"A pair of a nested search: {order}"
    return yaml_text([{**merge, "map": content}], [comment])


def _write_once(part: Project, config: Mapping[str, Any], place: Path) -> None:
    """Write a checkpoint, unless it is the one that lies there."""
    text = yaml_text([config], [f"made of {digest(part.identity)}"])
    recipe = place / "mergekit_config.yml"
    if recipe.exists() and recipe.read_text(encoding="utf-8") == text:
        return
    shutil.rmtree(place, ignore_errors=True)
    with whole_folder(place) as folder:
        write_checkpoint(config, folder, part.options)
        (folder / recipe.name).write_text(text, encoding="utf-8")


def _whole_front(
    study: Study,
    evaluations: Sequence[Evaluation],
    front: Front,
    order: Order,
) -> Front:
    """Put the anchors of all models in the place of those of the last pair.

    They have no coefficients there: a single model is no merge of two merges.
    """
    anchors = tuple(
        Merge(
            label=label,
            coefficients={},
            predicted=dict.fromkeys(study.tasks, UNKNOWN),
            measured=measured_at(study, c, evaluations),
        )
        for label, c in study.anchors.items()
    )
    former = (
        Merge(coefficients=a.coefficients, measured=a.measured) for a in front.anchors
    )
    merges = (*front.merges, *former)
    update = {"order": order, "anchors": anchors, "merges": merges}
    whole = front.model_copy(update=update)
    return chosen_as(whole, whole.selected, study.select)
