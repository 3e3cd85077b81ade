"""Nested MAP with checkpoints, for TIES and other non-linear methods.

Each pair is a search of its own over two checkpoints, in ``RUN/nested/pair-1`` and so
on, with all the files of a search. Its chosen merge is written to
``RUN/nested/merged/pair-1``, where later pairs and ``mergekit-multi`` find it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mergekit_map.config.problems import parse_map_block, raise_problems
from mergekit_map.config.schema import SearchSpec, SelectSpec
from mergekit_map.config.yaml_file import MergeConfig, YamlFile, read_yaml, yaml_text
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import Recipes, by_stage_name, pair_merge
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.validation import check_merge
from mergekit_map.models.references import ModelPart, map_references, referenced_models
from mergekit_map.results.front import Front, Merge, Order
from mergekit_map.results.gains import Anchors
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.selection import chosen_as
from mergekit_map.search.finish import anchors_on_disk
from mergekit_map.search.measure import reference_values
from mergekit_map.search.nested import Grouping, Pair, pair_study
from mergekit_map.search.study import Study
from mergekit_map.utils.files import whole_folder, write_atomically


def search_pairs(
    project: Project,
    log: Iterable[Evaluation],
    run: RunFolder,
    search: Callable[[Project, Path], Front],
) -> tuple[Front, Recipes]:
    """Search pair after pair, merging what is chosen of each but the last.

    Args:
        project: The project of all models.
        log: The measurements of its reference points.
        run: The run folder of the whole search.
        search: Searches one pair into a folder.

    Returns:
        The front of the last pair, with the anchors of the project, and the recipes of
        its points.
    """
    study = project.study()
    readings = reference_values(study, (), log)
    grouping, stages = Grouping(study, readings, readings), list[MergeConfig]()
    while True:
        pair, is_last = grouping.next_pair(), grouping.is_last
        into = run.pair(len(stages) + 1)
        choice = grouping.choice(pair)
        small = _small_study(study, pair, choice, readings, last=is_last)
        part = _pair_project(project, small, pair, run, into)
        front = search(part, into.path)
        values = {task: front.chosen.measured[task].value for task in part.tasks}
        known = {task: value for task, value in values.items() if value is not None}
        group = grouping.merge(pair, known)
        if is_last:
            whole = _whole_front(study, log, front, group.order)
            return whole, _recipes(part, stages, run)
        merge = part.space.config(front.chosen.coefficients)
        _write_once(part, merge, run.merged / into.path.name)
        stages.append(_stage(merge, into, run))


def _stage(merge: MergeConfig, pair: RunFolder, run: RunFolder) -> MergeConfig:
    return {"name": pair.path.name, **by_stage_name(merge, run.merged)}


def _recipes(part: Project, stages: Sequence[MergeConfig], run: RunFolder) -> Recipes:
    folder = run.merged if stages else None
    return Recipes(part.space, part.options, stages, folder)


def finished_pairs(
    project: Project, run: RunFolder
) -> tuple[Project, Recipes, RunFolder]:
    """Read the pairs of a finished search.

    Returns the last one, whose coefficients the points have, how these are written, and
    the run folder of that pair.

    Raises:
        ArtifactError: a pair is not finished.
        ConfigError: somebody has changed the merge of a pair, and it is wrong now.
    """
    n_pairs, stages = len(project.space.names) - 1, list[MergeConfig]()
    places = _places(project, run, n_pairs)
    for number in range(1, n_pairs):
        pair = run.pair(number)
        chosen = pair.read_front().chosen.coefficients
        merge = _finished_pair(project, pair, places).space.config(chosen)
        stages.append(_stage(merge, pair, run))
    part = _finished_pair(project, run.pair(n_pairs), places)
    return part, _recipes(part, stages, run), run.pair(n_pairs)


def _places(project: Project, run: RunFolder, n_pairs: int) -> dict[str, str]:
    """Map the earlier paths of models and merged pairs to the present ones."""
    known = run.read_manifest().identity.models
    models = referenced_models(project.space.template)
    places = dict(zip(known, models, strict=False))
    for number in range(1, n_pairs + 1):
        pair = run.pair(number)
        for model in pair.read_manifest().identity.models:
            *_, merged, name = ["", "", *ModelPart(model).names]
            if merged == run.merged.name and model not in places:
                places[model] = str(run.merged / name)
    return places


def _finished_pair(
    project: Project, pair: RunFolder, places: Mapping[str, str]
) -> Project:
    """Read the merge of a pair; tasks and backend are those of the whole."""
    file = read_yaml(pair.config)
    raise_problems(file, check_merge(file.merge))
    space = _pair_space(file, file.merge)
    placed = map_references(space.template, lambda model: places.get(model, model))
    space = replace(space, template=placed)
    return replace(project, file=file, space=space, has_references=False)


def _small_study(
    study: Study, pair: Pair, select: SelectSpec, readings: Anchors, *, last: bool
) -> Study:
    """Reduce a study to a pair; earlier measurements turn limits into numbers."""
    if select.limited:
        limits = Request(select, study.tasks, readings).limits()
        require = {task: limit.value for task, limit in limits.items()}
        select = SelectSpec.model_validate(
            select.model_dump(exclude_unset=True, exclude={"not_worse_than"})
            | {"require": require}
        )
    return pair_study(study, pair, select, last=last)


def _pair_project(
    project: Project, small: Study, pair: Pair, run: RunFolder, into: RunFolder
) -> Project:
    """Return the project of a pair, and write its configuration for the record.

    Models and tasks are not checked again: two merges may be nearly equal.
    """
    merge = pair_merge(project.space, [group.label for group in pair], run.merged)
    space = replace(_pair_space(project.file, merge), bounds=small.box)
    bounds = dict(zip(space.names, small.bounds.values(), strict=True))
    block = project.file.content["map"]
    search = {k: v for k, v in (block.get("search") or {}).items() if k != "order"}
    search |= {
        "strategy": "map",
        "refine": False,
        "evaluations": small.search.evaluations,
        "remeasure": small.search.remeasure,
        "bounds": {name: list(ends) for name, ends in bounds.items()},
    }
    changes = {
        "tasks": {task: block["tasks"][task] for task in small.tasks},
        "search": search,
        "select": small.select.model_dump(exclude_unset=True),
    }
    content = {**merge, "map": {**block, **changes}}
    order = " and ".join(str(group.order) for group in pair)
    text = yaml_text([content], [f"A pair of a nested search: {order}"])
    file = YamlFile(into.path.with_suffix(".yml"), text, content, {}, ())
    write_atomically(file.path, text)
    spec = parse_map_block(file)[0]
    assert spec is not None
    return replace(
        project,
        file=file,
        spec=spec,
        space=space,
        tasks={task: project.tasks[task] for task in small.tasks},
        has_references=False,
    )


def _pair_space(file: YamlFile, merge: MergeConfig) -> MergeSpace:
    space, problems = build_space(merge, SearchSpec())
    raise_problems(file, problems)
    assert space is not None
    return space


def _write_once(part: Project, config: MergeConfig, place: Path) -> None:
    """Write a checkpoint, unless the folder has it."""
    text = yaml_text([config], [f"made of {part.merge}"])
    recipe = place / "mergekit_config.yml"
    if recipe.exists() and recipe.read_text(encoding="utf-8") == text:
        return
    shutil.rmtree(place, ignore_errors=True)
    with whole_folder(place) as folder:
        write_checkpoint(config, folder, part.options)
        (folder / recipe.name).write_text(text, encoding="utf-8")


def _whole_front(
    study: Study, log: Iterable[Evaluation], front: Front, order: Order
) -> Front:
    """Replace the anchors of the last pair by those of all models.

    They have no coefficients in the last pair: a model is no merge of two merges.
    """
    anchors = anchors_on_disk(study, log)
    former = (
        Merge(coefficients=a.coefficients, measured=a.measured) for a in front.anchors
    )
    merges = (*front.merges, *former)
    update = {"order": order, "anchors": anchors, "merges": merges}
    whole = front.model_copy(update=update)
    return chosen_as(whole, whole.selected, study.select)
