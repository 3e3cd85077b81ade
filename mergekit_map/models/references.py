"""References to models, ``base@revision+adapter``, and their places in a merge.

Models may lie elsewhere than a configuration says: ``--model-path NAME=FOLDER``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mergekit_map.config.yaml_file import KeyPath, MergeConfig, map_references
from mergekit_map.errors import ConfigError
from mergekit_map.types import NO_SINGLE_MODEL
from mergekit_map.utils.files import StrPath
from mergekit_map.utils.text import nearest

Setting = tuple[KeyPath, Any]
_RESERVED = {*NO_SINGLE_MODEL, "merge"}


@dataclass(frozen=True)
class ModelPart:
    """A model or an adapter: a folder, or a repository of the Hub."""

    path: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelPart:
        """Read ``path`` or ``path@revision``."""
        path, at, revision = text.partition("@")
        return cls(path, revision if at else None)

    def __str__(self) -> str:
        return self.path if self.revision is None else f"{self.path}@{self.revision}"

    @property
    def is_folder(self) -> bool:
        """Whether it lies on this machine."""
        return os.path.isdir(self.path)  # Path raises where a name is too long

    @property
    def names(self) -> list[str]:
        """Return the folders of the path; the last one is the model's name."""
        return self.path.rstrip("/").split("/")


@dataclass(frozen=True)
class Reference:
    """A model as configurations name it; mergekit's type would load torch."""

    parts: tuple[ModelPart, ...]

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read ``base`` or ``base+adapter``."""
        return cls(tuple(map(ModelPart.parse, text.split("+"))))

    @property
    def model(self) -> ModelPart:
        """Return the base model."""
        return self.parts[0]

    @property
    def adapter(self) -> ModelPart | None:
        """Return the adapter after the ``+``."""
        return self.parts[1] if len(self.parts) > 1 else None


def absolute_paths(merge: MergeConfig, directory: Path) -> MergeConfig:
    """Make local paths, which are relative to ``directory``, absolute."""

    def absolute(part: ModelPart) -> ModelPart:
        place = _place(os.path.join(directory, os.path.expanduser(part.path)))
        return replace(part, path=place) if os.path.isdir(place) else part

    return map_parts(merge, absolute)


def map_parts(
    merge: MergeConfig, change: Callable[[ModelPart], ModelPart]
) -> MergeConfig:
    """Replace every model and adapter that a configuration names."""

    def changed(reference: str) -> str:
        return "+".join(str(change(part)) for part in Reference.parse(reference).parts)

    return map_references(merge, changed)


def references_in(merge: MergeConfig) -> list[str]:
    """List every reference to a model in a configuration, in its order."""
    found: list[str] = []

    def note(reference: str) -> str:
        found.append(reference)
        return reference

    map_references(merge, note)
    return found


def referenced_models(merge: MergeConfig) -> dict[str, KeyPath]:
    """Map every model of a configuration, the base included, to its place."""
    places: dict[str, KeyPath] = {}
    if merge.get("base_model") is not None:
        places[str(merge["base_model"])] = ("base_model",)
    for key, entry, _ in walk_entries(merge):
        places.setdefault(str(entry["model"]), (*key, "model"))
    return places


def models_with_adapter(merge: MergeConfig) -> list[str]:
    """List the models with an adapter."""
    return [m for m in referenced_models(merge) if Reference.parse(m).adapter]


def walk_entries(
    merge: MergeConfig, key: KeyPath = (), outer: Setting | None = None
) -> Iterator[tuple[KeyPath, MergeConfig, Setting | None]]:
    """Yield the places of all model entries, and the weight set around each."""
    for index, entry in enumerate(merge.get("models") or ()):
        yield (*key, "models", index), entry, outer
    for index, part in enumerate(merge.get("slices") or ()):
        place = (*key, "slices", index)
        inner = weight_setting(part, place) or outer
        for number, entry in enumerate(part["sources"]):
            yield (*place, "sources", number), entry, inner
    for name, module in (merge.get("modules") or {}).items():
        place = (*key, "modules", name)
        yield from walk_entries(module, place, weight_setting(module, place) or outer)


def weight_setting(part: MergeConfig, key: KeyPath) -> Setting | None:
    """Return the weight that a part of a configuration sets, and its place."""
    parameters = part.get("parameters")
    weight = parameters.get("weight") if isinstance(parameters, dict) else None
    return None if weight is None else ((*key, "parameters", "weight"), weight)


def names_coefficient(weight: Any) -> bool:
    """Whether a weight is the name of a coefficient: text with a letter, no number."""
    if not isinstance(weight, str) or not any(map(str.isalpha, weight)):
        return False
    try:
        float(weight)
    except ValueError:
        return True
    return False


def short_names(models: list[str]) -> dict[str, str]:
    """Name models by the last part of their path, longer where that is not unique.

    No name equals that of an anchor, or the advice to use the merge.
    """
    names = {}
    paths = {model: Reference.parse(model).parts[-1].names for model in models}
    for model, parts in paths.items():
        name = _shortest_end(parts, paths.values(), 2 if parts[-1] in _RESERVED else 1)
        names[model] = f"{name}-model" if name in _RESERVED else name
    if len(set(names.values())) < len(names):
        return {m: f"./{m}" if m in _RESERVED else m for m in paths}
    return names


def _shortest_end(parts: list[str], paths: Iterable[list[str]], depth: int = 1) -> str:
    """Return as few last folders of a path as no other has, at least ``depth``."""
    others = [path for path in paths if path is not parts]
    while depth < len(parts) and any(o[-depth:] == parts[-depth:] for o in others):
        depth += 1
    return "/".join(parts[-depth:])


def with_places(written: MergeConfig, given: Mapping[str, StrPath]) -> MergeConfig:
    """Replace paths of models by the places given for them: folders, or ids of the Hub.

    A model's name is its path in the configuration, or the last folders of that; of
    several places the last one counts. Raises ConfigError if a name matches no model,
    or several, or two have one place.
    """
    references = map(Reference.parse, references_in(written))
    paths = [*dict.fromkeys(part.path for each in references for part in each.parts)]
    places = {_named(name, paths): _place(f) for name, f in given.items()}
    if len({places.get(path, path) for path in paths}) < len(paths):
        raise ConfigError("--model-path: two models have one folder; give each its own")

    def placed(part: ModelPart) -> ModelPart:
        return ModelPart.parse(places[part.path]) if part.path in places else part

    return map_parts(written, placed)


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Shorten paths to as few of their last folders as distinguish them."""
    folders = {path: ModelPart(path).names for path in paths}
    return {p: _shortest_end(parts, folders.values()) for p, parts in folders.items()}


def _named(name: str, paths: list[str]) -> str:
    wanted = ModelPart(name).names
    ends = [path for path in paths if ModelPart(path).names[-len(wanted) :] == wanted]
    found = [path for path in ends if ModelPart(path).names == wanted] or ends
    if len(found) == 1:
        return found[0]
    short = short_paths(paths)
    if not found:
        known = nearest(name, short.values())
        raise ConfigError(f"--model-path: no model is called {name!r}; {known}")
    names = " or ".join(repr(short[path]) for path in found)
    raise ConfigError(f"--model-path: {name!r} may be {names}; name more of its path")


def _place(folder: StrPath) -> str:
    """Return the real path of a folder, from here where a reference cannot hold it.

    There, "@" begins a revision, and "+" an adapter. Other places are of the Hub, or of
    nothing, which ``find_model`` says.
    """
    path = os.path.expanduser(folder)
    if not os.path.isdir(path):
        return str(folder)
    real = os.path.realpath(path)
    return f"./{os.path.relpath(path)}" if {"@", "+"} & {*real} else real
