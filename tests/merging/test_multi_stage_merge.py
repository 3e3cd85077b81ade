"""Which merges of merges are one merge, and what the others need."""

from __future__ import annotations

from typing import Any

import pytest
from test_in_memory import TASK_VECTOR_METHODS

from mergekit_map.config.schema import SearchSpec
from mergekit_map.merging.recipe import is_linear, staging_problems
from mergekit_map.merging.space import MergeSpace, build_space


def space_of(method: str, **changes: Any) -> MergeSpace:
    models = [{"model": f"x/{n}", "parameters": {"density": 0.5}} for n in "abc"]
    merge = {"merge_method": method, "base_model": "x/base", "models": models}
    merge |= changes
    merge = {key: value for key, value in merge.items() if value is not None}
    space, problems = build_space(merge, SearchSpec())
    assert space is not None, problems
    return space


@pytest.mark.parametrize("method", [*TASK_VECTOR_METHODS, "map_task_arithmetic"])
def test_methods_without_election_of_signs_are_linear(method: str) -> None:
    elects = {"ties", "dare_ties", "della", "breadcrumbs_ties"}

    assert is_linear(space_of(method)) == (method not in elects)


def test_shares_of_a_whole_are_linear_and_other_normalised_weights_are_not() -> None:
    models = [{"model": f"x/{n}"} for n in "abc"]
    fixed = [*models[:2], {"model": "x/c", "parameters": {"weight": 0.5}}]
    normalised = {"normalize": True}

    assert is_linear(space_of("linear", base_model=None, models=models))
    assert not is_linear(space_of("linear", base_model=None, models=fixed))
    assert not is_linear(space_of("multislerp", models=models))
    assert is_linear(space_of("task_arithmetic", models=fixed))
    assert not is_linear(
        space_of("task_arithmetic", models=fixed, parameters=normalised)
    )
    source = {"layer_range": [0, 2], "model": "x/a"}
    sources = [source, {**source, "model": "x/base"}]
    slices = [{"sources": sources, "parameters": normalised}]
    sliced = {"models": None, "slices": slices}
    assert not is_linear(space_of("task_arithmetic", **sliced))


SOURCES = [{"model": f"x/{n}", "layer_range": [0, 2]} for n in "ab"]
EACH = "one searched weight for each model"


def weighted(*weights: Any) -> dict[str, Any]:
    each = [{} if weight is None else {"weight": weight} for weight in weights]
    pairs = zip("abc", each, strict=False)
    return {"models": [{"model": f"x/{n}", "parameters": p} for n, p in pairs]}


@pytest.mark.parametrize(
    ("changes", "key", "needed"),
    [
        ({"models": None, "slices": [{"sources": SOURCES}]}, ("slices",), "plain list"),
        (weighted(None, None, 0.3), ("models", 2), EACH),
        (weighted(["low", "high"], None), ("models", 0), EACH),
        ({"parameters": {"weight": "all"}}, ("models", 0), EACH),
        ({"tokenizer": {"source": "x/a"}}, ("tokenizer",), "tokenizer of the base"),
    ],
)
def test_says_what_keeps_checkpoints_from_being_merged_in_pairs(
    changes: dict[str, Any], key: tuple[Any, ...], needed: str
) -> None:
    (problem,) = staging_problems(space_of("ties", **changes))

    assert problem.key == key
    assert needed in problem.message
    assert "use strategy map, or a method that elects no signs" in problem.message
