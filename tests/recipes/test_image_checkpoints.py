"""Merges of image models are loaded whole, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from mergekit.options import MergeOptions
from nested_runs import tensors_of
from recipe_images import SIZE, state_of

from mergekit_map.config.schema import SearchSpec
from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.space import build_space

OPTIONS = MergeOptions(copy_tokenizer=False, quiet=True)


def make_classifiers(folder: Path, *, as_in_memory: bool) -> dict[str, Any]:
    """Save a ViT and two that differ a little; gives a merge of them."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    image = {"image_size": SIZE, "patch_size": 4, "num_labels": 3}
    config = transformers.ViTConfig(**sizes, **image, num_attention_heads=4)
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config)
    base = state_of(model)
    for name in ("base", "a", "b"):
        changed = {
            key: tensor + (name != "base") * 0.005 * torch.randn_like(tensor)
            for key, tensor in base.items()
        }
        model.load_state_dict(changed)
        model.save_pretrained(folder / name, save_original_format=not as_in_memory)
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in ("a", "b")],
        "dtype": "float32",
    }


def test_a_classifier_keeps_its_head_and_what_is_measured_is_shipped(
    tmp_path: Path,
) -> None:
    merge = make_classifiers(tmp_path, as_in_memory=True)
    space, _ = build_space(merge, SearchSpec())
    assert space is not None
    coefficients = {"a": 0.3, "b": 0.7}

    write_checkpoint(space.config(coefficients), tmp_path / "out", OPTIONS)
    shipped, tokenizer = load_checkpoint(tmp_path / "out", OPTIONS)
    with resident_merge(space, OPTIONS) as resident:
        resident.write(coefficients)
        measured = state_of(resident.model)

    assert isinstance(shipped, transformers.ViTForImageClassification)
    assert tokenizer is None
    assert resident.tokenizer is None
    assert measured.keys() == shipped.state_dict().keys()
    for name, tensor in shipped.state_dict().items():
        assert torch.equal(measured[name], tensor), name


def test_names_that_mergekit_does_not_look_for_are_refused(tmp_path: Path) -> None:
    merge = make_classifiers(tmp_path, as_in_memory=False)
    space, _ = build_space(merge, SearchSpec())
    assert space is not None

    write_checkpoint(space.config({"a": 0.3, "b": 0.7}), tmp_path / "out", OPTIONS)

    # What mergekit wrote without a word of warning.
    assert len(tensors_of(tmp_path / "out")) < len(tensors_of(tmp_path / "a"))
    with pytest.raises(MergeError, match=r"tensors, vit\.\S+ among them.*original_fo"):
        load_checkpoint(tmp_path / "out", OPTIONS)
    with (
        pytest.raises(MergeError, match="save_original_format=False"),
        resident_merge(space, OPTIONS),
    ):
        pytest.fail("a merge of half of the tensors was opened")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MergeError, match=r"merged none of the tensors: .*original_fo"):
        load_checkpoint(tmp_path / "empty", OPTIONS)
