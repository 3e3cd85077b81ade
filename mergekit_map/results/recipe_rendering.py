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
from collections.abc import Mapping, Sequence
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
_SEARCHED = "what is searched"  # stands for the number of a coefficient


def documents(text: str) -> list[Document]:
    """Read a recipe: a merge, after the merges that it needs.

    Raises:
        ValueError: the text is no recipe.
    """
    found = plain_documents(text)
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError("it is no merge configuration")
    return found


def plain_documents(text: str) -> list[Any]:
    """Read YAML documents without anchors, aliases or tags.

    Raises:
        ValueError: the text is not such YAML.
    """
    try:
        # What stands for something else could grow without end when it is copied.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("an alias in it stands for something else")
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def refuse_other_recipe(
    text: str, place: Path, identity: Mapping[str, Any], front: Front, index: int
) -> None:
    """Raise for a text that is not the recipe of a point; paths of models may differ.

    Raises:
        ArtifactError: it is of other coefficients or settings, or damaged.
    """
    try:
        *stages, config = documents(text)
        coefficients = front.points[index].coefficients
        given, wanted = _without_numbers(config, identity, coefficients)
        if not stages and not _same(wanted, given, identity["models"]):
            raise ValueError("its settings are not those that were searched")
    except DAMAGES as error:
        raise ArtifactError(
            f"{place} is not the recipe of point {index} that front.json and "
            f"manifest.json tell of: {error}; restore the files, or search again"
        ) from None


def _without_numbers(
    config: Document, identity: Mapping[str, Any], coefficients: Mapping[str, float]
) -> tuple[Document, Document]:
    """Remove the coefficients from a recipe, and from the expected one.

    Raises:
        ValueError: a number differs.
    """
    wanted = copy.deepcopy(identity["configuration"])
    wanted["merge_method"] = identity["method"]
    wanted |= {key: identity[key] for key in ("dtype", "out_dtype") if identity[key]}
    rest = 1.0
    for name, places in identity["coefficients"].items():
        rest -= coefficients[name]
        for place in places:
            _take(config, place, coefficients[name])
            _put(wanted, place)
    for place in identity.get("remainder", ()):
        _take(config, place, rest)
        _put(wanted, place)
    return config, wanted


def _take(config: Any, place: Sequence[Any], number: float) -> None:
    key = ".".join(map(str, place))
    try:
        for part in place[:-1]:
            config = config[part]
        found = config[place[-1]]
    except (LookupError, TypeError):
        raise ValueError(f"{key} is not there") from None
    if found != number:
        raise ValueError(f"{key} is {found!r}, and {number} in its front")
    config[place[-1]] = _SEARCHED


def _put(config: Any, place: Sequence[Any]) -> None:
    """Mark the place of a coefficient; create the keys that are missing."""
    for part, following in itertools.pairwise(place):
        if isinstance(part, str) and config.get(part) is None:
            config[part] = [] if isinstance(following, int) else {}
        config = config[part]
    config[place[-1]] = _SEARCHED


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


def recipe_of(folder: RunFolder, front: Front, index: int) -> str:
    """Read the recipe of a point.

    Raises:
        ArtifactError: it is missing, damaged, or of another merge.
    """
    text = folder.read_recipe(index)
    identity = _identity(folder, front)
    refuse_other_recipe(text, folder.recipe(index), identity, front, index)
    return text


def recipe_like(
    text: str, place: Path, identity: Mapping[str, Any], front: Front, index: int
) -> str:
    """Write the recipe of a point from the text and path of the first one.

    Raises:
        ArtifactError: the identity or the text is damaged.
    """
    try:
        *stages, config = documents(text)
        _fill(config, identity, front.points[index].coefficients)
    except DAMAGES as error:
        raise ArtifactError(
            f"{place} is no recipe of this search ({error}), so point {index} cannot "
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
    identity = folder.read_manifest().identity
    if front.order is not None and set(_places(identity)) != set(front.coefficients):
        last = folder.pair(len(pairs(front.order)))
        identity = last.read_manifest().identity
    return identity


def _places(identity: Mapping[str, Any]) -> Mapping[str, Sequence[Sequence[Any]]]:
    places: Mapping[str, Sequence[Sequence[Any]]] = identity["coefficients"]
    return places


def _fill(
    config: Any, identity: Mapping[str, Any], coefficients: Mapping[str, float]
) -> None:
    """Set the coefficients at their places; 1 minus their sum at the remainder's."""
    rest = 1.0
    for name, places in _places(identity).items():
        rest -= coefficients[name]
        for place in places:
            _set_value(config, place, coefficients[name])
    for place in identity.get("remainder", ()):
        _set_value(config, place, rest)


def _set_value(config: Any, place: Sequence[Any], value: float) -> None:
    for part in place[:-1]:
        config = config[part]
    if isinstance(config[place[-1]], dict | list | str):
        raise ValueError(f"no number at {list(place)}")
    config[place[-1]] = value
