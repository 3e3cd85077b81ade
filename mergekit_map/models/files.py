"""The files of a model: where they are, what they hold, and their digests.

safetensors reads a few rows of a model of any size in milliseconds, and notices a
truncated file by its header.

Digests of large files are remembered between runs. A file counts as unchanged while the
file system reports the same size, inode, and times of change, of which a program can
set one but not the other. Hashing a file again takes seconds for every model.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

import huggingface_hub
import torch
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

from mergekit_map.errors import ArtifactError, MergeError, first_line
from mergekit_map.models.references import ModelPart, Reference
from mergekit_map.utils.files import (
    LARGEST_JSON,
    cache_home,
    read_json_or_nothing,
    read_whole,
    sha256,
    sha256_of_file,
    write_atomically,
    written_state,
)
from mergekit_map.utils.text import alike

Settings: TypeAlias = Mapping[str, Any]  # what a JSON file of a model holds


def read_json(path: Path) -> Settings:
    """Read a file; raise MergeError unless it holds one JSON object."""
    try:
        content = json.loads(read_whole(path, LARGEST_JSON).decode("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise MergeError(f"{path} is not JSON: {error}; download it again") from None
    if not isinstance(content, dict):
        raise MergeError(f"{path} holds no JSON object; download it again")
    return content


_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class TensorHeader:
    """Shape, type and place of one tensor."""

    name: str
    dtype: str  # as the format writes it: BF16
    shape: tuple[int, ...]
    file: Path | None  # None where only the header is here

    @property
    def n_elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Return the size in bytes of a floating-point tensor; 0 for others."""
        return self.n_elements * self.torch_dtype.itemsize if self.is_float else 0

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point numbers, not codes, masks or counters."""
        return self.dtype in _FLOATS

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return torch's name of the type of a floating-point tensor."""
        return _FLOATS[self.dtype]

    @property
    def width(self) -> int:
        """Return the elements of a row: of all axes but the first."""
        return math.prod(self.shape[1:])

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Read rows of a floating-point tensor, as float32; (stop - start, width)."""
        with safe_open(str(self.file), "pt") as file:
            rows: torch.Tensor = file.get_slice(self.name)[start:stop]
        return rows.float().view(stop - start, self.width)

    def read_all(self) -> torch.Tensor:
        """Read all rows, as ``read`` does."""
        return self.read(0, self.shape[0])


def read_headers(path: Path) -> dict[str, TensorHeader]:
    """Read the headers of all tensors in a file; MergeError if it is damaged."""
    try:
        with safe_open(path, framework="np") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: TensorHeader(name, s.get_dtype(), tuple(s.get_shape()), path)
                for name, s in found.items()
            }
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise MergeError(
            f"{path} cannot be read as safetensors: {str(error)!r:.300}; its download "
            "may have been cut short: download or save the model again"
        ) from None


_DESCRIPTIONS = {  # what a loader may read of a model beside weights
    *(".json", ".model", ".txt", ".vocab", ".tokenizer", ".tiktoken", ".jinja", ".py"),
    *(".spm", ".codes"),
}
_NEVER_READ = {
    *("__pycache__", "trainer_state.json", "all_results.json", "train_results.json"),
    "eval_results.json",
}
_READ_BELOW = {".py", ".jinja"}  # in subfolders, which may hold other models
_WEIGHTS = ".safetensors"
_UNPICKLE = "which can run code when loaded, save them with save_pretrained first"
_DEEPEST = 3  # folders in each other; a link may lead in a circle
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_WEIGHT_FILE = re.compile(r"[\w+ =,-][\w+ .=,-]{0,199}\.safetensors")


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """A model or an adapter: its folder, and its weights if they are there."""

    part: ModelPart
    folder: Path
    config: Settings  # config.json, or adapter_config.json
    is_adapter: bool

    @property
    def trained_on(self) -> str:
        """Return the model that an adapter names as its base; empty without a name."""
        named = self.config.get("base_model_name_or_path")
        return named if isinstance(named, str) else ""

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
        """Return the headers of the files that mergekit reads, or raise MergeError."""
        found = _fetch_headers(self.part) if self.on_the_hub else self._read_headers()
        for name, header in found.items():
            if not header.is_float and (self.is_adapter or name.endswith(".weight")):
                raise MergeError(
                    f"{self.folder} holds codes of the type {header.dtype} where "
                    f"weights are to be ({name!r:.200}), which cannot be added up; "
                    "take the model as it was trained"
                )
        return found

    def _read_headers(self) -> Mapping[str, TensorHeader]:
        files = {path.name: read_headers(path) for path in self.weight_files()}
        index = self._index() or {n: file for file, held in files.items() for n in held}
        if _SINGLE not in files and (self.folder / _SINGLE).is_file():
            raise MergeError(
                f"{self.folder} holds {_SINGLE}, which transformers would load, and "
                f"{_INDEX}, which mergekit reads; remove what is not the model"
            )
        lost = sorted(name for name, file in index.items() if name not in files[file])
        if lost:
            raise MergeError(
                f"{self.folder / _INDEX} names {len(lost)} tensors that its files do "
                f"not hold, {lost[0]!r:.200} among them; download or save the model "
                "again"
            )
        return {name: files[file][name] for name, file in index.items()}

    def weight_files(self) -> list[Path]:
        """List the files of the weights; MergeError if any is missing or pickled."""
        index = self._index()
        single = f"{'adapter_' * self.is_adapter}{_SINGLE}"
        paths = [self.folder / name for name in sorted(set(index.values())) or [single]]
        if not (missing := [path.name for path in paths if not path.is_file()]):
            return paths
        raise MergeError(
            f"{self.folder} holds no weights ({missing[0]}); download or save again "
            f"what {_INDEX if index else 'it'} lacks, or, if they are pickled weights "
            f"(*.bin), {_UNPICKLE}"
        )

    def _index(self) -> Mapping[str, str]:
        """Return the file of each tensor of a model in several files; empty if one."""
        path = self.folder / _INDEX
        if self.is_adapter or not path.is_file():
            return {}
        weight_map = read_json(path).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise MergeError(f"{path} has no weight_map; download the model again")
        for name in weight_map.values():
            if not isinstance(name, str) or not _WEIGHT_FILE.fullmatch(name):
                raise MergeError(
                    f"the weight_map of {path} must map tensors to files of its folder "
                    f"(*.safetensors), got {name!r:.200}; download the model again"
                )
        return weight_map


def find_model(
    reference: str, *, weights: bool = True, here: bool = False
) -> ModelFiles:
    """Find a model or adapter, downloading what mergekit would download.

    Without ``weights``, those of a repository stay on the Hub unless they are here; if
    all is ``here``, the Hub is not asked. Raises MergeError where there is no such
    folder or Hub repository, or it holds no model.
    """
    part = ModelPart.parse(reference)
    if part.is_folder:
        return _open_folder(part, Path(part.path))
    patterns = [f"*{s}" for s in (*_DESCRIPTIONS, *([_WEIGHTS] if weights else []))]
    return _open_folder(part, _download(part, patterns, here=here))


def _open_folder(part: ModelPart, folder: Path) -> ModelFiles:
    for path in folder.iterdir():
        is_file = path.is_file() or (path.is_dir() and path.suffix != ".json")
        if path.exists() and not is_file:
            raise MergeError(f"{path} is no ordinary file; copy the model again")
    for path in _read_by_loaders(folder):
        target = Path(os.path.realpath(path))
        is_link = path.is_symlink() and path.suffix in _DESCRIPTIONS
        if is_link and target.name != path.name and "blobs" not in target.parts[-3:-1]:
            # A merge would hold a copy of it, which may be published.
            raise MergeError(f"{path} is a link to {target}; copy what the model needs")
    _refuse_named_files(folder)
    adapter, config = folder / "adapter_config.json", folder / "config.json"
    # Trainers keep the configuration of the base beside an adapter, but no weights.
    if adapter.is_file() and not any((folder / n).is_file() for n in (_SINGLE, _INDEX)):
        return ModelFiles(part, folder, read_json(adapter), is_adapter=True)
    if config.is_file():
        return ModelFiles(part, folder, read_json(config), is_adapter=False)
    raise MergeError(
        f"{part} holds no config.json, so it is not a Hugging Face model; give "
        "the folder that save_pretrained wrote"
    )


def _refuse_named_files(folder: Path) -> None:
    """Refuse tokenizers whose settings name a file, which the merge would hold."""
    settings = read_json_or_nothing(folder / "tokenizer_config.json")
    special = read_json_or_nothing(folder / "special_tokens_map.json")
    odd = any(not key.endswith(("_token", "_tokens")) for key in special)
    odd |= any(isinstance(settings.get(key), str) for key in ("vocab", "merges"))
    if odd or settings.get("init_inputs") or settings.get("fast_tokenizer_files"):
        raise MergeError(f"the tokenizer of {folder} may name a file; save it again")


def _download(part: ModelPart, patterns: list[str], *, here: bool) -> Path:
    path = part.path
    try:
        folder = huggingface_hub.snapshot_download(
            path,
            revision=part.revision or None,
            allow_patterns=patterns,
            local_files_only=here,
        )
    except Exception as error:  # noqa: BLE001  # of any kind, by the Hub's client
        if place := getattr(error, "snapshot_path", None):
            return Path(place)  # offline, without files that no merge may need
        why = f"the Hub does not give it: {first_line(error)}"
        check = "check name, network, HF_HUB_OFFLINE and login (hf auth login)"
        if isinstance(error, LocalEntryNotFoundError):
            why = "the cache has no such repository, and the Hub cannot be reached"
        elif isinstance(error, HFValidationError):
            why = "it is not the id of a Hub repository"
            check = "check the path (relative paths start at the working directory)"
        place = Path(path)
        configs = glob.glob(f"{glob.escape(str(place.parent))}/*/*config.json")
        beside = [Path(file).parent.name for file in configs]
        like = alike(place.name, beside, f"{place.parent}/")
        raise MergeError(
            f"there is no folder {path!r}, and {why}; {check}; if the model lies "
            f"elsewhere now, add --model-path {shlex.quote(path)}=FOLDER"
            f"{like and f'; {like}'}"
        ) from None
    return Path(folder)


def _fetch_headers(part: ModelPart) -> dict[str, TensorHeader]:
    path = part.path
    try:
        api = huggingface_hub.HfApi()
        metadata = api.get_safetensors_metadata(path, revision=part.revision or None)
        found = {
            name: TensorHeader(name, t.dtype, tuple(t.shape), None)
            for file in metadata.files_metadata.values()
            for name, t in file.tensors.items()
        }
        for header in found.values():
            is_sound = header.dtype.isidentifier() and header.n_elements < 1 << 50
            if not (is_sound and all(n >= 0 for n in header.shape)):
                raise ValueError(f"the type or shape of {header.name!r:.200} is none")
        return found
    except Exception as error:  # noqa: BLE001 - of any kind, by the Hub's client
        raise MergeError(
            f"the weights of {path} are not here, and the Hub does not give their "
            f"headers: {first_line(error)}; check network and HF_HUB_OFFLINE, or, if "
            f"they are pickled (*.bin), {_UNPICKLE}"
        ) from None


def fingerprint(reference: str, *, here: bool = False) -> str:
    """Return a digest of the content of a model: all that a loader may read of it.

    The same model at another path has the same one. ``here`` is as in ``find_model``.
    """
    digests = []
    for part in Reference.parse(reference).parts:
        folder = find_model(str(part), here=here).folder
        found = (p for p in _read_by_loaders(folder) if not p.name.startswith("."))
        paths = {p.relative_to(folder).as_posix(): p for p in found}
        lines = [f"{name} {digest_of_file(paths[name])}\n" for name in sorted(paths)]
        digests.append(sha256("".join(lines))[:16])
    return sha256("".join(digests))[:16]


def refuse_replaced(fingerprints: Mapping[str, str]) -> None:
    """Raise MergeError if a model is another; large files as they were are not read."""
    again = {model: fingerprint(model, here=True) for model in fingerprints}
    if replaced := [model for model in again if again[model] != fingerprints[model]]:
        raise MergeError(
            f"{' and '.join(replaced)} changed while merges of it were measured, so "
            "that others would stand beside them under the same name; put back what "
            "changed, or search again, which measures the new model apart"
        )


def _read_by_loaders(folder: Path) -> Iterator[Path]:
    """Yield the files that a loader may read: of subfolders, code and templates."""
    entered = set[str]()
    for parent, folders, files in os.walk(folder, followlinks=True):
        place = Path(parent)
        depth = len(place.relative_to(folder).parts)
        near = folders if depth < _DEEPEST else []
        names = [n for n in near if not (n.startswith(".") or n in _NEVER_READ)]
        names.sort(reverse=True)  # the first of several names counts
        targets = {os.path.realpath(place / name): name for name in names}
        folders[:] = [n for target, n in targets.items() if target not in entered]
        entered |= targets.keys()
        read = _READ_BELOW if depth else {*_DESCRIPTIONS, _WEIGHTS}
        paths = (place / name for name in files if name not in _NEVER_READ)
        yield from (path for path in paths if path.suffix in read and path.is_file())


# Bytes; smaller files are read in no time. To read a larger one takes more than a tick
# of the clock of a file system, so that whoever writes it again changes its times.
_LARGE = 1 << 24
_DIGITS = 64  # of a digest


def digest_of_file(path: Path) -> str:
    """Return the hash of a file as ``sha256_of_file`` does, or the remembered one."""
    if path.stat().st_size < _LARGE:
        return sha256_of_file(path)
    return _digest_of_large(path.resolve(), written_state(path))


@cache
def _digest_of_large(path: Path, before: tuple[int, ...]) -> str:
    known = cache_home() / "digests" / sha256(f"{path} {before}")
    with suppress(OSError, ValueError):  # whatever a crash left there
        if len(digest := known.read_text()) == _DIGITS:
            return digest
    found = sha256_of_file(path)
    if written_state(path) == before:
        with suppress(ArtifactError):  # a cache folder that cannot be written
            write_atomically(known, found)
    return found
