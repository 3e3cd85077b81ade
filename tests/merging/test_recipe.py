"""What a merge is known by, and which merges of merges are one merge."""

from __future__ import annotations

from typing import Any

import pytest
from test_in_memory import TASK_VECTOR_METHODS

from mergekit_map.config.schema import SearchSpec
from mergekit_map.merging.recipe import (
    is_linear,
    recipe_digest,
    space_digest,
    staging_problems,
)
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.results.records import Identity


def identity(models: str = "abc", **changes: Any) -> Identity:
    """The identity of a search of some models, with a coefficient for each."""
    names = {n: f"/models/{n}" for n in models}
    given = {
        "method": "ties",
        "models": {"/models/base": "0", **{p: n * 16 for n, p in names.items()}},
        "coefficients": {
            n: [["models", i, "parameters", "weight"]] for i, n in enumerate(models)
        },
        "remainder": [],
        "dtype": "float32",
        "out_dtype": None,
        "configuration": {
            "base_model": "/models/base",
            "models": [
                {"model": p, "parameters": {"density": 0.5}} for p in names.values()
            ],
        },
        "device": "cpu",
    }
    for key, value in changes.items():
        place = given if key in Identity.model_fields else given["configuration"]
        place[key] = value
    return Identity(**given)


WEIGHTS = {"a": 0.3, "b": 0.7, "c": 0.0}


def test_a_model_of_weight_0_is_left_out() -> None:
    with_c, without = identity("abc"), identity("ab")

    assert recipe_digest(with_c, WEIGHTS) == recipe_digest(without, WEIGHTS)
    assert recipe_digest(with_c, {**WEIGHTS, "c": 0.1}) != recipe_digest(
        without, WEIGHTS
    )
    assert space_digest(with_c) != space_digest(without)
    ones = ({**WEIGHTS, "a": one} for one in (1, 1.0))
    assert len({recipe_digest(with_c, weights) for weights in ones}) == 1


@pytest.mark.parametrize("weight", [0, [0.0, 0], [{"filter": "mlp", "value": 0}, 0]])
def test_a_weight_is_0_where_all_of_it_is(weight: Any) -> None:
    fixed = identity("abc")
    fixed.coefficients.pop("c")
    models: Any = fixed.configuration["models"]
    models[2]["parameters"]["weight"] = weight

    assert recipe_digest(fixed, WEIGHTS) == recipe_digest(identity("ab"), WEIGHTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "dare_ties", "seed": 0},
        {"method": "linear"},
        {"dtype": None},
        {"tokenizer": {"source": "union"}},
        {"base_model": None},
    ],
)
def test_a_model_that_may_leave_a_trace_at_weight_0_stays(
    changes: dict[str, Any],
) -> None:
    one, other = (identity(models, **changes) for models in ("ab", "abc"))

    assert recipe_digest(one, WEIGHTS) != recipe_digest(other, WEIGHTS)


def test_sums_of_more_than_four_models_depend_on_all_of_them() -> None:
    weights = {**WEIGHTS, "d": 0.1, "e": 0.0}

    assert recipe_digest(identity("abde"), weights) == recipe_digest(
        identity("abd"), weights
    )
    assert recipe_digest(identity("abcde"), weights) != recipe_digest(
        identity("abde"), weights
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("method", "task_arithmetic"), ("dtype", "bfloat16"), ("device", "cuda"),
     ("seed", 1), ("out_dtype", "float16")],
)  # fmt: skip
def test_whatever_else_decides_a_merge_is_part_of_it(key: str, value: Any) -> None:
    other = identity(**{key: value})

    assert recipe_digest(other, WEIGHTS) != recipe_digest(identity(), WEIGHTS)
    assert space_digest(other) != space_digest(identity())


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


def weighted(*weights: Any) -> dict[str, Any]:
    each = [{} if weight is None else {"weight": weight} for weight in weights]
    pairs = zip("abc", each, strict=False)
    return {"models": [{"model": f"x/{n}", "parameters": p} for n, p in pairs]}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"models": None, "slices": [{"sources": SOURCES}]}, ("slices",)),
        (weighted(None, None, 0.3), ("models", 2)),
        (weighted(["low", "high"], None), ("models", 0)),
        ({"parameters": {"weight": "all"}}, ("models", 0)),
        ({"tokenizer": {"source": "x/a"}}, ("tokenizer",)),
    ],
)
def test_says_what_keeps_checkpoints_from_being_merged_in_pairs(
    changes: dict[str, Any], key: tuple[Any, ...]
) -> None:
    (problem,) = staging_problems(space_of("ties", **changes))

    assert problem.key == key
    assert "takes a plain list of 'models:' with one searched" in problem.message
    assert "use strategy map, or a method that elects no signs" in problem.message
