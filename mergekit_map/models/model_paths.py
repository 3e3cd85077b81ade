"""Models that lie elsewhere than a configuration says: ``--model-path NAME=FOLDER``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from mergekit_map.config.problems import Problem
from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.errors import ConfigError, nearest
from mergekit_map.models.files import NO_FOLDER
from mergekit_map.models.references import (
    NO_MODELS,
    ModelPart,
    Reference,
    map_parts,
    parts_in,
    referenced_models,
    references_in,
    shortest_end,
)
from mergekit_map.utils.files import StrPath

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(@[\w./-]+)?")


def with_places(
    written: MergeConfig, given: Mapping[str, StrPath]
) -> tuple[MergeConfig, dict[str, str]]:
    """Replace paths of models by the places given for them.

    Args:
        written: A merge configuration.
        given: A folder, or an id of the Hub, by the name of a model: its path as in the
            configuration, or the last folders of it. The last place of a model counts.

    Returns the configuration, and the places by the path in the configuration.

    Raises:
        ConfigError: a name matches no model, or several; a folder does not exist.
    """
    paths = paths_of(written)
    places = {_named(name, paths): _place(name, f) for name, f in given.items()}
    for path, place in places.items():
        twice = [other for other in paths if places.get(other, other) == place]
        if len(twice) > 1 and path in twice:
            models = " and ".join(short_paths(paths)[other] for other in twice)
            raise ConfigError(f"--model-path: {place} is given for {models}")

    def placed(part: ModelPart) -> ModelPart:
        if part.path not in places:
            return part
        return ModelPart.parse(places[part.path])

    return map_parts(written, placed), places


def written_parts(merge: MergeConfig, written: MergeConfig) -> dict[str, str]:
    """Map present models and adapters to those in the original configuration."""
    pairs = zip(parts_in(merge), parts_in(written), strict=True)
    return {str(new): str(old) for new, old in pairs if new != old}


def written_names(merge: MergeConfig, moved: Mapping[str, str]) -> dict[str, str]:
    """Map references with moved parts to those in the original configuration."""
    names = {
        reference: "+".join(
            moved.get(str(part), str(part)) for part in Reference.parse(reference).parts
        )
        for reference in references_in(merge)
    }
    return {new: old for new, old in names.items() if new != old}


def missing_models(
    merge: MergeConfig, problems: Iterable[Problem], places: Mapping[str, str]
) -> list[str]:
    """Return the models that were not found, named as ``with_places`` expects."""
    given = {place: path for path, place in places.items()}
    short = short_paths(given.get(path, path) for path in paths_of(merge))
    keys = {p.key for p in problems if NO_FOLDER in p.message}
    paths = (
        given.get(part.path, part.path)
        for reference, key in referenced_models(merge).items()
        if key in keys
        for part in Reference.parse(reference).parts
        if not part.is_folder
    )
    # A folder that is called as words of mergekit are cannot be given by name.
    return [short[path] for path in paths if path in short]


def paths_of(merge: MergeConfig) -> list[str]:
    """List the folders and repositories that a configuration names, each once."""
    paths = dict.fromkeys(part.path for part in parts_in(merge))
    return [path for path in paths if path not in NO_MODELS]


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Shorten paths to as few of their last folders as distinguish them."""
    folders = {path: ModelPart(path).names for path in paths}
    return {
        path: shortest_end(parts, [p for o, p in folders.items() if o != path])
        for path, parts in folders.items()
    }


def _named(name: str, paths: list[str]) -> str:
    wanted = ModelPart(name).names
    exact = [path for path in paths if ModelPart(path).names == wanted]
    ends = [path for path in paths if ModelPart(path).names[-len(wanted) :] == wanted]
    found = exact or ends
    if not found:
        known = nearest(name, short_paths(paths).values())
        raise ConfigError(f"--model-path: no model is called {name!r}; {known}")
    if len(found) > 1:
        short = short_paths(paths)
        names = " or ".join(repr(short[path]) for path in found)
        raise ConfigError(
            f"--model-path: {name!r} may be {names}; name more of its path"
        )
    return found[0]


def _place(name: str, folder: StrPath) -> str:
    path = Path(folder).expanduser()
    if path.is_dir():
        full = str(path.resolve())
        if "+" in full or "@" in full:
            raise ConfigError(
                f"--model-path {name}={folder}: mergekit takes '+' and '@' in a path "
                "for an adapter and a revision; rename the folder"
            )
        return full
    if _HUB_ID.fullmatch(str(folder)):
        return str(folder)
    raise ConfigError(
        f"--model-path {name}={folder}: there is no such folder, and it is not the id "
        "of a Hub repository; give the folder that holds its config.json"
    )
