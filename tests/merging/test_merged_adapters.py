"""Merges of LoRA adapters against mergekit's, which merges whole copies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from mergekit.options import MergeOptions
from model_files import edit_config, make_adapter
from test_in_memory import OPTIONS, assert_ships_what_it_measures, config, space_of

from mergekit_map.merging.space import check_plan


def options_in(folder: Path) -> MergeOptions:
    return OPTIONS.model_copy(update={"lora_merge_cache": str(folder / "cache")})


@pytest.mark.parametrize(
    ("method", "settings", "other_base"),
    [
        ("task_arithmetic", {}, False),
        ("ties", {"use_dora": True}, False),
        ("task_arithmetic", {"rank_pattern": {"q_proj": 2}}, True),
        ("dare_linear", {"use_rslora": True}, False),  # draws after adapters are merged
    ],
)
def test_adapters_ship_what_is_measured(
    method: str,
    settings: dict[str, Any],
    other_base: bool,
    family_bf16: dict[str, Path],
    tmp_path: Path,
) -> None:
    front = family_bf16["base"]
    adapter = make_adapter(front, tmp_path / "adapter", 4, **settings)
    names = {"base": family_bf16["a" if other_base else "base"]}
    merge = config(method, {**names, "b": family_bf16["b"]}, "b")
    merge["models"].append({**merge["models"][0], "model": f"{front}+{adapter}"})

    assert_ships_what_it_measures(space_of(merge), options_in(tmp_path))


def test_an_adapter_of_tensors_that_mergekit_would_look_for_is_refused(
    family: dict[str, Path], tmp_path: Path
) -> None:
    base = shutil.copytree(family["base"], tmp_path / "base")
    adapter = make_adapter(base, tmp_path / "adapter", 7)
    models = {"base": base, "x": Path(f"{base}+{adapter}")}
    merge = config("task_arithmetic", models, "x")
    assert check_plan(space_of(merge), OPTIONS) == []

    edit_config(model_type="smollm3", architectures=["SmolLM3ForCausalLM"])(base)

    (problem,) = check_plan(space_of(merge), OPTIONS)
    assert "merge the adapters into their bases first" in problem.message


def test_an_adapter_that_is_trained_again_at_its_path_is_another_one(
    family: dict[str, Path], tmp_path: Path
) -> None:
    base = family["base"]
    adapter = make_adapter(base, tmp_path / "adapter", 7)
    models = {"base": base, "x": Path(f"{base}+{adapter}")}
    merge = config("task_arithmetic", models, "x")

    def query() -> torch.Tensor:
        found = assert_ships_what_it_measures(space_of(merge), options_in(tmp_path))
        tensors = found.model.state_dict()
        return tensors["model.layers.0.self_attn.q_proj.weight"].clone()

    first = query()
    make_adapter(base, adapter, 10)

    assert not torch.equal(query(), first)
