"""The digests that identify a merge."""

from __future__ import annotations

from typing import Any

import pytest

from mergekit_map.merging.recipe import recipe_digest, space_digest
from mergekit_map.results.records import Identity


def identity(models: str = "abc", **changes: Any) -> Identity:
    """The identity of a search of some models, with a coefficient for each."""
    names = {n: f"/models/{n}" for n in models}
    places = {n: [["models", i, "parameters", "weight"]] for i, n in enumerate(models)}
    given: Any = {"method": "ties", "coefficients": places, "remainder": []}
    given |= {"dtype": "float32", "out_dtype": None, "device": "cpu"}
    given["models"] = {"/models/base": "0", **{p: n * 16 for n, p in names.items()}}
    entries = [{"model": p, "parameters": {"density": 0.5}} for p in names.values()]
    given["configuration"] = {"base_model": "/models/base", "models": entries}
    for key, value in changes.items():
        (given if key in Identity.model_fields else given["configuration"])[key] = value
    return Identity(**given)


WEIGHTS = {"a": 0.3, "b": 0.7, "c": 0.0}


def test_a_model_of_weight_0_is_left_out() -> None:
    with_c, without = identity("abc"), identity("ab")

    assert recipe_digest(with_c, WEIGHTS) == recipe_digest(without, WEIGHTS)
    more = {**WEIGHTS, "c": 0.1}
    assert recipe_digest(with_c, more) != recipe_digest(without, WEIGHTS)
    assert space_digest(with_c) != space_digest(without)
    ones = ({**WEIGHTS, "a": one} for one in (1, 1.0))
    assert len({recipe_digest(with_c, weights) for weights in ones}) == 1


def test_an_adapter_of_weight_0_is_left_out_with_its_dtype() -> None:
    with_adapter = identity("ab", lora_merge_dtype="float32")
    models: Any = with_adapter.configuration["models"]
    models[1]["model"] = "/models/base+/models/b"
    weights = {"a": 0.3, "b": 0.0}

    assert recipe_digest(with_adapter, weights) == recipe_digest(identity("a"), weights)


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
def test_a_model_that_leaves_a_trace_at_weight_0_stays(changes: dict[str, Any]) -> None:
    one, other = (identity(models, **changes) for models in ("ab", "abc"))

    assert recipe_digest(one, WEIGHTS) != recipe_digest(other, WEIGHTS)


def test_sums_of_more_than_four_models_depend_on_all_of_them() -> None:
    weights = {**WEIGHTS, "d": 0.1, "e": 0.0}

    five, four, three = (
        recipe_digest(identity(models), weights) for models in ("abcde", "abde", "abd")
    )
    assert five != four == three


@pytest.mark.parametrize(
    ("key", "value"),
    [("method", "task_arithmetic"), ("dtype", "bfloat16"), ("device", "cuda"),
     ("seed", 1), ("out_dtype", "float16")],
)  # fmt: skip
def test_whatever_else_decides_a_merge_is_part_of_it(key: str, value: Any) -> None:
    other = identity(**{key: value})

    assert recipe_digest(other, WEIGHTS) != recipe_digest(identity(), WEIGHTS)
    assert space_digest(other) != space_digest(identity())
