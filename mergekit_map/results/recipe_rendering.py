"""Recipes of the points of a front, read and written without the models.

All recipes of a front are one configuration with different numbers in the places of the
coefficients, which the manifest lists. The recipe of a further point is made from that
of the first.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map._version import __version__
from mergekit_map.config.yaml_file import filled, yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.models.references import map_references
from mergekit_map.results.front import Front, recipe_name
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
        # Ends where it is nested too deep, of which a scan takes the square in time.
        list(yaml.compose_all(text, Loader=yaml.SafeLoader))
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
    text, coefficients = folder.read_recipe(index), front.points[index].coefficients
    identity = folder.of_points(front).read_manifest().identity
    try:
        *stages, config = documents(text)
        searched: Any = identity["configuration"]
        kept = {k: identity[k] for k in ("dtype", "out_dtype") if identity[k]}
        searched = {**searched, "merge_method": identity["method"], **kept}
        wanted = _filled(config if stages else searched, identity, coefficients)
        if _without_models(wanted) != _without_models(config):
            raise ValueError("its coefficients or settings are others")
    except DAMAGES as error:
        raise ArtifactError(
            f"{folder.recipe(index)} is not the recipe of point {index} that "
            f"front.json and manifest.json tell of: {error}; restore the files, or "
            "search again"
        ) from None
    return text


def _filled(
    config: Document, identity: Mapping[str, Any], coefficients: Mapping[str, float]
) -> Document:
    rest = identity.get("remainder", ())
    return filled(config, identity["coefficients"], rest, coefficients)


def _without_models(config: Document) -> Document:
    return dict(map_references(config, lambda _: ""))


def further_recipe(folder: RunFolder, front: Front) -> str:
    """Write the recipe of the last point of a front; raises as ``recipe_like``."""
    identity = folder.of_points(front).read_manifest().identity
    first, last = folder.recipe(0), len(front.points) - 1
    return recipe_like(folder.read_recipe(0), first, identity, front, last)


def recipe_like(
    text: str, path: Path, identity: Mapping[str, Any], front: Front, index: int
) -> str:
    """Write the recipe of a point from the text and path of the first one.

    Raises:
        ArtifactError: the identity or the text is damaged.
    """
    try:
        *stages, config = documents(text)
        config = _filled(config, identity, front.points[index].coefficients)
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
    for before, path in (
        (r"mergekit-\w+ ", folder.recipe(index)),
        (r".* --intermediate-dir ", folder.merged),
    ):
        words = rf"^(# Merge it with: {before})(?:'[^']*'|\S)+"
        named = shlex.quote(str(path)).replace("\\", r"\\")
        recipe = re.sub(words, rf"\g<1>{named}", recipe, flags=re.MULTILINE)
    return recipe


def recipe_comments(front: Front, index: int) -> list[str]:
    """Write the comments above a recipe, with the results of its point."""
    point = front.points[index]
    lines = [f"mergekit-map {__version__}, point {index} of the front."]
    for task, predicted in point.readings("predicted").items():
        unit, measured = front.tasks[task].unit, point.measured[task].value
        text = f"{task}: predicted {predicted.value:.6g} {unit}".rstrip()
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    return lines
