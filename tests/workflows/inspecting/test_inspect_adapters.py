"""What ``inspect`` says of LoRA adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from inspect_seeds import (
    Edit,
    configure,
    edit_json,
    found,
    inspected,
    make_adapter,
    named,
    remove,
    tuned,
    write,
)
from safetensors.torch import load_file, save_file


def test_adapters_are_looked_into(base: Path, tmp_path: Path) -> None:
    adapter = make_adapter(base, tmp_path / "adapter", 1)

    content = inspected(configure(base, [f"{base}+{adapter}"]))

    assert found(content) == {"base": [], "base+adapter": []}
    figures = content["models"][1]
    # Rank 4 in two of seven matrices of each layer.
    assert 0 < figures["norm_ratio"] < 0.01
    assert figures["changed"] == pytest.approx(6144 / 35680, abs=0.01)
    assert figures["read"] == figures["compared"] == 35680


@pytest.mark.parametrize("of_base", [True, False])
def test_an_adapter_alone_is_merged_into_the_base_model_it_was_trained_on(
    of_base: bool, base: Path, tmp_path: Path
) -> None:
    adapter = make_adapter(base, tmp_path / "adapter", 1)
    if not of_base:
        edit_json("adapter_config.json", base_model_name_or_path="org/other")(adapter)

    content = inspected(configure(base, [str(adapter)]))

    if of_base:
        assert found(content) == {"base": [], "base+adapter": []}
        assert content["plan"]["coefficients"] == ["adapter"]
    else:
        assert found(content)["adapter"] == named("adapter-alone")
        (finding,) = content["models"][1]["findings"]
        assert f"write {base}+{adapter}; or else org/other+{adapter}" in str(finding)


ADAPTERS: dict[str, tuple[Edit, str, str]] = {
    "another base": (
        edit_json("adapter_config.json", base_model_name_or_path="org/other-7b"),
        "adapter-base",
        "org/other-7b",
    ),
    "other modules": (
        lambda folder: change_adapter(folder, lambda n, t: (n.replace("q_", "x_"), t)),
        "adapter-modules",
        "changes 2 tensors that",
    ),
    "other shapes": (
        lambda folder: change_adapter(
            folder, lambda n, t: (n, t[:, :16] if "q_proj.lora_A" in n else t)
        ),
        "adapter-modules",
        "changes 2 tensors that",
    ),
    "pattern that is none": (
        edit_json("adapter_config.json", alpha_pattern={"[": 3}),
        "adapter",
        "peft cannot use",
    ),
    "prompts": (
        write("adapter_config.json", '{"peft_type": "PROMPT_TUNING"}'),
        "adapter-kind",
        "changes no weights",
    ),
    "rank": (edit_json("adapter_config.json", r="x"), "adapter", "peft"),
    "gone": (remove("adapter_model.safetensors"), "adapter", "no weights"),
    "untrained": (
        lambda folder: change_adapter(
            folder, lambda n, t: (n, t * 0 if "lora_B" in n else t)
        ),
        "same-weights",
        "does not differ from base",
    ),
}


def change_adapter(
    folder: Path, change: Callable[[str, torch.Tensor], tuple[str, torch.Tensor]]
) -> None:
    path = folder / "adapter_model.safetensors"
    changed = dict(change(name, tensor) for name, tensor in load_file(path).items())
    save_file({name: tensor.contiguous() for name, tensor in changed.items()}, path)


def test_one_run_names_what_is_wrong_with_adapters(base: Path, tmp_path: Path) -> None:
    models, expected = [], {"base": []}
    for seed, (name, (edit, code, _)) in enumerate(ADAPTERS.items()):
        folder = make_adapter(base, tmp_path / name, seed)
        edit(folder)
        models.append(f"{base}+{folder}")
        expected[f"base+{name}"] = named(code)

    content = inspected(configure(base, models))

    assert found(content) == expected
    by_name = {model["name"]: model["findings"] for model in content["models"]}
    for name, (_, _, words) in ADAPTERS.items():
        assert words in by_name[f"base+{name}"][0]["cause"]


def test_a_whole_model_behind_a_plus_is_told_what_to_do(
    base: Path, tmp_path: Path
) -> None:
    whole = tuned(base, tmp_path / "a", 1)

    content = inspected(configure(base, [f"{base}+{whole}"]))

    (finding,) = content["models"][1]["findings"]
    assert finding["code"] == "adapter-whole"
    assert "list the model as one of its own" in finding["advice"]


def test_an_adapter_in_low_rank_wants_no_copy(base: Path, tmp_path: Path) -> None:
    adapter = f"{base}+{make_adapter(base, tmp_path / 'lora', 1)}"
    full = str(tuned(base, tmp_path / "full", 2))

    def held(second: str) -> int:
        config = configure(base, [full, second])
        config["map"]["task_vectors"] = "memory"
        (room,) = inspected(config)["plan"]["memory"]
        return int(room["n_bytes"])

    whole = held(str(tuned(base, tmp_path / "other", 3)))
    low = held(adapter)

    # With a copy of the model under evaluation.
    assert 4 * low == 3 * whole
