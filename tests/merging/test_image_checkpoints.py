"""Merges of image models are loaded whole, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from mergekit.options import MergeOptions
from nested_runs import tensors_of
from test_in_memory import assert_equal_states, config, space_of

from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.space import MergeSpace

OPTIONS = MergeOptions(copy_tokenizer=False, quiet=True)


def classifiers(folder: Path, *, as_in_memory: bool) -> MergeSpace:
    """Save a ViT and two that differ a little; returns merges of them."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    image = {"image_size": 16, "patch_size": 4, "num_labels": 3}
    settings = transformers.ViTConfig(**sizes, **image, num_attention_heads=4)
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(settings)
    models = {name: folder / name for name in ("base", "a", "b")}
    for path in models.values():
        model.save_pretrained(path, save_original_format=not as_in_memory)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.005)
    return space_of(config("task_arithmetic", models))


def test_a_classifier_keeps_its_head_and_what_is_measured_is_shipped(
    tmp_path: Path,
) -> None:
    space = classifiers(tmp_path, as_in_memory=True)
    coefficients = {"a": 0.3, "b": 0.7}

    write_checkpoint(space.config(coefficients), tmp_path / "out", OPTIONS)
    shipped, tokenizer = load_checkpoint(tmp_path / "out", OPTIONS)
    with resident_merge(space, OPTIONS) as resident:
        resident.write(coefficients)
        measured = resident.model.state_dict()

    assert isinstance(shipped, transformers.ViTForImageClassification)
    assert tokenizer is None
    assert resident.tokenizer is None
    assert_equal_states(measured, shipped.state_dict())


def test_names_that_mergekit_does_not_look_for_are_refused(tmp_path: Path) -> None:
    space = classifiers(tmp_path, as_in_memory=False)

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
