from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from mergekit_map.errors import ArtifactError
from mergekit_map.hub.publish_scan import Private, refuse_leaks
from mergekit_map.hub.upload_files import PublicFile

TOKEN = "api_org_secretsecret"
MODEL, HOME = "/home/jane/models/bäse", "/home/jane"
PRIVATE = Private(TOKEN, [MODEL], [HOME, "/"], HOME)


def check(text: str, path: str = "README.md") -> None:
    refuse_leaks([PublicFile(path, text.encode())], PRIVATE)


@pytest.mark.parametrize(
    "text",
    [
        f"see {MODEL}",
        json.dumps({"path": MODEL}),
        yaml.safe_dump({"path": f"{MODEL}\n"}),
        html.escape(f"<a href='{MODEL}'>"),
        "file:///home/jane/x",
        r'{"error": "first\n/home/jane/x"}',
        f"({HOME})",
    ],
)
def test_a_local_path_is_refused_with_its_file_and_line(text: str) -> None:
    with pytest.raises(ArtifactError, match=r"README\.md:3: the local path "):
        check(f"one\ntwo\n{text}\n")


@pytest.mark.parametrize("token", [TOKEN, "hf_" + "a1B2" * 6])
def test_a_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ArtifactError, match=r"README\.md:2: an access token") as error:
        check(f"one\nmy token={token}\n")

    assert token not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["https://host/home/jane", "/home/janet/x", "a/home/jane", "hf_short", "/", ""],
)
def test_what_only_looks_alike_passes(text: str) -> None:
    check(text)


def test_any_other_path_that_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    with pytest.raises(ArtifactError, match=f"the local path {tmp_path}/data"):
        check(f"see {tmp_path}/data.")
    check(f"see {tmp_path}/nothing and /usr/bin/env")


def test_a_vocabulary_may_have_tokens_like_a_home_directory() -> None:
    check(json.dumps({HOME: 1}), "tokenizer.json")
    with pytest.raises(ArtifactError, match=r"tokenizer\.json:1: the local path"):
        check(json.dumps({MODEL: 1}), "tokenizer.json")


@pytest.mark.parametrize(
    "path",
    [
        "tokenizer_config.json",
        "chat_template.jinja",
        "additional_chat_templates/tools.jinja",
        "generation_config.json",
    ],
)
def test_a_chat_template_may_tell_of_any_folder_but_that_of_a_model(
    path: str, tmp_path: Path
) -> None:
    check(f"Write to {HOME}/out and {tmp_path}", path)
    with pytest.raises(ArtifactError, match="the local path"):
        check(f"see {MODEL}/notes", path)
    with pytest.raises(ArtifactError, match="an access token"):
        check(f"{TOKEN}", path)


def test_a_configuration_may_hold_a_path_that_tells_of_nobody(tmp_path: Path) -> None:
    check(json.dumps({"path": f"{tmp_path}"}), "config.json")
    for path in (HOME, "/home/joe/models/x", "/Users/joe/x"):
        with pytest.raises(ArtifactError, match=r"config\.json:1: the local path"):
            check(json.dumps({"path": path}), "config.json")
    with pytest.raises(ArtifactError, match="the local path"):
        check(json.dumps({"path": f"{tmp_path}"}), "mergekit-map/front.json")


def test_the_header_of_weights_is_read_and_their_numbers_are_not(
    tmp_path: Path,
) -> None:
    letters = torch.tensor(list(f"xx {HOME} ".encode()), dtype=torch.uint8)
    named = tmp_path / "model.safetensors"

    save_file({"a": letters}, named, metadata={"format": "pt"})
    refuse_leaks([PublicFile(named.name, named)], PRIVATE)

    save_file({"a": letters}, named, metadata={"from": MODEL})
    with pytest.raises(ArtifactError, match=r"model\.safetensors:1: the local path"):
        refuse_leaks([PublicFile(named.name, named)], PRIVATE)


def test_files_on_disk_are_read_whatever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "front.png"
    path.write_bytes(b"\x89PNG\0\n" + MODEL.encode())

    with pytest.raises(ArtifactError, match=r"front\.png:2: the local path"):
        refuse_leaks([PublicFile(path.name, path)], PRIVATE)
