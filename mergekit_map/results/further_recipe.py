"""The recipe of a further point of a front, without the models: like its neighbours'.

All recipes of a front are one configuration with other numbers in the places of the
coefficients, which the manifest lists.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Front, recipe_name
from mergekit_map.results.merge_order import pairs
from mergekit_map.results.recipe_documents import (
    DAMAGES,
    documents,
    refuse_other_recipe,
)
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.version import __version__


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
        ArtifactError: it is not there, damaged, or of another merge.
    """
    text = folder.read_recipe(index)
    identity = _identity(folder, front)
    refuse_other_recipe(text, folder.recipe(index), identity, front, index)
    return text


def recipe_like(
    text: str, place: Path, identity: Mapping[str, Any], front: Front, index: int
) -> str:
    """Write the recipe of a point like that of the first, whose text and place it is.

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
    """Let the command in a recipe name the run folder as it is now."""

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
    """Say above a recipe what is known of its point."""
    point = front.points[index]
    lines = [f"mergekit-map {__version__}, point {index} of {len(front.points)}."]
    for task, predicted in point.readings("predicted").items():
        text = (
            f"{task}: predicted {predicted.value:.6g} {front.tasks[task].unit}".rstrip()
        )
        measured = point.measured[task].value
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    return lines


def _identity(folder: RunFolder, front: Front) -> Mapping[str, Any]:
    """Find what a merge with the front's coefficients is.

    Where nested MAP merges checkpoints these are the coefficients of the last pair.
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
    """Put coefficients into their places; what is left of 1 into the remainder's."""
    rest = 1.0
    for name, places in _places(identity).items():
        rest -= coefficients[name]
        for place in places:
            _put(config, place, coefficients[name])
    for place in identity.get("remainder", ()):
        _put(config, place, rest)


def _put(config: Any, place: Sequence[Any], value: float) -> None:
    for part in place[:-1]:
        config = config[part]
    if isinstance(config[place[-1]], dict | list | str):
        raise ValueError(f"no number at {list(place)}")
    config[place[-1]] = value
