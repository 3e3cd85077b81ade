"""The models of a merge on disk: where they are, what they hold, their identity.

Reads header and configuration files only; no weights are loaded.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError, safe_open

from mergekit_map.errors import MergeError

_BLOCK = 1 << 22  # bytes read at a time

_REFERENCES = ("model", "base_model", "tokenizer_source", "source")


@dataclass(frozen=True)
class ModelFiles:
    """A model or an adapter in a local folder."""

    folder: Path
    config: Mapping[str, Any]  # config.json, or adapter_config.json
    is_adapter: bool

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Give the shape of every tensor; empty for pickled checkpoints.

        Raises:
            MergeError: a weight file is damaged.
        """
        shapes = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - not a mapping
                        shapes[name] = tuple(file.get_slice(name).get_shape())
            except (SafetensorError, OSError) as error:
                raise MergeError(
                    f"{path} cannot be read as safetensors: {error}; download or "
                    "save the model again"
                ) from None
        return shapes

    def rows(self, name: str, count: int) -> torch.Tensor:
        """Read the first rows of a tensor, as float32; (count, ...).

        Raises:
            KeyError: there is no tensor of that name.
        """
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                if name in file.keys():  # noqa: SIM118 - not a mapping
                    rows: torch.Tensor = file.get_slice(name)[:count]
                    return rows.float()
        raise KeyError(name)

    @property
    def rope_theta(self) -> float | None:
        """Base of the rotary position encoding; None where the model states none."""
        nested = self.config.get("rope_parameters") or {}
        theta = self.config.get("rope_theta", nested.get("rope_theta"))
        return None if theta is None else float(theta)

    def vocabulary(self) -> str | None:
        """Digest which token has which id; None without a tokenizer.json.

        Raises:
            MergeError: the file is damaged.
        """
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise MergeError(
                f"{path} is not JSON: {error}; download it again"
            ) from None
        model = content.get("model", {})
        tokens = [model.get("vocab"), content.get("added_tokens")]
        return _digest(json.dumps(tokens, sort_keys=True).encode())


def find_model(reference: str) -> ModelFiles:
    """Find a model or adapter, downloading what mergekit would download.

    Raises:
        MergeError: there is no such folder or Hub repository, or it holds no model.
    """
    path, _, revision = reference.partition("@")
    folder = Path(path) if Path(path).is_dir() else _download(path, revision or None)
    for name, is_adapter in (("config.json", False), ("adapter_config.json", True)):
        if (folder / name).is_file():
            try:
                config = json.loads((folder / name).read_text(encoding="utf-8"))
            except ValueError as error:
                raise MergeError(f"{folder / name} is not JSON: {error}") from None
            return ModelFiles(folder, config, is_adapter)
    raise MergeError(
        f"{reference} holds no config.json, so it is not a Hugging Face model; give "
        "the folder that save_pretrained wrote"
    )


def _download(path: str, revision: str | None) -> Path:
    try:
        folder = huggingface_hub.snapshot_download(
            path,
            revision=revision,
            allow_patterns=["*.json", "*.safetensors", "tokenizer.model"],
        )
    except HFValidationError:
        raise MergeError(
            f"there is no folder {path!r}, and it is not the id of a Hub repository; "
            "check the path (relative paths start at the working directory)"
        ) from None
    except (HfHubHTTPError, OSError) as error:
        raise MergeError(
            f"there is no folder {path!r}, and the Hub gives no repository of that "
            f"name: {str(error).splitlines()[0]}; check the name, your network and "
            "HF_HUB_OFFLINE"
        ) from None
    return Path(folder)


def absolute_references(merge: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Make local paths, which start at ``directory``, absolute."""
    result: dict[str, Any] = copy.deepcopy(dict(merge))
    for holder, key in _references(result):
        parts = str(holder[key]).split("+")
        holder[key] = "+".join(_absolute(part, directory) for part in parts)
    return result


def _absolute(reference: str, directory: Path) -> str:
    path, at, revision = reference.partition("@")
    folder = (directory / path).resolve()
    return f"{folder}{at}{revision}" if folder.is_dir() else reference


def _references(part: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key in _REFERENCES and isinstance(value, str):
                yield part, key
            elif key != "parameters":
                yield from _references(value)
    elif isinstance(part, list):
        for item in part:
            yield from _references(item)


def fingerprint(reference: str) -> str:
    """Digest the content of a model: weights, configuration, tokenizer.

    The same model at another path has the same fingerprint.
    """
    parts = [find_model(part).folder for part in reference.split("+")]
    return _digest("".join(_fingerprint_folder(f) for f in parts).encode())


def _fingerprint_folder(folder: Path) -> str:
    kinds = {".safetensors", ".bin", ".json", ".model"}
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in kinds)
    lines = [f"{path.name} {_fingerprint_file(path)}\n" for path in files]
    return _digest("".join(lines).encode())


def _fingerprint_file(path: Path) -> str:
    # Large files of the Hub's cache are links to a file named by its SHA-256.
    blob = path.resolve().name
    if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", blob):
        return blob
    status = path.stat()
    return _hash(path, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=4096)
def _hash(path: Path, *_version: int) -> str:
    """Hash a file once for each version of it; reading is what takes the time."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
