"""What a model is known by; its large files are read once, and again when written."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from mergekit_map.errors import MergeError
from mergekit_map.models import files
from mergekit_map.models.files import digest_of_file, find_model, fingerprint


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("merges.txt", True),
        ("additional_chat_templates/tool_use.jinja", True),
        ("code/layers.py", True),
        ("README.md", False),
        ("mergekit_config.yml", False),
        ("LICENSE", False),
        ("pytorch_model-00001-of-00002.bin", False),
        ("trainer_state.json", False),
        ("results/results_2026.json", False),
        ("checkpoint-5/model.safetensors", False),
        ("._config.json", False),
        ("bpe.codes", True),
        (".cache/config.json", False),
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


@pytest.mark.parametrize("blob", ["m/blobs/05ab", "blobs/05/05ab", "secret"])
def test_links_of_the_cache_of_the_hub_are_followed(blob: str, tmp_path: Path) -> None:
    target, model = tmp_path / blob, tmp_path / "model"
    for folder in (target.parent, model):
        folder.mkdir(parents=True, exist_ok=True)
    target.write_text("{}")
    (model / "config.json").symlink_to(target)

    is_refused = pytest.raises(MergeError, match="is a link to")
    with is_refused if blob == "secret" else nullcontext():
        find_model(str(model))


def test_a_link_of_any_name_is_read(family: dict[str, Path], tmp_path: Path) -> None:
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

    with pytest.raises(MergeError, match="the Hub cannot be reached"):
        find_model("me/far", weights=False)
    with monkeypatch.context() as broken:  # a proxy's page in the place of JSON
        broken.setattr("huggingface_hub.snapshot_download", lambda *_, **__: int("<"))
        with pytest.raises(MergeError, match="does not give it: invalid literal"):
            find_model("me/far", weights=False)
    with pytest.raises(MergeError, match=r"does not give their headers: .*refused"):
        find_model("me/near", weights=False).headers()
    monkeypatch.setattr(HfApi, "repo_info", None)  # what is here is asked no more
    files.refuse_replaced({"me/near": fingerprint("me/near", here=True)})


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read; every file counts as large."""
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(files, "_LARGE", 1)
    found: list[Path] = []

    def hashed(path: Path) -> str:
        found.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(files, "sha256_of_file", hashed)
    return found


def test_a_file_is_read_once_unless_its_digest_was_cut_short(read: list[Path]) -> None:
    one, other = (Path(name).resolve() for name in ("one", "other"))
    one.write_bytes(b"1")
    other.write_bytes(b"2")

    digests = [digest_of_file(path) for path in (one, other, one, other)]

    assert read == [one, other]
    assert digests[:2] == digests[2:]
    assert digests[0] == hashlib.sha256(b"1").hexdigest()
    for remembered in Path("home", "digests").iterdir():
        remembered.write_text("")
    files._digest_of_large.cache_clear()
    assert digest_of_file(one) == digests[0]
    assert read == [one, other, one]


def test_what_was_written_is_read_again_though_its_time_is_set_back(
    tmp_path: Path, read: list[Path]
) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"1")
    before = path.stat()
    digest_of_file(path)
    time.sleep(0.02)  # some file systems count time in hundredths

    with path.open("r+b") as file:
        file.write(b"2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns

    assert digest_of_file(path) == hashlib.sha256(b"2").hexdigest()
    assert read == [path, path]


def test_a_cache_that_cannot_be_written_costs_time_alone(
    tmp_path: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a file"
    path.write_bytes(b"1")
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(path))  # which is no folder

    assert digest_of_file(path) == digest_of_file(path)

    assert read == [path]  # which the process remembers
