"""Public names in place of local paths, and the refusal of what is private.

A text is rewritten before it is published, and everything published is scanned. Models
go by their Hub id or by the name of their folder, any other file by its own name.
"""

from __future__ import annotations

import html
import json
import mmap
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from mergekit_map.config.yaml_file import MODEL_KEYS, MergeConfig
from mergekit_map.errors import ArtifactError, ConfigError
from mergekit_map.models.references import ModelPart, Reference, referenced_models
from mergekit_map.utils.text import secrets, unused_name

RUN_FOLDER = "mergekit-map"  # where the search lies in a repository
VOCABULARIES = {  # files that are not rewritten, as tokens may look like paths
    *("added_tokens.json", "merges.txt", "tokenizer.json", "tokenizer.model"),
    *("vocab.json", "vocab.txt"),
}
# Files with prompts, which are part of what was measured and may name any folder.
_PROMPTS = VOCABULARIES | {
    *("chat_template.json", "generation_config.json", "preprocessor_config.json"),
    *("processor_config.json", "special_tokens_map.json", "tokenizer_config.json"),
}
_FILE_KEYS = {"file", "perplexity", "lm_eval"}  # of tasks, which may be files
# A folder of the Hub's cache, which is named by repository and commit.
_HUB_SNAPSHOT = re.compile(r".*/models--([^/]+)/snapshots/([^/]+)/?")

# Where a known path may start and end in a text; JSON writes the end of a line as \n.
# An unknown path does not start within a URL.
_PATH_START, _PATH_END = r"(?:(?<![\w.~-])|(?<=\\[nrt]))", r"(?![\w-]|\.\w)"
_UNKNOWN_START = r"(?:(?<![\w.~/:-])|(?<=file://)|(?<=\\[nrt]))"
_ABSOLUTE_PATH = rf"{_UNKNOWN_START}(?:/[\w.+@-]+){{2,}}"
_HOME_FOLDER = rf"{_UNKNOWN_START}/(?:home|Users)/[\w.-]+"  # on any machine
# Folders that every machine has.
_SYSTEM_FOLDER = re.compile("/(?:bin|dev|etc|lib|lib64|opt|proc|sbin|sys|usr)/")
_TOKEN = r"hf_[A-Za-z0-9]{20,}"
# Shorter secrets of the environment, such as a word, may be in any file by chance.
_MIN_SECRET_LENGTH = 16
_MAX_LISTED = 10  # leaks; a file with more has the same one many times


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


def map_texts(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    """Change all texts of JSON, given their key; keys and items of lists have none."""
    if isinstance(value, Mapping):
        items = value.items()
        return {map_texts(k, change): map_texts(item, change, k) for k, item in items}
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return change(value, key) if isinstance(value, str) else value


@dataclass(frozen=True)
class PublicNames:
    """Public names of the models of a merge."""

    # Of a local model by its absolute path; Hub ids have / or @.
    names: Mapping[str, str]
    directory: str = "/"  # where relative paths of configurations start
    home: str = "/"

    def hub_id(self, part: str) -> str | None:
        """Return the Hub repository of a model or adapter; None for a local one."""
        if (path := self._absolute(ModelPart.parse(part).path)) in self.names:
            name = ModelPart.parse(self.names[path]).path
            # Those of a snapshot in the Hub's cache have a revision.
            return name if {"/", "@"} & {*self.names[path]} else None
        return None if is_local(path) else path

    def hub_parents(self, config: MergeConfig) -> list[str]:
        """List the Hub repositories that a recipe takes its models from."""
        return list(dict.fromkeys(filter(None, map(self.hub_id, parts_of(config)))))

    def reference(self, reference: str) -> str:
        """Return a model's public name in the form ``base@revision+adapter``."""
        return "+".join(map(self._public_part, Reference.parse(reference).parts))

    def config(self, config: Any) -> Any:
        """Return a configuration with public names of models and files."""

        def public(text: str, key: str) -> str:
            if key in MODEL_KEYS:
                return self.reference(text)
            is_file = key in _FILE_KEYS or (key == "dataset" and is_local(text))
            return Path(text).name if is_file else self.text(text)

        return map_texts(config, public)

    def content(self, content: Any) -> Any:
        """Replace the paths in all texts of JSON."""
        return map_texts(content, lambda text, _: self.text(text))

    def text(self, text: str) -> str:
        """Replace every absolute path by its last name, a home directory by a dot."""
        home = rf"{_PATH_START}(?:{_any_of({self.home} - {'/'})}){_PATH_END}"

        def public_name(match: re.Match[str]) -> str:
            is_home = re.fullmatch(rf"{home}|{_HOME_FOLDER}", match[0])
            return "." if is_home else match[0].rpartition("/")[2]

        return re.sub(rf"{_ABSOLUTE_PATH}|{home}", public_name, text)

    def _public_part(self, part: ModelPart) -> str:
        path = self._absolute(part.path)
        name = self.names.get(path) or (Path(path).name if is_local(path) else path)
        return name if "@" in name else str(ModelPart(name, part.revision))

    def _absolute(self, path: str) -> str:
        place = os.path.join(self.directory, os.path.expanduser(path))
        absolute = (os.path.normpath(place), os.path.realpath(place))
        return next((one for one in absolute if one in self.names), path)


def public_names(
    references: Iterable[str],
    parents: Mapping[str, str] | None = None,
    directory: str = "/",
) -> PublicNames:
    """Name models: by Hub id where that is known, else by the name of their folder.

    ``references`` has local models by absolute path; ``parents`` their Hub ids, by path
    or by the name of the folder, each of one local model.
    """
    parts = [part for text in references for part in Reference.parse(text).parts]
    names: dict[str, str] = {}
    for path in dict.fromkeys(part.path for part in parts if is_local(part.path)):
        if snapshot := _HUB_SNAPSHOT.fullmatch(path):
            names[path] = f"{snapshot[1].replace('--', '/')}@{snapshot[2]}"
        else:
            names[path] = unused_name(Path(path).name or "model", names.values())
    names |= {_find_local(names, parent): i for parent, i in (parents or {}).items()}
    home = os.path.expanduser("~")  # itself where a user has none
    return PublicNames(names, directory, "/" if home == "~" else home)


def _find_local(names: Mapping[str, str], parent: str) -> str:
    absolute = str(Path(parent).expanduser().resolve())
    matches = [path for path in names if parent in {names[path], Path(path).name}]
    if absolute in names:
        matches = [absolute]
    if len(matches) != 1:
        choices = ", ".join(matches or names) or "all are of the Hub"
        raise ConfigError(f"--parent: no one local model is {parent!r} ({choices})")
    return matches[0]


def is_local(reference: str) -> bool:
    """Whether a reference is a local path, by its form, not a Hub id."""
    return reference.startswith(("/", ".", "~")) or reference.count("/") > 1


def parts_of(config: MergeConfig) -> list[str]:
    """List the folders and repositories that models and adapters come from."""
    models = map(Reference.parse, referenced_models(config))
    return list(dict.fromkeys(str(part) for model in models for part in model.parts))


def refuse_leaks(
    files: Iterable[PublicFile], names: PublicNames, token: str | None
) -> None:
    """Raise ArtifactError with each place of a local path or a secret."""
    texts = filter(None, (token, *secrets()))
    long = [text for text in texts if len(text) >= _MIN_SECRET_LENGTH]
    secret = re.compile(f"{_TOKEN}|{_any_of(long)}".encode())
    found = ((f.path, *at) for f in files for at in _leaks(f, names, secret))
    leaks = (f"{path}:{line}: {leak}" for path, line, leak in found)
    if listing := "\n".join(islice(leaks, _MAX_LISTED)):
        raise ArtifactError(
            "nothing was uploaded: no file may hold a path of this machine or a token, "
            f"but these do; remove them and push again:\n{listing}"
        )


def _leaks(
    file: PublicFile, names: PublicNames, secret: re.Pattern[bytes]
) -> Iterator[tuple[int, str]]:
    """Yield the line of each secret or local path, and what it is."""
    name = PurePosixPath(file.path)
    is_prompt = name.name in _PROMPTS or name.suffix == ".jinja"
    folders = [*names.names] if is_prompt else [*names.names, names.home]
    spellings = _any_of(text for path in folders for text in _spellings(path))
    known_path = f"{_PATH_START}(?:{spellings}){_PATH_END}"
    if not is_prompt:
        known_path += rf"|{_HOME_FOLDER}/[\w.+@-]+"
    with _open_text(file) as data:
        leaks = [(match, "an access token") for match in secret.finditer(data)]
        paths = list(re.finditer(known_path.encode(), data))
        if not is_prompt:
            paths += filter(_exists_here, re.finditer(_ABSOLUTE_PATH.encode(), data))
        leaks += [(match, f"the local path {match[0].decode()}") for match in paths]
        for match, leak in leaks:
            yield data[: match.start()].count(b"\n") + 1, leak


def _exists_here(match: re.Match[bytes]) -> bool:
    path = match[0].decode().rstrip(".")  # the full stop of a sentence
    return os.path.exists(path) and not _SYSTEM_FOLDER.match(path)


@contextmanager
def _open_text(file: PublicFile) -> Iterator[bytes | mmap.mmap]:
    """Open a file; of safetensors the header, which is all text they have."""
    if isinstance(file.content, bytes):
        yield file.content
    elif file.size == 0:  # which cannot be mapped into memory
        yield b""
    else:
        with file.content.open("rb") as opened:
            if file.content.suffix == ".safetensors":
                header_length = int.from_bytes(opened.read(8), "little")
                yield opened.read(min(header_length, file.size))
            else:
                with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    yield data


def _any_of(texts: Iterable[str]) -> str:
    """Return a pattern for any of the texts, longest first; of none, a failing one."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"


def _spellings(path: str) -> set[str]:
    """List the spellings of a path in text, JSON, YAML, HTML and links; of / none."""
    json_ascii = json.dumps(path)[1:-1]  # without quotation marks
    json_unicode = json.dumps(path, ensure_ascii=False)[1:-1]
    # Double-quoted YAML has \xE9 where JSON has \u00e9.
    yaml = re.sub(r"\\u00([0-9a-f]{2})", lambda m: f"\\x{m[1].upper()}", json_ascii)
    quoted = {path.replace("'", "''"), html.escape(path), urllib.parse.quote(path)}
    return {path, json_ascii, json_unicode, yaml, *quoted} - {"/"}
