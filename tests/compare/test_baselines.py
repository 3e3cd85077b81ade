"""The merges that fronts are held against, written by mergekit and done by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mergekit.options import MergeOptions
from runs import space_of
from safetensors.numpy import load_file

from mergekit_map.compare.baselines import (
    NAMES,
    count_baselines,
    dare_arithmetic,
    elected,
    fine_tuned_models,
    single_model,
    task_arithmetic,
    whole_merges,
)
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import merge_identity
from mergekit_map.merging.space import MergeSpace
from mergekit_map.merging.validation import check_merge

OPTIONS = MergeOptions(random_seed=3, quiet=True)
TENSOR = "model.layers.1.mlp.up_proj.weight"

Array = np.ndarray[Any, np.dtype[np.float32]]


def searched(
    family: Mapping[str, Path], names: str = "ab", method: str = "della", **more: Any
) -> MergeSpace:
    config = {
        "merge_method": method,
        "base_model": str(family["base"]),
        "models": [{"model": str(family[n])} for n in names],
        "dtype": "float32",
        **more,
    }
    return space_of({k: value for k, value in config.items() if value is not None})


def merged(space: MergeSpace) -> Array:
    """Merge with stock mergekit, which must use every key, and read a matrix."""
    config = space.config({})
    assert check_merge(config) == []
    write_checkpoint(config, Path("merged"), OPTIONS)
    return matrix(Path("merged"))


def matrix(model: Path) -> Array:
    return load_file(model / "model.safetensors")[TENSOR]


def test_ties_averages_what_agrees_of_the_largest_fifth(
    family: dict[str, Path],
) -> None:
    ties = elected(searched(family, "abc"), "ties", 0.2, 2.5)
    task_vector = merged(ties) - matrix(family["base"])

    deltas = np.array([matrix(family[n]) - matrix(family["base"]) for n in "abc"])
    for delta in deltas:
        limit = np.sort(np.abs(delta).ravel())[-int(0.2 * delta.size)]
        delta[np.abs(delta) < limit] = 0
    agreeing = np.sign(deltas) == np.where(deltas.sum(axis=0) >= 0, 1, -1)
    count = np.maximum(agreeing.sum(axis=0), 1)
    expected = 2.5 * (deltas * agreeing).sum(axis=0) / count
    np.testing.assert_allclose(task_vector, expected, atol=1e-6)


def test_what_task_arithmetic_measured_is_its_baseline(family: dict[str, Path]) -> None:
    space = searched(family, method="task_arithmetic")
    same = task_arithmetic(space)

    assert merge_identity(same, OPTIONS) == merge_identity(space, OPTIONS)
    assert same.names == ("a", "b")


def test_single_models_are_what_they_are_with_the_tokenizer_of_the_merge(
    family: dict[str, Path],
) -> None:
    space = searched(family, tokenizer={"source": "base"}, chat_template="chatml")

    one, other = fine_tuned_models(space)
    single = single_model(space, other)

    assert [one, other] == [str(family["a"]), str(family["b"])]
    assert single.template["tokenizer"] == {"source": str(family["base"])}
    assert single.template["chat_template"] == "chatml"
    assert space.template["tokenizer"] == {"source": "base"}
    np.testing.assert_array_equal(merged(single), matrix(family["b"]))


def test_baselines_are_merges_of_whole_models_with_parameters_that_mergekit_knows(
    family: dict[str, Path],
) -> None:
    layers = [{"model": str(family[n]), "layer_range": [0, 2]} for n in "ab"]
    space = searched(family, method="ties", models=None, slices=[{"sources": layers}])
    tuned = {"normalize": True, "lambda": 1.2}
    each = {"weight": 1.0, "density": 0.3}
    expected: list[tuple[MergeSpace, str, Any, Any]] = [
        (whole_merges(space)[NAMES.soup], "linear", None, {"weight": 1.0}),
        (whole_merges(space)[NAMES.slerp], "slerp", {"t": 0.5}, None),
        (elected(space, "ties", 0.3, 1.2), "ties", tuned, each),
        (elected(space, "dare_ties", 0.3, 1.2), "dare_ties", tuned, each),
        (elected(space, "della", 0.3, 1.2), "della", tuned, each),
        (dare_arithmetic(space, 0.3, 1.0), "dare_linear", None, each),
    ]
    for merge, method, parameters, of_each in expected:
        config = merge.config({})
        assert check_merge(config) == []
        assert "slices" not in config
        assert config["merge_method"] == method
        assert config.get("parameters") == parameters
        assert [model.get("parameters") for model in config["models"]] == [of_each] * 2
    # Both ends of an arc are models.
    assert whole_merges(space)[NAMES.slerp].template["base_model"] == str(family["a"])


def test_without_a_base_there_are_the_models_and_their_average(
    family: dict[str, Path],
) -> None:
    space = searched(family, "abc", method="linear", base_model=None)

    assert count_baselines(space, 20) == 3 + 1
    own = searched(family, "abc", method="linear", base_model=str(family["a"]))
    assert fine_tuned_models(own) == fine_tuned_models(space)
    assert count_baselines(own, 20) == 3 + 1
