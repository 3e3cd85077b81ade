"""The files of a model: where they are, what they hold, and their digests.

Headers and configuration files are read here; other modules read rows of weights.

Digests of large files are remembered between runs. A file counts as unchanged while the
file system reports the same size, inode, and times of change, of which a program can
set one but not the other. Hashing a file again takes seconds for every model.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HFValidationError,
    HTTPError,  # of httpx or httpx2, whichever it uses
    NotASafetensorsRepoError,
    SafetensorsParsingError,
)
from pydantic import ValidationError

from mergekit_map.config.problems import in_words
from mergekit_map.errors import ArtifactError, MergeError, alike
from mergekit_map.models.config_checks import Settings
from mergekit_map.models.references import ModelPart, Reference
from mergekit_map.models.safetensors_headers import TensorHeader, read_headers
from mergekit_map.utils.files import (
    cache_home,
    read_json_or_nothing,
    read_whole,
    sha256,
    sha256_of_file,
    write_atomically,
    written_state,
)

LARGEST_JSON = 1 << 28  # bytes of a file of JSON; the largest tokenizers have 1 << 25


def read_json_file(path: Path) -> Settings:
    """Read a file that holds one JSON object.

    Raises:
        MergeError: it does not.
    """
    try:
        content = json.loads(read_whole(path, LARGEST_JSON).decode("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise MergeError(f"{path} is not JSON: {error}; download it again") from None
    if not isinstance(content, dict):
        raise MergeError(f"{path} holds no JSON object; download it again")
    return content


def damaged(path: Path, error: ValidationError) -> MergeError:
    """Return the error for a JSON file, with its first mistake."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "[key]")
    return MergeError(
        f"{path} is damaged at {place!r}: {in_words(first)}; download it again"
    )


_LARGE = 1 << 24  # bytes; smaller files are read in no time

# A file may be written again within a tick of its clock: it is remembered later.
_SETTLED = 2_000_000_000  # nanoseconds


def digest_of_file(path: Path) -> str:
    """Return the hash of a file as ``sha256_of_file`` does, or the remembered one."""
    before = list(written_state(path))
    if path.stat().st_size < _LARGE:
        return sha256_of_file(path)
    place = str(path.resolve())
    known = read_json_or_nothing(_table()).get(place)
    if isinstance(known, dict) and known.get("state") == before:
        return str(known["sha256"])
    found = sha256_of_file(path)
    settled = time.time_ns() - path.stat().st_ctime_ns > _SETTLED
    if settled and list(written_state(path)) == before:
        _remember(place, {"state": before, "sha256": found})
    return found


def _remember(place: str, entry: dict[str, Any]) -> None:
    """Add an entry to the table; concurrent writers may lose one, which costs time."""
    table = {
        p: e for p, e in read_json_or_nothing(_table()).items() if Path(p).exists()
    }
    with suppress(ArtifactError):  # a cache folder that cannot be written
        write_atomically(_table(), json.dumps({**table, place: entry}, indent=1))


def _table() -> Path:
    return cache_home() / "digests.json"


NO_FOLDER = "there is no folder"  # how it is said that a model was not found
MISTYPED = "no folder is called"  # where another one is called almost so

# What a loader may read of a repository of the Hub beside weights.
_DESCRIPTIONS = [
    *("*.json", "*.model", "*.txt", "*.vocab", "*.tokenizer", "*.tiktoken"),
    *("*.jinja", "*.py"),
]
# What no loader reads: words, pictures, weights for others, states of a training.
_NOT_READ = {
    *(".md", ".pdf", ".png", ".jpg", ".onnx", ".gguf", ".h5", ".msgpack"),
    *(".pt", ".pth", ".ckpt", ".log"),
}
_NEVER_READ = {"__pycache__", "mergekit_config.yml"}
_WEIGHTS = {".safetensors", ".bin"}
_DEEPEST = 3  # folders in each other; a link may lead in a circle
_INDEX = "model.safetensors.index.json"
_WEIGHT_FILE = re.compile(r"[\w+ .=,-]{1,200}\.safetensors")


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """A model or an adapter: its folder, and its weights if they are there."""

    part: ModelPart
    folder: Path
    config: Settings  # config.json, or adapter_config.json
    is_adapter: bool

    @cached_property
    def on_the_hub(self) -> bool:
        """Whether only its headers can be read, as its weights are not here."""
        if self.part.is_folder or self.is_adapter:
            return False
        try:
            return not self.weight_files()
        except MergeError:
            return True

    def headers(self) -> Mapping[str, TensorHeader]:
        """Return the headers of all tensors, from the files that mergekit reads.

        Raises:
            MergeError: there are no weights, or they are damaged, incomplete, pickled.
        """
        if self.on_the_hub:
            return _fetch_headers(self.part)
        files = {path.name: read_headers(path) for path in self.weight_files()}
        index = {} if self.is_adapter else _read_index(self.folder)
        if not index:
            return {name: h for held in files.values() for name, h in held.items()}
        lost = sorted(name for name, file in index.items() if name not in files[file])
        if lost:
            raise MergeError(
                f"{self.folder / _INDEX} names {len(lost)} tensors that its files do "
                f"not hold, {lost[0]!r:.200} among them; download or save the model "
                "again"
            )
        return {name: files[file][name] for name, file in index.items()}

    def weight_files(self) -> list[Path]:
        """List the files of the weights.

        Raises:
            MergeError: there are none, some are missing, or they are pickled.
        """
        index = {} if self.is_adapter else _read_index(self.folder)
        names = sorted(set(index.values()))
        if not names:
            names = [f"{'adapter_' * self.is_adapter}model.safetensors"]
        paths = [self.folder / name for name in names]
        missing = [path.name for path in paths if not path.is_file()]
        if not missing:
            return paths
        if index:
            raise MergeError(
                f"{self.folder / _INDEX} names files that are not there "
                f"({len(missing)} of {len(names)}, {missing[0]} among them); download "
                "the model again"
            )
        if any(self.folder.glob("*.bin")):
            raise MergeError(
                f"{self.folder} has pickled weights (*.bin), which can run code when "
                "loaded; convert it with save_pretrained first"
            )
        raise MergeError(
            f"{self.folder} holds no weights ({names[0]}); download or save the model "
            "again"
        )


def _read_index(folder: Path) -> Mapping[str, str]:
    """Read the file of each tensor from the index of a model in several files."""
    path = folder / _INDEX
    if not path.is_file():
        return {}
    weight_map = read_json_file(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise MergeError(f"{path} has no weight_map; download the model again")
    for name in weight_map.values():
        if not isinstance(name, str) or not _WEIGHT_FILE.fullmatch(name):
            raise MergeError(
                f"the weight_map of {path} must map tensors to files of its folder "
                f"(*.safetensors), got {name!r:.200}; download the model again"
            )
    return weight_map


def find_model(reference: str, *, weights: bool = True) -> ModelFiles:
    """Find a model or adapter, downloading what mergekit would download.

    Without ``weights``, those of a repository stay on the Hub unless they are here.

    Raises:
        MergeError: there is no such folder or Hub repository, or it holds no model.
    """
    part = ModelPart.parse(reference)
    if part.is_folder:
        return _open_folder(part, Path(part.path))
    patterns = [*_DESCRIPTIONS, *(["*.safetensors"] if weights else [])]
    return _open_folder(part, _download(part, patterns))


def _open_folder(part: ModelPart, folder: Path) -> ModelFiles:
    for path in folder.iterdir():
        is_file = path.is_file() or (path.is_dir() and path.suffix != ".json")
        if path.exists() and not is_file:
            raise MergeError(f"{path} is no ordinary file; copy the model again")
    for name, is_adapter in (("config.json", False), ("adapter_config.json", True)):
        if (folder / name).is_file():
            return ModelFiles(part, folder, read_json_file(folder / name), is_adapter)
    raise MergeError(
        f"{part} holds no config.json, so it is not a Hugging Face model; give "
        "the folder that save_pretrained wrote"
    )


def _download(part: ModelPart, patterns: list[str]) -> Path:
    path = part.path
    try:
        folder = huggingface_hub.snapshot_download(
            path, revision=part.revision or None, allow_patterns=patterns
        )
    except (HFValidationError, HTTPError, OSError) as error:
        if like := _folder_like(Path(path)):
            raise MergeError(f"{MISTYPED} {path!r}; {like}") from None
        why = (
            "it is not the id of a Hub repository; check the path (relative paths "
            "start at the working directory)"
        )
        if not isinstance(error, HFValidationError):
            why = (
                f"the Hub gives no repository of that name: {_reason(error)}; check "
                "the name, your network and HF_HUB_OFFLINE"
            )
        raise MergeError(f"{NO_FOLDER} {path!r}, and {why}") from None
    return Path(folder)


def _folder_like(path: Path) -> str:
    """Return a hint with the folders whose names are like that of a missing one."""
    with suppress(OSError):
        known = [f.name for f in path.parent.iterdir() if [*f.glob("*config.json")]]
        near = difflib.get_close_matches(path.name, known)
        return alike(str(path), [str(path.parent / name) for name in near])
    return ""


def _fetch_headers(part: ModelPart) -> dict[str, TensorHeader]:
    path = part.path
    try:
        api = huggingface_hub.HfApi()
        metadata = api.get_safetensors_metadata(path, revision=part.revision or None)
        return {
            name: TensorHeader(t.dtype, tuple(t.shape), *t.data_offsets, None)
            for file in metadata.files_metadata.values()
            for name, t in file.tensors.items()
        }
    except NotASafetensorsRepoError:
        raise MergeError(
            f"{path} holds no weights as safetensors; convert it with save_pretrained"
        ) from None
    except (HTTPError, SafetensorsParsingError, OSError, TypeError) as error:
        raise MergeError(
            f"the weights of {path} are not here, and the Hub does not give their "
            f"headers: {_reason(error)}; check your network and "
            "HF_HUB_OFFLINE"
        ) from None


def _reason(error: Exception) -> str:
    lines = str(error).splitlines()  # none, for some that timed out
    return lines[0] if lines else type(error).__name__


def fingerprint(reference: str) -> str:
    """Return a digest of the content of a model: all that a loader may read of it.

    The same model at another path has the same fingerprint.
    """
    folders = [find_model(str(p)).folder for p in Reference.parse(reference).parts]
    return sha256("".join(map(_fingerprint_folder, folders)))[:16]


def refuse_replaced(fingerprints: Mapping[str, str]) -> None:
    """Compare models with their fingerprints; only files that changed are read again.

    Raises:
        MergeError: a model is another one.
    """
    if replaced := [m for m, found in fingerprints.items() if fingerprint(m) != found]:
        raise MergeError(
            f"{' and '.join(replaced)} changed while merges of it were measured, so "
            "that others would stand beside them under the same name; put back what "
            "changed, or search again, which measures the new model apart"
        )


def former_fingerprint(reference: str) -> str:
    """Return a digest of the files that earlier versions fingerprinted."""
    kinds = {*_WEIGHTS, ".json", ".model"}
    found = []
    for part in Reference.parse(reference).parts:
        folder = find_model(str(part)).folder
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in kinds)
        lines = [f"{path.name} {_fingerprint_file(path)}\n" for path in files]
        found.append(sha256("".join(lines))[:16])
    return sha256("".join(found))[:16]


def weights_fingerprint(files: ModelFiles) -> list[str]:
    """Return a digest of the weights alone, whatever the names of the files.

    Raises:
        MergeError: there are none.
    """
    return sorted(_fingerprint_file(path) for path in files.weight_files())


def fingerprinted(folder: Path) -> list[Path]:
    """List the files in a model's fingerprint: those that a loader may read.

    Weights in subfolders are left out; they belong to another model.
    """
    found: list[Path] = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        place = Path(parent)
        depth = len(place.relative_to(folder).parts)
        passed = _NOT_READ | (_WEIGHTS if depth else set())
        folders[:] = [n for n in folders if depth < _DEEPEST and not _is_ignored(n)]
        read = (place / n for n in files if not _is_ignored(n))
        found += [p for p in read if p.suffix not in passed and p.is_file()]
    return sorted(found)


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in _NEVER_READ


def _fingerprint_folder(folder: Path) -> str:
    files = [(p.relative_to(folder).as_posix(), p) for p in fingerprinted(folder)]
    lines = [f"{name} {_fingerprint_file(path)}\n" for name, path in sorted(files)]
    return sha256("".join(lines))[:16]


def _fingerprint_file(path: Path) -> str:
    return _hash(path, written_state(path))


@lru_cache(maxsize=4096)
def _hash(path: Path, _state: tuple[int, ...]) -> str:
    """Hash a file once for each state of it."""
    return digest_of_file(path)
