"""Which numbers are searched, and that filling them in gives mergekit's YAML."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from mergekit.options import MergeOptions
from runs import space_of

from mergekit_map.config.schema import SearchSpec
from mergekit_map.merging.space import build_space, check_plan
from mergekit_map.merging.validation import check_merge


def merge(method: str = "task_arithmetic", *models: Any, **more: Any) -> dict[str, Any]:
    entries = [{"model": m} if isinstance(m, str) else m for m in models]
    return {"merge_method": method, "base_model": "x/base", "models": entries, **more}


def weighted(model: str, weight: Any) -> dict[str, Any]:
    return {"model": model, "parameters": {"weight": weight}}


def problem_of(config: dict[str, Any]) -> str:
    space, (problem,) = build_space(config, SearchSpec())
    assert space is None
    return problem.message


def test_no_model_is_called_as_another_or_an_anchor_is() -> None:
    space = space_of(merge("ties", "x/tuned", "y/tuned", "x/base+z/tuned"))

    assert space.names == ("x/tuned", "y/tuned", "z/tuned")
    space = space_of(merge("ties", "x/soup", "soup", "./base"))

    assert space.names == ("x/soup", "soup-model", "./base")
    assert list(space.anchors()) == ["base", "x/soup", "soup-model", "./base", "soup"]
    space = space_of(merge("ties", "base", "x/base-model"))
    assert space.names == ("./base", "x/base-model")


@pytest.mark.parametrize("model", ["x/a\x1b[2Jb", "x/a\nb", "x/a\u202eb"])
def test_a_coefficient_is_called_by_a_line_of_text(model: str) -> None:
    # Its name goes into recipes, tables and terminals.
    assert problem_of(merge("ties", "x/one", model)).endswith(
        "is no line of text; give it another name"
    )
    named = merge("ties", "x/one", weighted("x/two", model))
    assert "is no line of text" in problem_of(named)


@pytest.mark.parametrize(
    ("method", "normalize"),
    [("map_ties", False), ("della", False), ("dare_ties", None), ("breadcrumbs", None)],
)
def test_normalising_is_switched_off_where_it_is_the_default(
    method: str, normalize: bool | None
) -> None:
    filled = space_of(merge(method, "x/one", "x/two")).config({"one": 0.1, "two": 0.2})

    assert filled.get("parameters", {}).get("normalize") is normalize
    assert filled["merge_method"] == method.removeprefix("map_")  # mergekit's own


@pytest.mark.parametrize("method", ["ties", "linear", "nuslerp", "multislerp"])
def test_where_only_the_ratio_counts_the_last_model_gets_the_rest(method: str) -> None:
    config = merge(method, weighted("x/one", "one"), weighted("x/two", "other"))
    if method == "ties":
        config["parameters"] = {"normalize": "yes"}
    else:
        del config["base_model"]
    space = space_of(config)

    assert space.names == ("one",)
    filled = space.config({"one": 0.3})
    assert [m["parameters"]["weight"] for m in filled["models"]] == [0.3, 0.7]
    found = {label: c["one"] for label, c in space.anchors().items()}
    assert found == {"two": 0.0, "one": 1.0, "soup": 0.5}


def test_says_what_cannot_be_searched() -> None:
    ratios = merge("ties", "x/1", "x/2", "x/3", parameters={"normalize": True})
    fixed = merge("ties", weighted("x/one", 0.5))

    assert "3 coefficients cannot be told apart; set norm" in problem_of(ratios)
    partly = [{"filter": "mlp", "value": True}, {"value": False}]
    told_apart = merge("ties", "x/1", "x/2", "x/3", parameters={"normalize": partly})
    assert space_of(told_apart).names == ("1", "2", "3")
    assert "every model has a number as its weight" in problem_of(fixed)
    for models in itertools.permutations(["x/one", weighted("x/two", "one")]):
        assert "'one' is another model" in problem_of(merge("ties", *models))
    numbers, free = ([weighted(f"x/{n}", w) for n in "ab"] for w in (0.5, None))
    named, other = ([weighted(f"x/{n}", f"{n}{i}") for n in "ab"] for i in (1, 2))
    known = [weighted("x/a", 0.5), named[1]]

    def linear(*parts: Any) -> dict[str, Any]:
        slices = [{"sources": sources} for sources in parts]
        return {"merge_method": "linear", "slices": slices}

    others = [weighted(f"x/{n}", None) for n in "bc"]
    for config in (linear(numbers, free), linear(named, other), linear(free, others)):
        assert "cannot be told apart" in problem_of(config)
    space, _ = build_space(linear(named, known), SearchSpec())
    assert space.names == ("a1", "b1")


@pytest.mark.parametrize(
    "filters", [{"filter": "mlp", "value": "w"}, [{"value": "w"}, {"value": 0.5}]]
)
def test_filters_end_with_what_holds_for_all_other_tensors(filters: Any) -> None:
    (problem,) = check_merge(merge("ties", weighted("x/one", filters)))

    assert "so the last entry must be" in problem.message


def test_a_filter_that_is_in_no_name_is_told(family: dict[str, Path]) -> None:
    filters = [{"filter": "attention.q", "value": "w"}, {"value": "rest"}]
    config = merge("ties", weighted(str(family["a"]), filters))
    space = space_of({**config, "base_model": str(family["base"])})

    (problem,) = check_plan(space, MergeOptions())

    assert "no tensor has the weight 'w'" in problem.message
