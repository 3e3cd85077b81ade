"""A scan of everything to upload for paths of this machine and for tokens."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from mergekit_map.errors import ArtifactError
from mergekit_map.hub.card_text import RUN_FOLDER
from mergekit_map.hub.sanitize import PATH_END, PATH_START, spellings
from mergekit_map.hub.upload_files import VOCABULARIES, PublicFile

_SHOWN = 10  # findings; who has more has the same one many times

_TOKEN = r"hf_[A-Za-z0-9]{20,}"
_TOKEN_LENGTH = 8  # of one in use, below which any file may hold it by chance
_BEFORE = r"(?:(?<![\w.~/:-])|(?<=file://))"
_ABSOLUTE = re.compile(rf"{_BEFORE}(?:/[\w.+@-]+){{2,}}".encode())
# The home directory of somebody, on any machine.
_HOMES = rf"{_BEFORE}/(?:home|Users)/[\w.-]+/[\w.+@-]+"
# What a model reads or is set by may tell of folders such as /root, as prompts do.
_READ_BY_MODELS = VOCABULARIES | {
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
}
# Folders that every machine has.
_COMMON = ("/bin", "/dev", "/etc", "/lib", "/opt", "/proc", "/sbin", "/sys", "/usr")

_Bytes: TypeAlias = "bytes | mmap.mmap"


@dataclass(frozen=True)
class Private:
    """Local paths and tokens, which no file may have."""

    token: str | None
    models: Sequence[str]  # absolute paths of local models, and of input and output
    places: Sequence[str]  # folders of this machine: the home directory, for one
    home: str = "/"

    @cached_property
    def token_pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of access tokens and of the token in use."""
        long = self.token is not None and len(self.token) >= _TOKEN_LENGTH
        used = f"|{re.escape(str(self.token))}" if long else ""
        return re.compile(f"{_TOKEN}{used}".encode())

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of all local paths, in every spelling."""
        return _paths(*self.models, *self.places)

    @cached_property
    def wide_pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of all local paths and of home directories anywhere."""
        return re.compile(self.pattern.pattern + b"|" + _HOMES.encode())

    @cached_property
    def narrow_pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of long paths: ``/root`` may be a vocabulary's token."""
        return _paths(*self.models)

    @cached_property
    def personal_pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of long paths and of personal ones."""
        known = _paths(*self.models, self.home).pattern
        return re.compile(known + b"|" + _HOMES.encode())


def refuse_leaks(files: Iterable[PublicFile], private: Private) -> None:
    """Raise ArtifactError with each place of a local path or a token."""
    found = [
        f"{f.path}:{line}: {what}" for f in files for line, what in _leaks(f, private)
    ]
    if not found:
        return
    listing = "\n".join(found[:_SHOWN])
    if len(found) > _SHOWN:
        listing += f"\nand {len(found) - _SHOWN} more"
    raise ArtifactError(
        "nothing was uploaded: no file may hold a path of this machine or a token, but "
        f"these do; remove them and push again:\n{listing}"
    )


def _leaks(file: PublicFile, private: Private) -> Iterator[tuple[int, str]]:
    with _opened(file) as data:
        if len(data) == 0:
            return
        for match in private.token_pattern.finditer(data):
            yield _line(data, match), "an access token of the Hub"
        path = PurePosixPath(file.path)
        pattern = _pattern(path, private)
        for match in pattern.finditer(data):
            yield _line(data, match), f"the local path {_shown(match)}"
        if path.parts[0] == RUN_FOLDER or pattern is private.pattern:
            yield from _other_paths(data, pattern)


def _pattern(path: PurePosixPath, private: Private) -> re.Pattern[bytes]:
    """Return the pattern for a file: the text of a checkpoint cannot be changed."""
    if path.parts[0] == RUN_FOLDER:
        return private.wide_pattern
    if path.name in _READ_BY_MODELS or path.suffix == ".jinja":
        return private.narrow_pattern
    return private.personal_pattern if path.suffix == ".json" else private.pattern


def _other_paths(data: _Bytes, known: re.Pattern[bytes]) -> Iterator[tuple[int, str]]:
    for match in _ABSOLUTE.finditer(data):
        path = _shown(match).rstrip(".")  # of a sentence
        common = path.startswith(tuple(f"{folder}/" for folder in _COMMON))
        if not common and not known.match(match[0]) and os.path.exists(path):
            yield _line(data, match), f"the local path {path}"


@contextmanager
def _opened(file: PublicFile) -> Iterator[_Bytes]:
    """Open a file; of safetensors the header, which is all text they have."""
    if isinstance(file.content, bytes):
        yield file.content
    elif file.size == 0:
        yield b""
    else:
        with file.content.open("rb") as opened:
            if file.content.suffix == ".safetensors":
                length = int.from_bytes(opened.read(8), "little")
                yield opened.read(min(length, file.size))
            else:
                with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    yield data


def _line(data: _Bytes, match: re.Match[bytes]) -> int:
    return data[: match.start()].count(b"\n") + 1


def _shown(match: re.Match[bytes]) -> str:
    return match[0].decode(errors="replace")


def _paths(*paths: str) -> re.Pattern[bytes]:
    known = {s for path in paths if len(Path(path).parts) > 1 for s in spellings(path)}
    longest = sorted(known, key=len, reverse=True)
    # Without any, what matches nowhere.
    alternatives = "|".join(map(re.escape, longest)) or r"(?!)"
    return re.compile(f"{PATH_START}(?:{alternatives}){PATH_END}".encode())
