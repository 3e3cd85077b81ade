"""Checkpoints are loaded whole or refused; what stops mergekit from writing is said."""

from __future__ import annotations

import logging
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from mergekit.architecture import ModelArchitecture, get_architecture_info
from mergekit.config import MergeConfiguration
from mergekit.options import MergeOptions
from model_files import edit_config, edit_tensors
from runs import read, tensors_of
from test_in_memory import OPTIONS, assert_equal_states, config, space_of
from tiny_tokenizer import SIZES

from mergekit_map.errors import MergeError
from mergekit_map.merging import checkpoint
from mergekit_map.merging.checkpoint import load_checkpoint, write_checkpoint
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.space import MergeSpace

MB = 1 << 20
FILES = ("generation_config.json", "preprocessor_config.json")
OF_IMAGES = MergeOptions(copy_tokenizer=False, quiet=True)


def test_a_tokenizer_that_does_not_fit_on_the_disk_is_an_error_and_no_traceback(
    family: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = shutil.copytree(family["base"], tmp_path / "base")
    tokenizer = base / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " " * 2 * MB)
    space = space_of(config("task_arithmetic", {**family, "base": base}))
    out, merge = tmp_path / "out", space.config({"a": 0.3, "b": 0.7})
    limit = resource.RLIMIT_FSIZE
    before, most = resource.getrlimit(limit)
    resource.setrlimit(limit, (MB, most))  # as a full disk does

    try:
        with pytest.raises(MergeError, match=r"merge to \S*out: .*File too large"):
            write_checkpoint(merge, out, OPTIONS)
    finally:
        resource.setrlimit(limit, (before, most))

    assert (out / "model.safetensors").stat().st_size < MB
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


def classifiers(folder: Path, *, as_in_memory: bool) -> MergeSpace:
    """Save a ViT and two that differ a little; returns merges of them."""
    image = {"image_size": 16, "patch_size": 4, "num_labels": 3}
    settings = transformers.ViTConfig(**SIZES, **image)
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(settings)
    models = {name: folder / name for name in ("base", "a", "b")}
    for path in models.values():
        model.save_pretrained(path, save_original_format=not as_in_memory)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.005)
    return space_of(config("task_arithmetic", models))


def test_a_classifier_keeps_its_head_and_what_is_measured_is_shipped() -> None:
    space = classifiers(Path.cwd(), as_in_memory=True)
    coefficients = {"a": 0.3, "b": 0.7}

    write_checkpoint(space.config(coefficients), Path("out"), OF_IMAGES)
    shipped, tokenizer = load_checkpoint(Path("out"), OF_IMAGES)
    with resident_merge(space, OF_IMAGES) as resident:
        resident.write(coefficients)
        measured = resident.model.state_dict()

    assert isinstance(shipped, transformers.ViTForImageClassification)
    assert tokenizer is None
    assert resident.tokenizer is None
    assert_equal_states(measured, shipped.state_dict())


def test_names_that_mergekit_does_not_look_for_are_refused(tmp_path: Path) -> None:
    space = classifiers(tmp_path, as_in_memory=False)

    write_checkpoint(space.config({"a": 0.3, "b": 0.7}), tmp_path / "out", OF_IMAGES)

    # What mergekit wrote without a word of warning.
    assert len(tensors_of(tmp_path / "out")) < len(tensors_of(tmp_path / "a"))
    with pytest.raises(MergeError, match=r"tensors, vit\.\S+ among them.*original_fo"):
        load_checkpoint(tmp_path / "out", OF_IMAGES)
    with (
        pytest.raises(MergeError, match="save_original_format=False"),
        resident_merge(space, OF_IMAGES),
    ):
        pytest.fail("a merge of half of the tensors was opened")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MergeError, match=r"merged none of the tensors: .*original_fo"):
        load_checkpoint(tmp_path / "empty", OF_IMAGES)


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_without_a_base_the_first_model_gives_the_configuration(
    names: str, family: dict[str, Path], tmp_path: Path
) -> None:
    for name in names:
        edit_config(named=name)(shutil.copytree(family[name], tmp_path / name))
        for file in FILES:
            (tmp_path / name / file).write_text(f'{{"named": "{name}"}}')
    models = [{"model": str(tmp_path / n), "parameters": {"weight": 1}} for n in names]
    tokenizer = {"source": "union"}
    merge = {"merge_method": "linear", "models": models, "tokenizer": tokenizer}

    out = tmp_path / "out"
    write_checkpoint(merge, out, OPTIONS)

    for file in ("config.json", *FILES):
        assert read(out / file)["named"] == names[0]


def test_code_that_a_model_is_loaded_with_is_shipped(
    family: dict[str, Path], tmp_path: Path
) -> None:
    code = "import transformers\nclass Own(transformers.LlamaForCausalLM): pass"
    models = {n: shutil.copytree(family[n], tmp_path / n) for n in ("base", "a", "b")}
    for model in models.values():
        (model / "own.py").write_text(code)
        edit_config(auto_map={"AutoModelForCausalLM": "own.Own"})(model)
    options = OPTIONS.model_copy(update={"trust_remote_code": True})
    space = space_of(config("task_arithmetic", models))

    write_checkpoint(space.config({"a": 0.3, "b": 0.7}), tmp_path / "out", options)

    assert load_checkpoint(tmp_path / "out", options)[0].get_input_embeddings()
    # Without trust, other code was measured.
    write_checkpoint(space.config({"a": 0.3, "b": 0.7}), tmp_path / "native", OPTIONS)
    assert "auto_map" not in read(tmp_path / "native/config.json")


def test_a_tensor_that_a_model_lacks_is_named(family: dict[str, Path]) -> None:
    lacking = shutil.copytree(family["a"], Path("lacking").resolve())
    edit_tensors(lambda tensors: tensors.pop("model.norm.weight"))(lacking)
    space = space_of(config("task_arithmetic", {**family, "a": lacking}))

    named = r"model\.norm\.weight required but not present in model \S*lacking"
    with pytest.raises(MergeError, match=named), resident_merge(space, OPTIONS):
        pytest.fail("a merge of less than whole models was opened")


def test_tensors_that_mergekit_looked_for_are_merged_in_one_order(
    make_half: Callable[..., dict[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = {"num_experts": 4, "num_experts_per_tok": 2}
    space = space_of(config("dare_linear", make_half("olmoe", kind="Olmoe", **some)))
    seen: list[ModelArchitecture] = []

    def run_merge(merge: MergeConfiguration, _: str, options: MergeOptions) -> None:
        seen.append(get_architecture_info(merge, options))
        Path("out").mkdir()
        Path("out/config.json").write_text("{}")

    monkeypatch.setattr(checkpoint, "run_merge", run_merge)
    write_checkpoint(space.config(space.named([0.3, 0.7])), Path("out"), OPTIONS)

    module = seen[0].modules["default"].architecture
    names = [weight.name for weight in module.definition.layer_templates.weights]
    assert len(names) > 10
    assert names == sorted(names)
