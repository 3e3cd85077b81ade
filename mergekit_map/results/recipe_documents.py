"""Recipes as they are read: documents of YAML, and whether they are of a point."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map.errors import ArtifactError
from mergekit_map.results.front import Front

Document: TypeAlias = dict[str, Any]
# What looking into something that somebody has changed may end in.
DAMAGES = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
_SEARCHED = "what is searched"  # stands for the number of a coefficient


def documents(text: str) -> list[Document]:
    """Read a recipe: a merge, after those that it merges, if any.

    Raises:
        ValueError: it is none.
    """
    found = plain_documents(text)
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError("it is no merge configuration")
    return found


def plain_documents(text: str) -> list[Any]:
    """Read documents of YAML in which nothing stands for something else.

    Raises:
        ValueError: the text is no such YAML.
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
    """Refuse a text that is not the recipe of a point, wherever its models lie.

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
    """Take what is searched out of a recipe, and out of what it should be.

    Raises:
        ValueError: another number stands there.
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
    """Mark what is searched, making what is missing on the way."""
    for part, following in itertools.pairwise(place):
        if isinstance(part, str) and config.get(part) is None:
            config[part] = [] if isinstance(following, int) else {}
        config = config[part]
    config[place[-1]] = _SEARCHED


def _same(wanted: Any, given: Any, models: Mapping[str, Any]) -> bool:
    """Compare two configurations; a model may lie anywhere."""
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
