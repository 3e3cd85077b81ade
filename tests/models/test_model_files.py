"""What a model is known by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from mergekit_map.errors import MergeError
from mergekit_map.models.files import find_model, fingerprint, read_headers
from mergekit_map.models.references import absolute_references


@pytest.mark.parametrize(
    "name",
    [
        "merges.txt",
        "qwen.tiktoken",
        "additional_chat_templates/tool_use.jinja",
        "code/layers.py",
    ],
)
def test_a_file_that_a_loader_may_read_is_part_of_the_fingerprint(
    name: str, family: dict[str, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(family["a"], tmp_path / "copy") / name
    without = fingerprint(str(tmp_path / "copy"))
    path.parent.mkdir(exist_ok=True)
    path.write_text("one")
    before = fingerprint(str(tmp_path / "copy"))

    path.write_text("two")

    assert len({without, before, fingerprint(str(tmp_path / "copy"))}) == 3


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "mergekit_config.yml",
        ".cache/lock",
        "optimizer.pt",
        "checkpoint-5/model.safetensors",
    ],
)
def test_what_no_loader_reads_is_no_part_of_the_fingerprint(
    name: str, family: dict[str, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(family["a"], tmp_path / "copy") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("one")

    assert fingerprint(str(tmp_path / "copy")) == fingerprint(str(family["a"]))


def test_a_link_is_read_whatever_it_is_called(
    family: dict[str, Path], tmp_path: Path
) -> None:
    blob = tmp_path / ("ab" * 32)  # as files of the Hub's cache are
    shutil.copy(family["a"] / "model.safetensors", blob)
    model = shutil.copytree(family["a"], tmp_path / "model")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to(blob)

    assert fingerprint(str(model)) == fingerprint(str(family["a"]))

    shutil.copy(family["b"] / "model.safetensors", blob)

    assert fingerprint(str(model)) != fingerprint(str(family["a"]))


def test_local_paths_become_absolute_and_hub_ids_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    merge = {
        "base_model": "mine",
        "models": [{"model": "mine+org/adapter"}, {"model": "org/model@main"}],
        "tokenizer": {"source": "union"},
    }

    result = absolute_references(merge, tmp_path)

    mine = str(tmp_path / "mine")
    assert result == {
        "base_model": mine,
        "models": [{"model": f"{mine}+org/adapter"}, {"model": "org/model@main"}],
        "tokenizer": {"source": "union"},
    }


def test_a_hub_that_does_not_answer_is_an_error(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    nobody = "http://127.0.0.1:9"
    urls = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, nobody)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", urls)
    monkeypatch.setattr(constants, "ENDPOINT", nobody)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    # Of the one nothing is here, of the other its configuration.
    cached = tmp_path / "models--me--near"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    (cached / "snapshots" / ("0" * 40)).mkdir(parents=True)
    shutil.copy(family["a"] / "config.json", cached / "snapshots" / ("0" * 40))

    with pytest.raises(MergeError, match="the Hub gives no repository of that name"):
        find_model("me/far", weights=False)
    with pytest.raises(MergeError, match=r"does not give their headers: .*refused"):
        find_model("me/near", weights=False).headers()


def test_an_index_of_no_file_names_is_refused(
    family: dict[str, Path], tmp_path: Path
) -> None:
    model = shutil.copytree(family["a"], tmp_path / "model")
    index = model / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": 1, "b": "x"}}')

    with pytest.raises(MergeError, match="must map tensors to files of its folder"):
        find_model(str(model)).headers()


def test_reads_shapes_and_rows_without_loading(family: dict[str, Path]) -> None:
    headers = find_model(str(family["a"])).headers()
    name = "model.layers.0.mlp.up_proj.weight"

    assert headers[name].shape == (64, 32)
    whole = load_file(family["a"] / "model.safetensors")[name]
    torch.testing.assert_close(headers[name].read(3, 5), whole[3:5])


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn],
)
def test_what_safetensors_writes_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "a": torch.zeros(3, 5).to(dtype),
        "empty": torch.zeros(0, 4).to(dtype),
        "one": torch.tensor(1.0).to(dtype),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "pt"})

    found = read_headers(path)

    assert {n: h.shape for n, h in found.items()} == {
        "a": (3, 5),
        "empty": (0, 4),
        "one": (),
    }
