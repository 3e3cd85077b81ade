"""Recipes of the points of a front, read and written without the models.

All recipes of a front are one configuration with different numbers in the places of the
coefficients, which the manifest lists. The recipe of a further point is made from that
of the first.
"""

from __future__ import annotations

import copy
import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map._version import __version__
from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Front, pairs, recipe_name
from mergekit_map.results.run_folder import RunFolder

Document: TypeAlias = dict[str, Any]
# What looking into something that somebody has changed may end in.
DAMAGES = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def documents(text: str) -> list[Document]:
    """Read a recipe: a merge, after the merges that it needs.

    Raises:
        ValueError: the text is no recipe, or holds anchors, aliases or tags.
    """
    try:
        # What stands for something else could grow without end when it is copied.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("an alias in it stands for something else")
        found = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError("it is no merge configuration")
    return found


def recipe_of(folder: RunFolder, front: Front, index: int) -> str:
    """Read the recipe of a point; the paths of its models may differ.

    Raises:
        ArtifactError: it is missing, damaged, or of other coefficients or settings.
    """
    text, identity = folder.read_recipe(index), _identity(folder, front)
    try:
        *stages, config = documents(text)
        wanted = copy.deepcopy(identity["configuration"])
        wanted["merge_method"] = identity["method"]
        kept = ("dtype", "out_dtype")
        wanted |= {key: identity[key] for key in kept if identity[key]}
        for place, number in _numbers(identity, front.points[index].coefficients):
            if (found := _at(config, place)) != number:
                key = ".".join(map(str, place))
                raise ValueError(f"{key} is {found!r}, and {number} in its front")
            _put(wanted, place, number)
        if not stages and not _same(wanted, config, identity["models"]):
            raise ValueError("its settings are not those that were searched")
    except DAMAGES as error:
        raise ArtifactError(
            f"{folder.recipe(index)} is not the recipe of point {index} that "
            f"front.json and manifest.json tell of: {error}; restore the files, or "
            "search again"
        ) from None
    return text


def _numbers(
    identity: Mapping[str, Any], coefficients: Mapping[str, float]
) -> Iterator[tuple[Sequence[Any], float]]:
    """Yield each place with its number: 1 minus the sum of all at the remainder's."""
    rest = 1.0
    for name, places in identity["coefficients"].items():
        rest -= coefficients[name]
        yield from ((place, coefficients[name]) for place in places)
    yield from ((place, rest) for place in identity.get("remainder", ()))


def _at(config: Any, place: Sequence[Any]) -> Any:
    try:
        for part in place:
            config = config[part]
    except (LookupError, TypeError):
        raise ValueError(f"{'.'.join(map(str, place))} is not there") from None
    return config


def _put(config: Any, place: Sequence[Any], number: float) -> None:
    """Set a number; create the keys that are missing."""
    for part, following in itertools.pairwise(place):
        if isinstance(part, str) and config.get(part) is None:
            config[part] = [] if isinstance(following, int) else {}
        config = config[part]
    config[place[-1]] = number


def _same(wanted: Any, given: Any, models: Mapping[str, Any]) -> bool:
    """Whether two configurations are equal except for the paths of models."""
    match wanted, given:
        case dict(), dict():
            return wanted.keys() == given.keys() and all(
                _same(value, given[key], models) for key, value in wanted.items()
            )
        case list(), list():
            return len(wanted) == len(given) and all(
                _same(one, other, models)
                for one, other in zip(wanted, given, strict=True)
            )
        case str(), str() if wanted in models:
            return True
    return bool(wanted == given)


def further_recipe(folder: RunFolder, front: Front) -> str:
    """Write the recipe of the last point of a front, from that of the first.

    Raises:
        ArtifactError: the manifest or the recipe is damaged.
    """
    text = folder.read_recipe(0)
    index, identity = len(front.points) - 1, _identity(folder, front)
    return recipe_like(text, folder.recipe(0), identity, front, index)


def recipe_like(
    text: str, path: Path, identity: Mapping[str, Any], front: Front, index: int
) -> str:
    """Write the recipe of a point from the text and path of the first one.

    Raises:
        ArtifactError: the identity or the text is damaged.
    """
    try:
        *stages, config = documents(text)
        for place, number in _numbers(identity, front.points[index].coefficients):
            if isinstance(_at(config, place), dict | list | str):
                raise ValueError(f"no number at {list(place)}")
            _put(config, place, number)
    except DAMAGES as error:
        raise ArtifactError(
            f"{path} is no recipe of this search ({error}), so point {index} cannot "
            "be written like it; restore the file, or search again"
        ) from None
    command = re.search(r"^# (Merge it with: .*)$", text, re.MULTILINE)
    lines = recipe_comments(front, index)
    if command:
        lines.append(command[1].replace(recipe_name(0), recipe_name(index)))
    return yaml_text([*stages, config], lines)


def naming_its_place(recipe: str, folder: RunFolder, index: int) -> str:
    """Update the run folder's path in the command of a recipe."""

    def present(line: re.Match[str]) -> str:
        try:
            words = shlex.split(line[2])
        except ValueError:
            return line[0]
        if words[:1] not in (["mergekit-yaml"], ["mergekit-multi"]) or len(words) < 2:
            return line[0]
        words[1] = str(folder.recipe(index))
        if "--intermediate-dir" in words[:-1]:
            words[words.index("--intermediate-dir") + 1] = str(folder.merged)
        return f"{line[1]}{shlex.join(words)}"

    return re.sub(r"^(# Merge it with: )(.*)$", present, recipe, flags=re.MULTILINE)


def recipe_comments(front: Front, index: int) -> list[str]:
    """Write the comments above a recipe, with the results of its point."""
    point = front.points[index]
    lines = [f"mergekit-map {__version__}, point {index} of the front."]
    for task, predicted in point.readings("predicted").items():
        text = (
            f"{task}: predicted {predicted.value:.6g} {front.tasks[task].unit}".rstrip()
        )
        measured = point.measured[task].value
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    return lines


def _identity(folder: RunFolder, front: Front) -> Mapping[str, Any]:
    """Return the identity of the merges of a front.

    Where nested MAP merges checkpoints, coefficients are those of the last pair.
    """
    identity: Mapping[str, Any] = folder.read_manifest().identity
    if front.order is not None and set(identity["coefficients"]) != set(
        front.coefficients
    ):
        last = folder.pair(len(pairs(front.order)))
        identity = last.read_manifest().identity
    return identity
