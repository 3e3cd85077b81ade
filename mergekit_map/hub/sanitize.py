"""Public names of models in place of local paths."""

from __future__ import annotations

import html
import itertools
import json
import os
import re
import urllib.parse
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from mergekit_map.errors import ConfigError, nearest
from mergekit_map.models.references import MODEL_KEYS, ModelPart, Reference

# A folder of the Hub's cache, which is named by repository and commit.
_SNAPSHOT = re.compile(r".*/models--([^/]+)/snapshots/([^/]+)")

# Where a path may start and end in a text; JSON writes a line's end as two letters.
PATH_START = r"(?:(?<![\w.~-])|(?<=\\[nrt]))"
PATH_END = r"(?![\w-]|\.\w)"
_REST_OF_PATH = r"(?:/[^\s\"'`<>|,;:()\[\]{}\\&]*)?"

# A recipe: a merge configuration for each of its stages.
Configs: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PublicNames:
    """Public names of the models of a merge and of local files."""

    folders: Mapping[str, str]  # absolute path of a local model to its public name
    hub_ids: Mapping[str, str]  # the same for those that the Hub has, too
    places: Sequence[str] = ()  # other folders: their files go by the name alone
    directory: str = "/"  # where relative paths of configurations start

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
        """Replace the paths in all texts of JSON or YAML; name what ``models`` hold."""
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
        """Replace the paths in a text, in every spelling of a file."""
        return self._pattern.sub(self._replacement, text) if self._names else text

    def with_moved(self, places: Mapping[str, str]) -> PublicNames:
        """Return the names with those of earlier places of the models."""
        folders, hub_ids = (
            {old: known[new] for old, new in places.items() if new in known}
            for known in (self.folders, self.hub_ids)
        )
        return replace(
            self,
            folders={**self.folders, **folders},
            hub_ids={**self.hub_ids, **hub_ids},
        )

    def _part(self, part: ModelPart) -> str:
        path = self._full(part.path)
        if path in self.hub_ids and "@" in self.hub_ids[path]:
            return self.hub_ids[path]
        name = self._names.get(path) or (Path(path).name if is_local(path) else path)
        return str(replace(part, path=name))

    def _full(self, path: str) -> str:
        full = os.path.normpath(os.path.join(self.directory, path))
        return full if full in self._names else path

    @cached_property
    def _names(self) -> dict[str, str]:
        return {**dict.fromkeys(self.places, ""), **self.folders, **self.hub_ids}

    @cached_property
    def _spellings(self) -> dict[str, str]:
        return {s: name for path, name in self._names.items() for s in spellings(path)}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest = sorted(self._spellings, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest))
        return re.compile(f"{PATH_START}({paths}){PATH_END}({_REST_OF_PATH})")

    def _replacement(self, match: re.Match[str]) -> str:
        name, rest = self._spellings[match[1]], match[2]
        return f"{name}{rest}" if name else rest.rstrip("/").rpartition("/")[2] or "."


def public_names(
    references: Iterable[str],
    parents: Mapping[str, str] | None = None,
    places: Iterable[str | Path] = (),
    directory: str = "/",
) -> PublicNames:
    """Name models: by Hub id where that is known, else by the name of their folder.

    ``references`` has local models by absolute path; ``parents`` their Hub ids, by path
    or by the name of the folder: ConfigError where one is none of them or several.
    """
    paths = [part.path for r in references for part in Reference.parse(r).parts]
    local = list(dict.fromkeys(path for path in paths if is_local(path)))
    hub_ids = {path: hub_id for path in local if (hub_id := hub_snapshot(path))}
    hub_ids |= _answers(local, parents or {})
    folders: dict[str, str] = {}
    for path in local:
        if path not in hub_ids:
            folders[path] = _unused(Path(path).name or "model", folders.values())
    known = sorted({str(place) for place in places if len(Path(place).parts) > 1})
    return PublicNames(folders, hub_ids, known, directory)


def _answers(local: Sequence[str], parents: Mapping[str, str]) -> dict[str, str]:
    answers = {}
    for given, hub_id in parents.items():
        full = str(Path(given).expanduser().resolve())
        named = [path for path in local if Path(path).name == given]
        found = [full] if full in local else named
        if not found:
            names = {Path(path).name for path in local}
            known = nearest(given, names) if names else "all models are of the Hub"
            raise ConfigError(f"--parent: no local model is called {given!r}; {known}")
        if len(found) > 1:
            raise ConfigError(
                f"--parent: {given!r} may be any of {', '.join(found)}; give the path "
                f"of the one that is {hub_id}"
            )
        answers[found[0]] = hub_id
    return answers


def _unused(name: str, taken: Collection[str]) -> str:
    others = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], others) if free not in taken)


def is_local(reference: str) -> bool:
    """Whether a reference is a local path, by its form, not a Hub id."""
    return reference.startswith(("/", ".", "~")) or reference.count("/") > 1


def hub_snapshot(path: str) -> str | None:
    """Return the repository and commit of a folder of the Hub's cache."""
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


def spellings(path: str) -> set[str]:
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
