"""What a model is known by."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from mergekit_map.errors import MergeError
from mergekit_map.models.files import find_model, fingerprint


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("merges.txt", True),
        ("qwen.tiktoken", True),
        ("additional_chat_templates/tool_use.jinja", True),
        ("code/layers.py", True),
        ("README.md", False),
        ("mergekit_config.yml", False),
        (".cache/lock", False),
        ("optimizer.pt", False),
        ("checkpoint-5/model.safetensors", False),
    ],
)
def test_a_file_that_a_loader_may_read_is_part_of_the_fingerprint(
    name: str, is_read: bool, family: dict[str, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(family["a"], tmp_path / "copy") / name
    found = {fingerprint(str(family["a"]))}
    path.parent.mkdir(exist_ok=True)

    for text in ("one", "two"):
        path.write_text(text)
        found.add(fingerprint(str(tmp_path / "copy")))

    assert len(found) == (3 if is_read else 1)


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
