"""Which merges of a search are base, parents and soup."""

from __future__ import annotations

from typing import Any

import pytest
from runs import space_of
from test_space import merge, weighted

from mergekit_map.merging.recording import GENERIC
from mergekit_map.merging.reference_points import (
    linear_space,
    reference_points,
    soup_weights,
)

EVERY, FIXED = ["base", "one", "two", "soup"], {"value": 0.3}


def sliced(*ranges: list[int]) -> dict[str, Any]:
    names = ("x/base", "x/one", "y/two")
    parts = [[{"model": n, "layer_range": r} for n in names] for r in ranges]
    content = {"merge_method": "task_arithmetic", "base_model": "x/base"}
    return {**content, "slices": [{"sources": part} for part in parts]}


def apart() -> dict[str, Any]:
    """Merge the base with another model in each of two slices."""
    content = sliced([0, 4], [4, 8])
    for model, part in zip((2, 1), content["slices"], strict=True):
        del part["sources"][model]
    return content


def added(model: Any, **more: Any) -> dict[str, Any]:
    return merge("task_arithmetic", model, "y/two", **more)


def dense(model: str, density: float) -> dict[str, Any]:
    return {"model": model, "parameters": {"density": density}}


@pytest.mark.parametrize(
    ("config", "own"),
    [
        (added("x/one"), EVERY),
        (merge("map_task_arithmetic", "x/one", "y/two", dtype="bfloat16"), EVERY),
        (added("x/one", parameters={"lambda": 2}), ["base"]),
        (merge("task_arithmetic", weighted("x/one", "w"), weighted("y/two", 0.3)), []),
        (added(weighted("x/one", ["low", "high"])), EVERY),
        (added(weighted("x/one", [{"filter": "mlp", "value": "w"}, FIXED])), []),
        (merge("ties", dense("x/one", 0.5), dense("y/two", 0.5)), ["base"]),
        (merge("ties", "x/one", "y/two"), ["base", "one", "two"]),
        (merge("dare_linear", "x/one", "y/two"), ["base"]),
        (merge("breadcrumbs", "x/one", "y/two"), ["base"]),
        (sliced([0, 4], [4, 8]), EVERY),
        (sliced([0, 6], [2, 8]), []),
        (sliced([0, 4]), []),
        (apart(), []),
        (added("x/one", slices=None), EVERY),
    ],
)
def test_merges_that_are_these_models_stand_for_them(
    config: dict[str, Any], own: list[str]
) -> None:
    space = space_of(config)
    found = reference_points(space, 8)

    assert list(found.own) == own
    assert sorted([*found.own, *found.others]) == sorted(EVERY)
    alike = {tuple(merge.values()) for merge in space.anchors().values()}
    assert {tuple(m.values()) for m in {**found.own, **found.corners}.values()} == alike


def test_a_corner_has_the_name_of_a_model_only_if_it_is_that_model_alone() -> None:
    fixed = merge("ties", weighted("x/one", "w"), weighted("y/two", 0.5))

    assert {*reference_points(space_of(fixed)).corners} == {"w 0", "w 1"}
    free = reference_points(space_of(merge("dare_linear", "x/one", "y/two")))
    assert list(free.corners)[1:] == ["two alone, Linear DARE", "uniform Linear DARE"]
    sphere = reference_points(space_of(merge("multislerp", "x/one", "y/two")))
    assert list(sphere.corners) == ["uniform Multi-SLERP"]


def test_shares_of_a_whole_have_no_base() -> None:
    config = merge("linear", "x/one", "y/two", base_model=None)

    assert list(reference_points(space_of(config)).own) == ["two", "one", "soup"]


def test_other_reference_points_are_linear_merges_with_the_same_settings() -> None:
    settings = {"dtype": "float32", "out_dtype": "bfloat16", "chat_template": "auto"}
    models = (dense("x/one", 0.5), dense("y/two", 0.5))
    space = space_of(merge("ties", *models, tokenizer_source="base", **settings))

    found = reference_points(space)

    assert list(found.corners) == ["one alone, TIES", "two alone, TIES", "uniform TIES"]
    assert found.others["two"] == {"base": 0.0, "one": 0.0, "two": 1.0}
    assert found.others["soup"] == soup_weights(space)
    shares = {"x/base": 0.0, "x/one": 0.5, "y/two": 0.5}
    assert found.linear.config(soup_weights(space)) == {
        **settings,
        "merge_method": "linear",
        "base_model": "x/base",
        "tokenizer_source": "base",
        "parameters": {"normalize": False},
        "models": [weighted(model, share) for model, share in shares.items()],
    }


def test_what_is_recorded_is_a_sound_model_without_weights_alike() -> None:
    references = linear_space(space_of(merge("ties", "x/one", "y/two")))
    models = ("x/one", "y/two", "z/three")
    shares = space_of(merge("linear", *models, base_model=None))  # of a whole

    for space, total in ((references, 1), (shares, GENERIC)):
        weights = space.generic(GENERIC).values()
        assert len({*weights}) == len(weights)
        assert sum(weights) == pytest.approx(total)
