"""Merges with models of weight 0 are the merges without them, where that is said."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mergekit.options import MergeOptions

from mergekit_map.config.specs import SearchSpec
from mergekit_map.merging.recipe import merge_identity
from mergekit_map.merging.same_bytes import what_differs
from mergekit_map.merging.same_merges import (
    SameMerges,
    same_merges,
    stands_against,
)
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.results.identity import Identity

OPTIONS = MergeOptions(random_seed=7, quiet=True)
SUMS = ("task_arithmetic", "ties", "breadcrumbs", "breadcrumbs_ties", "linear")
DRAWING = ("dare_linear", "dare_ties", "della", "della_linear")

Models = dict[str, Path]


@pytest.fixture(scope="module")
def models(family: Models, make_model: Callable[..., Path]) -> Models:
    more = {n: make_model(n, i, family["base"]) for i, n in enumerate("de", 4)}
    return {**family, **more}


def config(models: Models, method: str, names: str, **more: Any) -> dict[str, Any]:
    parameters = {} if method in {"task_arithmetic", "linear"} else {"density": 0.5}
    entries = [{"model": str(models[n]), "parameters": {**parameters}} for n in names]
    merge = {"merge_method": method, "models": entries, "dtype": "float32", **more}
    return merge if method == "linear" else {**merge, "base_model": str(models["base"])}


def space_of(merge: dict[str, Any]) -> MergeSpace:
    space, problems = build_space(merge, SearchSpec())
    assert space is not None, problems
    return space


def identity(space: MergeSpace) -> Identity:
    """Give the identity as a run folder keeps it."""
    kept: Identity = json.loads(json.dumps(merge_identity(space, OPTIONS)))
    return kept


def shared(before: dict[str, Any], now: dict[str, Any]) -> SameMerges | None:
    return same_merges(*(identity(space_of(merge)) for merge in (before, now)))


def found(before: dict[str, Any], now: dict[str, Any]) -> SameMerges:
    same = shared(before, now)
    assert same is not None
    return same


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    return what_differs(found(before, now), space_of(now), OPTIONS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", SUMS)
def test_up_to_four_models_in_any_order_a_weight_of_0_changes_no_byte(
    models: Models, method: str, dtype: str
) -> None:
    pairs = [("a", "ab"), ("ab", "abc"), ("abc", "abcd"), ("ac", "bacd")]
    if method == "linear":  # whose last weight is what the others leave
        pairs = pairs[1:3]
    for before, now in pairs:
        former, present = (
            config(models, method, names, dtype=dtype) for names in (before, now)
        )
        assert stands_against(found(former, present), identity(space_of(present))) == ""
        assert differences(former, present) == ""


@pytest.mark.parametrize(
    "parameters",
    [{"lambda": 0.7}, {"int8_mask": True}, {"rescale": True}, {"normalize": True}],
)
def test_settings_of_a_method_make_no_difference(
    models: Models, parameters: dict[str, Any]
) -> None:
    former, present = (
        config(models, "ties", names, parameters=parameters) for names in ("ab", "abc")
    )
    # With normalised weights one of them must be a number.
    for merge in (former, present):
        if "normalize" in parameters:
            merge["models"][0]["parameters"]["weight"] = 0.4

    assert differences(former, present) == ""


@pytest.mark.parametrize("method", DRAWING)
def test_methods_that_draw_at_random_are_refused_and_differ(
    models: Models, method: str
) -> None:
    former, present = (config(models, method, names) for names in ("ab", "abc"))

    why = stands_against(found(former, present), identity(space_of(present)))

    assert why.startswith(f"{method} draws at random")
    assert "model.safetensors" in differences(former, present)


def test_sums_of_five_models_in_another_order_are_told_by_their_bytes(
    make_model: Callable[..., Path],
) -> None:
    # Of 1200 numbers in a tensor torch adds up the last 16 in another way.
    size: dict[str, Any] = {"hidden_size": 24, "intermediate_size": 50, "noise": 0.2}
    models = {"base": make_model("odd", 0, **size)}
    for seed, name in enumerate("abcde", 1):
        models[name] = make_model(f"odd-{name}", seed, models["base"], **size)
    former = config(models, "task_arithmetic", "abcd")
    at_the_end, in_front = (
        config(models, "task_arithmetic", names) for names in ("abcde", "eabcd")
    )

    assert differences(former, at_the_end) == ""
    assert differences(former, in_front) == "mergekit writes another model.safetensors"


def test_tokenizers_that_draw_on_all_models_are_told_by_their_bytes(
    models: Models, make_model: Callable[..., Path]
) -> None:
    wordy = make_model("wordy", 9, models["base"], extra_tokens=("four",))
    union: dict[str, Any] = {"tokenizer_source": "union"}
    former, present = (
        config({**models, "x": wordy}, "task_arithmetic", names, **union)
        for names in ("ab", "abx")
    )

    assert "tokenizer.json" in differences(former, present)


def test_a_method_that_does_more_than_add_is_refused(models: Models) -> None:
    former, present = (config(models, "multislerp", names) for names in ("ab", "abc"))
    now = identity(space_of(present))

    why = stands_against(found(former, present), now)

    assert why == "multislerp does more with a model than to add it up by its weight"


def test_coefficients_are_found_by_their_places_and_not_by_their_names(
    models: Models,
) -> None:
    former = config(models, "ties", "ab")
    former["models"][0]["parameters"]["weight"] = ["low", "high"]
    present = config(models, "ties", "cab")
    present["models"][1]["parameters"]["weight"] = ["first", "last"]
    same = found(former, present)

    merge = same.translate({"low": 0.1, "high": 0.2, "b": 0.3})

    assert merge == {"c": 0.0, "first": 0.1, "last": 0.2, "b": 0.3}
    assert (
        space_of(former).config({"low": 0.1, "high": 0.2, "b": 0.3})["models"]
        == (same.without(space_of(present).config(merge))["models"])
    )


def test_what_is_left_of_1_is_a_coefficient_of_its_own_once_there_is_a_further_model(
    models: Models,
) -> None:
    same = found(config(models, "linear", "ab"), config(models, "linear", "abc"))

    for weight in (0.0, 0.1, 1 / 3, 0.7, 1.0):
        assert same.translate({"a": weight}) == {"a": weight, "b": 1.0 - weight}


def test_without_a_model_only_merges_in_which_it_weighed_nothing_are_there(
    models: Models,
) -> None:
    now = config(models, "ties", "ac")
    same = found(config(models, "ties", "abc"), now)

    assert same.translate({"a": 0.3, "b": 0.0, "c": 0.5}) == {"a": 0.3, "c": 0.5}
    assert same.translate({"a": 0.3, "b": 1e-300, "c": 0.5}) is None
    assert stands_against(same, identity(space_of(now))) == ""


def test_without_a_model_nothing_is_taken_that_mergekit_cannot_show(
    models: Models,
) -> None:
    cases = {
        "more than 4 models": ("abcde", "abcd", {}),
        "without dtype": ("abc", "ab", {"dtype": None}),
        "tokenizer_source may": ("abc", "ab", {"tokenizer_source": "union"}),
    }
    for why, (before, now, more) in cases.items():
        former, present = (config(models, "ties", n, **more) for n in (before, now))
        same = found(former, present)
        assert why in stands_against(same, identity(space_of(present)))


@pytest.mark.parametrize(
    "changes",
    [
        {"merge_method": "task_arithmetic"},
        {"dtype": "bfloat16"},
        {"parameters": {"lambda": 0.5}},
        {"base_model": "d"},
    ],
)
def test_configurations_that_differ_otherwise_have_no_merges_in_common(
    models: Models, changes: dict[str, Any]
) -> None:
    former, present = (config(models, "ties", names) for names in ("ab", "abc"))
    if "base_model" in changes:
        changes = {"base_model": str(models["d"])}

    assert shared(former, {**present, **changes}) is None


def test_models_that_differ_or_change_places_have_no_merges_in_common(
    models: Models,
) -> None:
    former = config(models, "ties", "ab")
    present = config(models, "ties", "abc")
    denser = config(models, "ties", "abc")
    denser["models"][0]["parameters"]["density"] = 0.6
    fixed = config(models, "ties", "abc")
    fixed["models"][2]["parameters"]["weight"] = 0.3

    assert shared(former, present) is not None
    assert shared(former, denser) is None
    assert shared(former, fixed) is None
    assert shared(former, config(models, "ties", "bac")) is None


def test_a_record_that_somebody_changed_has_no_merges_in_common(
    models: Models,
) -> None:
    before, now = (identity(space_of(config(models, "ties", n))) for n in ("ab", "abc"))
    assert same_merges(before, now) is not None
    wrong: list[Any] = [None, 3, [], {"models": 3}, [[["models", 9]]]]

    for key, value in itertools.product(before, wrong):
        same_merges({**before, key: value}, now)
    assert same_merges({}, now) is None
