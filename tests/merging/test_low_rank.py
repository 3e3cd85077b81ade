"""Task vectors of adapters that stay in low rank, against mergekit's merged copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from mergekit.options import MergeOptions
from test_in_memory import (
    OPTIONS,
    assert_ships_what_it_measures,
    config,
    space_of,
)
from torch import Tensor

from mergekit_map.merging.replay import Factors, TaskVectorReplay

Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Make an adapter with random matrices for a model."""

    def make(
        base: Path, seed: int, dtype: torch.dtype = torch.float32, **settings: Any
    ) -> Path:
        folder = tmp_path_factory.mktemp("adapters") / f"adapter{seed}"
        model = transformers.AutoModelForCausalLM.from_pretrained(base)
        given = {"r": 4, "target_modules": ["q_proj", "up_proj"], **settings}
        lora = peft.LoraConfig(**{"init_lora_weights": False, **given})
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(model, lora)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.data = (parameter.data * 0.2).to(dtype)
        adapted.save_pretrained(folder, save_embedding_layers=False)
        return folder

    return make


def merge_of(
    method: str, base: Path, adapters: list[Path], *tuned: Path, **more: Any
) -> dict[str, Any]:
    merge = config(method, {"base": base}, "", **more)
    models = [*tuned, *(f"{base}+{adapter}" for adapter in adapters)]
    merge["models"] = [{"model": str(model)} for model in models]
    return merge


def options_in(folder: Path, **more: Any) -> MergeOptions:
    return OPTIONS.model_copy(update={"lora_merge_cache": str(folder), **more})


def replays_of(merge: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the replays of a merge that equals stock mergekit's, which merges copies.

    The first weight is negative, so that zeros get either sign.
    """
    options = options_in(folder / "cache")
    found = assert_ships_what_it_measures(space_of(merge), folder, options, sign=-1)
    return dict(found.replays)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("method", ["task_arithmetic", "ties"])
def test_adapters_in_low_rank_merge_as_mergekits_copies_of_them(
    method: str,
    half: bool,
    family: dict[str, Path],
    family_bf16: dict[str, Path],
    train: Train,
    tmp_path: Path,
) -> None:
    base = (family_bf16 if half else family)["base"]
    dtypes = [torch.float32, torch.bfloat16]
    adapters = [train(base, i, dtype) for i, dtype in enumerate(dtypes)]

    replays = replays_of(merge_of(method, base, adapters), tmp_path)

    assert sum(replay.deltas == () for replay in replays.values()) == 21 - 4
    rows = replays["model.layers.1.self_attn.q_proj.weight"].deltas
    assert [row.a.shape for row in rows] == [(4, 32)] * 2
    assert [len(row.places) for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("settings", "tensor"),
    [
        ({"use_rslora": True}, "layers.0.mlp.up_proj"),
        ({"lora_alpha": 3, "alpha_pattern": {"up_proj": 7}}, "layers.0.mlp.up_proj"),
        (
            {"rank_pattern": {"q_proj": 2}, "layers_to_transform": [1]},
            "layers.1.self_attn.q_proj",
        ),
        ({"target_modules": ["lm_head"]}, "lm_head"),
    ],
)
def test_settings_of_adapters_mean_what_they_mean_to_peft(
    settings: dict[str, Any],
    tensor: str,
    family_bf16: dict[str, Path],
    train: Train,
    tmp_path: Path,
) -> None:
    base = family_bf16["base"]
    adapters = [train(base, 4, **settings)]

    merge = merge_of("task_arithmetic", base, adapters, family_bf16["a"])
    replays = replays_of(merge, tmp_path)

    name = tensor if tensor == "lm_head" else f"model.{tensor}"
    tuned, row = replays[f"{name}.weight"].deltas
    assert isinstance(tuned, Tensor)
    assert isinstance(row, Factors)
    tuned, nothing = replays["model.norm.weight"].deltas
    assert isinstance(tuned, Tensor)
    assert nothing is None


QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("settings", "tensor"),
    [
        ({"use_dora": True}, QUERY),
        ({"target_modules": ["embed_tokens"]}, "model.embed_tokens.weight"),
        ({"init_lora_weights": "pissa"}, QUERY),
    ],
)
def test_what_is_no_product_is_kept_whole(
    settings: dict[str, Any],
    tensor: str,
    family: dict[str, Path],
    train: Train,
    tmp_path: Path,
) -> None:
    adapter = train(family["base"], 5, **settings)
    merge = merge_of("task_arithmetic", family["base"], [adapter], family["a"])

    replays = replays_of(merge, tmp_path)

    assert isinstance(replays[tensor].deltas, Tensor)
    assert replays["model.norm.weight"].deltas[1] is None


@pytest.mark.parametrize(
    ("method", "more", "in_low_rank"),
    [
        ("ties", {"dtype": "float32"}, True),
        ("ties", {"parameters": {"density": 0.5}}, False),
        ("ties", {"dtype": "bfloat16"}, False),
        ("ties", {"base_model": "a"}, False),
        ("dare_linear", {}, True),
    ],
)
def test_methods_dtypes_and_other_bases_ship_what_mergekit_does(
    method: str,
    more: dict[str, Any],
    in_low_rank: bool,
    family: dict[str, Path],
    train: Train,
    tmp_path: Path,
) -> None:
    if "base_model" in more:
        more = {"base_model": str(family["a"])}
    merge = {**merge_of(method, family["base"], [train(family["base"], 6)]), **more}

    deltas = replays_of(merge, tmp_path)[QUERY].deltas

    assert isinstance(deltas, tuple) is in_low_rank


def test_an_adapter_that_is_trained_again_at_its_path_is_another_one(
    family: dict[str, Path], train: Train, tmp_path: Path
) -> None:
    base, adapter = family["base"], train(family["base"], 7)
    merge = merge_of("dare_linear", base, [adapter], family["a"])
    first = replays_of(merge, tmp_path)[QUERY].deltas[1]

    shutil.copytree(train(base, 10), adapter, dirs_exist_ok=True)

    assert not torch.equal(replays_of(merge, tmp_path)[QUERY].deltas[1].a, first.a)


def replay_of(base: Tensor, deltas: Tensor) -> TaskVectorReplay:
    return TaskVectorReplay(
        models=tuple(f"m{i}" for i in range(len(deltas))),
        base=base,
        deltas=deltas,
        elects_signs=False,
        normalize=False,
        scale=1.0,
    )


def factors_of(a: Tensor, b: Tensor) -> Factors:
    nothing = torch.empty(0)
    places = torch.empty(0, dtype=torch.int64)
    return Factors(a, b, 0.5, transposed=False, places=places, values=nothing)


def test_elements_that_come_out_otherwise_are_kept_beside_the_factors() -> None:
    torch.manual_seed(0)
    base = torch.randn(40, 50).bfloat16()
    factors = factors_of(torch.randn(4, 50), torch.randn(40, 4))
    product = (factors.b @ factors.a) * factors.scaling
    delta = (base.float() + product).bfloat16() - base
    odd = delta.clone()
    odd[[3, 39], [7, 49]] += 1
    replay = replay_of(base, torch.stack([odd, delta]))

    found = replay.in_low_rank({"m0": factors, "m1": factors})

    first, second = found.deltas
    assert isinstance(first, Factors)
    assert isinstance(second, Factors)
    assert first.places.tolist() == [3 * 50 + 7, 39 * 50 + 49]
    assert second.places.tolist() == []
    ours, theirs = torch.empty(40, 50).bfloat16(), torch.empty(40, 50).bfloat16()
    found.write([0.3, -0.7], ours)
    replay.write([0.3, -0.7], theirs)
    assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16))


@pytest.mark.parametrize("recorded", [1, 2])
def test_a_recording_holds_for_any_number_of_threads(recorded: int) -> None:
    torch.manual_seed(0)
    base = torch.randn(2048, 768) * 0.02
    factors = factors_of(torch.randn(16, 768), torch.randn(2048, 16) * 0.01)
    delta = (base + (factors.b @ factors.a) * factors.scaling) - base
    replay = replay_of(base, delta[None])
    try:
        torch.set_num_threads(recorded)
        found = replay.in_low_rank({"m0": factors})
        assert isinstance(found.deltas, tuple)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(found.full_deltas(), delta.view(1, -1))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)
