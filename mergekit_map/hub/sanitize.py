"""Public names in place of local paths, and the refusal of what is private.

A text is rewritten before it is published, and everything published is scanned. Models
go by their Hub id or by the name of their folder, any other file by its own name.
"""

from __future__ import annotations

import html
import itertools
import json
import mmap
import os
import re
import urllib.parse
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from mergekit_map.errors import ArtifactError, ConfigError, nearest
from mergekit_map.models.references import MODEL_KEYS, ModelPart, Reference
from mergekit_map.utils.text import secrets

RUN_FOLDER = "mergekit-map"  # where the search lies in a repository
# Tokens may look like paths.
VOCABULARIES = {
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "added_tokens.json",
    "tokenizer.model",
}
# Part of what was measured: a prompt may name folders such as /root.
_PROMPTS = {
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
}
# A folder of the Hub's cache, which is named by repository and commit.
_SNAPSHOT = re.compile(r".*/models--([^/]+)/snapshots/([^/]+)")

# Where a known path may start and end in a text; JSON writes a line's end as two
# letters. An unknown path starts at none that belongs to a URL, either.
_START, _END = r"(?:(?<![\w.~-])|(?<=\\[nrt]))", r"(?![\w-]|\.\w)"
_REST = r"(?:/[^\s\"'`<>|,;:()\[\]{}\\&]*)?"
_BEFORE = r"(?:(?<![\w.~/:-])|(?<=file://)|(?<=\\[nrt]))"
_ABSOLUTE = rf"{_BEFORE}(?:/[\w.+@-]+){{2,}}"
# The home directory of somebody, on any machine.
_HOMES = rf"{_BEFORE}/(?:home|Users)/[\w.-]+"
_TOKEN = r"hf_[A-Za-z0-9]{20,}"
# Shorter ones may be in any file by chance, a password of the environment in prose.
_TOKEN_LENGTH, _SECRET_LENGTH = 8, 16
# Folders that every machine has.
_COMMON = ("/bin", "/dev", "/etc", "/lib", "/opt", "/proc", "/sbin", "/sys", "/usr")
_SHOWN = 10  # findings; a file with more has the same one many times

# A recipe: a merge configuration for each of its stages.
Configs: TypeAlias = Sequence[Mapping[str, Any]]
_Bytes: TypeAlias = "bytes | mmap.mmap"


@dataclass(frozen=True)
class PublicFile:
    """A file of an upload."""

    path: str  # in the repository
    content: Path | bytes  # the file here, or its text after it was rewritten

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        if isinstance(self.content, bytes):
            return len(self.content)
        return self.content.stat().st_size

    @property
    def rewritten(self) -> bool:
        """Whether it differs from the file on this machine."""
        return isinstance(self.content, bytes)


@dataclass(frozen=True)
class PublicNames:
    """Public names of the models of a merge."""

    folders: Mapping[str, str]  # absolute path of a local model to its public name
    hub_ids: Mapping[str, str]  # the same for those that the Hub has, too
    directory: str = "/"  # where relative paths of configurations start
    home: str = "/"

    def hub_id(self, part: str) -> str | None:
        """Return the Hub repository of a model or adapter; None for a local one."""
        path = self._full(ModelPart.parse(part).path)
        if path in self.hub_ids:
            return ModelPart.parse(self.hub_ids[path]).path
        return None if path in self.folders or is_local(path) else path

    def hub_parents(self, configs: Configs) -> list[str]:
        """List the Hub repositories that a recipe takes its models from."""
        found = [self.hub_id(part) for part in parts_of(configs)]
        return list(dict.fromkeys(hub_id for hub_id in found if hub_id))

    def reference(self, reference: str) -> str:
        """Return a model's public name in the form ``base@revision+adapter``."""
        return "+".join(map(self._part, Reference.parse(reference).parts))

    def config(self, part: Any) -> Any:
        """Return a merge configuration with public names, and no other local paths."""
        return self.content(part, MODEL_KEYS)

    def content(self, part: Any, models: Container[str] = ()) -> Any:
        """Replace the paths in all texts of JSON or YAML; ``models`` are keys."""
        if isinstance(part, Mapping):
            return {
                self.content(key): self.reference(value)
                if key in models and isinstance(value, str)
                else self.content(value, models)
                for key, value in part.items()
            }
        if isinstance(part, list | tuple):
            return [self.content(item, models) for item in part]
        return self.text(part) if isinstance(part, str) else part

    def text(self, text: str) -> str:
        """Replace paths: those of models in every spelling, any other by its name."""
        return re.sub(_ABSOLUTE, _last_name, self._pattern.sub(self._named, text))

    def _part(self, part: ModelPart) -> str:
        path = self._full(part.path)
        name = self._names.get(path) or (Path(path).name if is_local(path) else path)
        return name if "@" in name else str(ModelPart(name, part.revision))

    def _full(self, path: str) -> str:
        full = os.path.normpath(os.path.join(self.directory, path))
        return full if full in self._names else path

    @cached_property
    def _names(self) -> dict[str, str]:
        return {**self.folders, **self.hub_ids}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        known = {self.home: "", **self._names}
        return {s: n for p, n in known.items() if p != "/" for s in _spellings(p)}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"{_START}({_either(self._spellings)}){_END}({_REST})")

    def _named(self, match: re.Match[str]) -> str:
        name, rest = self._spellings[match[1]], match[2]
        return f"{name}{rest}" if name else rest.rstrip("/").rpartition("/")[2] or "."


def _last_name(match: re.Match[str]) -> str:
    home = re.fullmatch(_HOMES, match[0])
    return "." if home else match[0].rpartition("/")[2]


def public_names(
    references: Iterable[str],
    parents: Mapping[str, str] | None = None,
    directory: str = "/",
) -> PublicNames:
    """Name models: by Hub id where that is known, else by the name of their folder.

    ``references`` has local models by absolute path; ``parents`` their Hub ids, by path
    or by the name of the folder.

    Raises:
        ConfigError: one of ``parents`` is no local model, or several.
    """
    paths = [part.path for r in references for part in Reference.parse(r).parts]
    local = list(dict.fromkeys(path for path in paths if is_local(path)))
    hub_ids = {path: hub_id for path in local if (hub_id := _hub_snapshot(path))}
    for given, hub_id in (parents or {}).items():
        hub_ids[_local_model(local, given)] = hub_id
    folders: dict[str, str] = {}
    for path in local:
        if path not in hub_ids:
            folders[path] = _unused(Path(path).name or "model", folders.values())
    return PublicNames(folders, hub_ids, directory, str(Path.home()))


def _local_model(local: Sequence[str], given: str) -> str:
    full = str(Path(given).expanduser().resolve())
    named = [path for path in local if Path(path).name == given]
    found = [full] if full in local else named
    if not found:
        names = {Path(path).name for path in local}
        known = nearest(given, names) if names else "all models are of the Hub"
        raise ConfigError(f"--parent: no local model is called {given!r}; {known}")
    if len(found) > 1:
        raise ConfigError(
            f"--parent: {given!r} may be any of {', '.join(found)}; give the path"
        )
    return found[0]


def _unused(name: str, taken: Collection[str]) -> str:
    others = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], others) if free not in taken)


def is_local(reference: str) -> bool:
    """Whether a reference is a local path, by its form, not a Hub id."""
    return reference.startswith(("/", ".", "~")) or reference.count("/") > 1


def _hub_snapshot(path: str) -> str | None:
    match = _SNAPSHOT.fullmatch(path.rstrip("/"))
    return f"{match[1].replace('--', '/')}@{match[2]}" if match else None


def models_of(configs: Configs) -> list[str]:
    """List the models of a recipe, the base model first, without its own stages."""
    stages = {config.get("name") for config in configs}
    found = dict.fromkeys(model for config in configs for model in _models(config))
    return [model for model in found if model not in stages]


def parts_of(configs: Configs) -> list[str]:
    """List the folders and repositories that models and adapters come from."""
    models = map(Reference.parse, models_of(configs))
    return list(dict.fromkeys(str(part) for model in models for part in model.parts))


def _models(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key in ("base_model", "model"):
            if isinstance(part.get(key), str):
                yield part[key]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _models(item)


def refuse_leaks(
    files: Iterable[PublicFile], names: PublicNames, token: str | None
) -> None:
    """Raise ArtifactError with each place of a local path or a secret."""
    hidden = [known for known in secrets() if len(known) >= _SECRET_LENGTH]
    hidden += [token] if token and len(token) >= _TOKEN_LENGTH else []
    secret = re.compile(f"{_TOKEN}|{_either(hidden)}".encode())
    found = [
        f"{file.path}:{line}: {what}"
        for file in files
        for line, what in _leaks(file, names, secret)
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


def _leaks(
    file: PublicFile, names: PublicNames, secret: re.Pattern[bytes]
) -> Iterator[tuple[int, str]]:
    path = PurePosixPath(file.path)
    searched = path.parts[0] == RUN_FOLDER
    prompt = path.name in VOCABULARIES | _PROMPTS or path.suffix == ".jinja"
    prompt = prompt and not searched
    config = path.suffix == ".json" and not searched  # loaders read it as it is
    known = [*names.folders, *names.hub_ids, *([] if prompt else [names.home])]
    spelled = [s for one in known if one != "/" for s in _spellings(one)]
    paths = f"{_START}(?:{_either(spelled)}){_END}"
    if (config or searched) and not prompt:
        paths += rf"|{_HOMES}/[\w.+@-]+"
    with _opened(file) as data:
        for match in secret.finditer(data):
            yield _line(data, match), "an access token"
        for match in re.finditer(paths.encode(), data):
            yield _line(data, match), f"the local path {_shown(match)}"
        if prompt or config:
            return
        for match in re.finditer(_ABSOLUTE.encode(), data):
            place = _shown(match).rstrip(".")  # of a sentence
            common = place.startswith(tuple(f"{folder}/" for folder in _COMMON))
            known_ = re.match(paths.encode(), match[0])
            if not common and not known_ and os.path.exists(place):
                yield _line(data, match), f"the local path {place}"


@contextmanager
def _opened(file: PublicFile) -> Iterator[_Bytes]:
    """Open a file; of safetensors the header, which is all text they have."""
    if not isinstance(file.content, Path):
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


def _either(texts: Iterable[str]) -> str:
    """Return a pattern of alternatives, the longest first; of none, a failing one."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"


def _spellings(path: str) -> set[str]:
    """List the spellings of a path in text, JSON, YAML, HTML and links."""
    escaped = json.dumps(path)[1:-1]
    return {
        path,
        escaped,
        json.dumps(path, ensure_ascii=False)[1:-1],
        re.sub(r"\\u00([0-9a-f]{2})", lambda m: f"\\x{m[1].upper()}", escaped),
        path.replace("'", "''"),
        html.escape(path),
        urllib.parse.quote(path),
    }
