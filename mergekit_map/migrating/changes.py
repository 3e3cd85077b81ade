"""What a mergekit-evolve configuration loses or gains when it becomes one of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from mergekit_map.migrating.evolve_space import DENSITY, SPARSE, Space
from mergekit_map.migrating.genome import Evolve, EvolveTask, Genome

_LAYERS = 32  # of a model whose config.json is not at hand, for an example


def list_changes(
    evolve: Evolve,
    space: Space,
    tasks: Mapping[str, EvolveTask],
    files: Mapping[str, Path],
) -> Iterator[str]:
    """Say all that is not as it was, a line each.

    ``tasks`` are by the names they have here, ``files`` those found for their names.
    """
    yield from _changes_of_goal(tasks)
    yield from _changes_of_models(evolve.genome, space)
    yield from _changes_of_weights(evolve.genome, space)
    yield from _changes_of_tasks(evolve, files)
    yield (
        "The command line of mergekit-evolve: --max-fevals is search.evaluations, by "
        f"default {2 * _terms(space.coefficients)} here; --random-seed is search.seed; "
        "--batch-size is batch_size; --vllm is merge: disk with backend: {name: vllm}."
    )


def _changes_of_goal(tasks: Mapping[str, EvolveTask]) -> Iterator[str]:
    yield (
        "tasks: one weighted sum was maximised; here every task is searched, and the "
        "weights choose a point of the front (select.prefer), each task scaled to "
        "[0, 1] by its range on the front. Choose others with mergekit-map select."
    )
    for name, task in tasks.items():
        if task.weight < 0:
            yield (
                f"{name}: its weight {task.weight:g} said that lower is better; here "
                "the task's own higher_is_better does, and the preference is "
                f"{abs(task.weight):g}."
            )


def _changes_of_models(genome: Genome, space: Space) -> Iterator[str]:
    method = space.merge["merge_method"]
    if genome.merge_method == "slerp":
        yield (
            "merge_method: slerp of the two models is searched as nuslerp, which is "
            "the same arc between them."
            if method == "nuslerp"
            else "merge_method: slerp of the two models that weigh most in each group "
            "of layers cannot be searched here; multislerp is of all models at once."
        )
    base = genome.base_model
    if base is not None and not genome.task_vectors:
        yield f"base_model: {method} has no use for it, so {base} is left out."
    if genome.task_vectors and base in genome.models:
        yield f"models: {base} is the base model; its weight had no effect."
    if genome.merge_method in SPARSE:
        yield (
            f"density: was searched; here it is {DENSITY} for every model, as only "
            "weights are searched. Write others and compare the fronts."
        )
    if genome.layer_granularity > 0:
        yield _granularity(genome, space)
    elif genome.smooth:
        yield "smooth: had no effect without layer_granularity."


def _changes_of_weights(genome: Genome, space: Space) -> Iterator[str]:
    if genome.allow_negative_weights:
        yield "weights: had no bounds; here they are -1 and 1 (search.bounds)."
    else:
        yield (
            "weights: their absolute value counted, without a bound; here the bounds "
            "are 0 and 1 (search.bounds)."
        )
    normalized = genome.normalize is not False and genome.merge_method != "slerp"
    if genome.merge_method == "task_arithmetic":
        normalized = bool(genome.normalize)
    if space.ratio:
        last = space.merge["models"][-1]["model"]
        below = ", below 0 where they exceed it" if space.coefficients > 1 else ""
        yield (
            f"weights: only their ratio counts, so that {last} has no coefficient: its "
            f"weight is what the others leave of 1{below}."
        )
    elif normalized:
        yield (
            "normalize: was true, which leaves only the ratio of the weights; here it "
            "is false, so that their size is searched, too."
        )
    count, terms = space.coefficients, _terms(space.coefficients)
    if space.filters:
        yield (
            f"filters: kept, each with a weight per model: {count} coefficients, whose "
            f"quadratic has {terms} terms. Without them it had "
            f"{_terms(len(genome.merged))}."
        )
    elif genome.filters:
        yield (
            "filters: left out, as weights that count by their ratio alone have no "
            "coefficients per filter; with normalize: false they would."
        )


def _granularity(genome: Genome, space: Space) -> str:
    known = _n_layers(genome.models[0])
    layers = known or _LAYERS
    groups = max(1, layers // genome.layer_granularity)
    count = space.coefficients
    smooth = ", as smooth did," if genome.smooth else ""
    return (
        f"layer_granularity: {genome.layer_granularity} left out, a weight counts for "
        f"all layers: {count} coefficients, whose quadratic has {_terms(count)} terms. "
        f"{'The' if known else 'For example,'} {layers} layers in {groups} groups "
        f"make {count * groups} coefficients and {_terms(count * groups)} terms, and "
        "every term needs an evaluation. A gradient over the layers"
        f"{smooth} takes fewer: weight: [a_first, a_last] for a model a."
    )


def _n_layers(model: str) -> int | None:
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        return int(config["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _changes_of_tasks(evolve: Evolve, files: Mapping[str, Path]) -> Iterator[str]:
    built_in = [t.name for t in evolve.tasks if t.name not in files]
    if built_in:
        yield (
            f"tasks: {', '.join(dict.fromkeys(built_in))} must be built into lm-eval; "
            "for one of your own, give its folder by --task-search-path, or write the "
            "path of its YAML file as lm_eval."
        )
    settings = evolve.settings
    if settings.apply_chat_template:
        if "apply_chat_template" not in settings.model_fields_set:
            yield (
                "apply_chat_template: true by default in mergekit-evolve, so written "
                "out; remove it where the models have no chat template."
            )
        if not settings.fewshot_as_multiturn:
            yield "fewshot_as_multiturn: with a chat template always true here."
    if settings.num_fewshot:
        yield (
            "num_fewshot: lm-eval keeps the 0 that a task fixes itself; the search "
            "refuses the key there, so remove it where it says so."
        )
    if settings.shuffle:
        yield (
            "shuffle: drew other documents for every merge; here all merges are "
            "measured on the same, the first of each task."
        )
    if settings.random_init:
        yield "random_init: said where CMA-ES starts; this search has no start."


def _terms(d: int) -> int:
    # As search.design has it, which imports SciPy.
    return (d + 1) * (d + 2) // 2
