"""Models that are laid out in their own way: experts, offloaded, on several devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import accelerate
import pytest
import transformers
from test_in_memory import (
    OPTIONS,
    assert_equal_states,
    assert_ships_what_it_measures,
    config,
    space_of,
)

from mergekit_map.errors import MergeError
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge

# Of a Llama, and where they lie.
NAMES = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm"]
PARTS = dict.fromkeys([*NAMES, "model.rotary_emb", "lm_head"], "cpu")


@pytest.fixture
def experts(make_half: Callable[..., dict[str, Path]]) -> dict[str, Path]:
    """A Qwen3 of 4 experts, 2 of them at a time, and two fine-tunes of it."""
    some = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return make_half("experts", kind="Qwen3Moe", head_dim=8, **some)


@pytest.mark.parametrize("method", ["task_arithmetic", "ties"])
def test_a_mixture_of_experts_is_merged_in_memory_as_mergekit_ships_it(
    method: str, experts: dict[str, Path], tmp_path: Path
) -> None:
    space = space_of(config(method, experts))

    merge = assert_ships_what_it_measures(space, tmp_path)

    assert any("experts" in name for name in merge.replays)


def test_a_model_in_parts_takes_merges_and_answers_as_a_whole_one(
    family: dict[str, Path], tmp_path: Path
) -> None:
    space = space_of(config("ties", family))
    tuned = transformers.AutoModelForCausalLM.from_pretrained(family["a"])
    parts = accelerate.dispatch_model(tuned, PARTS, force_hooks=True)
    assert parts.hf_device_map == PARTS

    assert_ships_what_it_measures(space, tmp_path, model=parts)


def test_a_model_that_was_converted_is_refused(family: dict[str, Path]) -> None:
    space = space_of(config("task_arithmetic", family))
    with resident_merge(space, OPTIONS) as merge:
        merge.model.half()
        with pytest.raises(MergeError, match=r"tensors of the model, .* in dtype"):
            merge.write({"a": 0.5, "b": 0.5})


def test_a_model_that_is_offloaded_is_refused_before_anything_is_written(
    family: dict[str, Path], tmp_path: Path
) -> None:
    space = space_of(config("task_arithmetic", family))
    places = {**PARTS, "model.layers.1": "disk"}
    offloaded = transformers.AutoModelForCausalLM.from_pretrained(
        family["base"], device_map=places, offload_folder=tmp_path
    )
    before = {n: p.clone() for n, p in offloaded.state_dict().items() if not p.is_meta}
    with resident_merge(space, OPTIONS) as merge:
        away = ResidentMerge(offloaded, merge.tokenizer, merge.replays, merge.weights)
        with pytest.raises(MergeError, match=r"9 tensors .*layers\.1\..* offloaded"):
            away.write({"a": 0.5, "b": 0.5})
    left = {n: p for n, p in offloaded.state_dict().items() if not p.is_meta}
    assert 0 < len(left) < len(offloaded.state_dict())
    assert_equal_states(left, before)
