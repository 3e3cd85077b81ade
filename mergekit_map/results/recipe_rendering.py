"""Recipes of the points of a front, written without the models.

All recipes of a front are one configuration with different numbers in the places of the
coefficients, which the manifest lists. The recipe of each point is made from that of
the first.
"""

from __future__ import annotations

import re
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
    """Write the recipe of a point from that of the first; its models may have moved.

    Raises:
        ArtifactError: that of the first is damaged, or none of a merge of the manifest.
    """
    identity = folder.of_points(front).read_manifest().identity
    planned = folder.read_plan().recipe if folder.unfinished else None
    source = folder.plan if planned else folder.recipe(0)
    text = planned or folder.read_recipe(0)
    try:
        *stages, config = documents(text)
        dtypes = {"dtype": identity.dtype, "out_dtype": identity.out_dtype}
        searched = {**identity.configuration, "merge_method": identity.method}
        searched |= {key: name for key, name in dtypes.items() if name}
        places, weights = identity.coefficients, front.points[index].coefficients
        config, known = (
            filled(one, places, identity.remainder, weights)
            for one in (config, searched)
        )
        if map_references(config, _no_model) != map_references(known, _no_model):
            raise ValueError("its settings are others")
    except DAMAGES as error:
        raise ArtifactError(
            f"{source} holds no recipe of this search ({error}), so point "
            f"{index} cannot be written like it; restore the file, or search again"
        ) from None
    lines = recipe_comments(front, index)
    if command := re.search(r"^# (Merge it with: .*)$", text, re.MULTILINE):
        lines.append(command[1].replace(recipe_name(0), recipe_name(index)))
    return yaml_text([*stages, config], lines)


def _no_model(_: str) -> str:
    return ""


def recipe_comments(front: Front, index: int) -> list[str]:
    """Write the comments above a recipe, with the results of its point."""
    point = front.points[index]
    lines = [f"mergekit-map {__version__}, point {index} of the front."]
    for task, predicted in point.readings("predicted").items():
        unit, measured = front.tasks[task].unit, point.measured[task].value
        text = f"{task}: predicted {predicted.value:.6g} {unit}".rstrip()
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    return lines
