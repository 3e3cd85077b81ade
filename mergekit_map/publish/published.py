"""What a card gets when it goes to the Hub; what was written into it by hand stays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from huggingface_hub import ModelCard

from mergekit_map.errors import ArtifactError
from mergekit_map.publish.card_text import (
    MODELS,
    RECIPE,
    SEARCH,
    escaped,
    models_section,
    recipe_section,
    search_section,
    section,
)
from mergekit_map.publish.licences import Licence
from mergekit_map.publish.public_names import Configs, PublicNames


@dataclass(frozen=True)
class Publication:
    """What is settled about a card when it goes to the Hub."""

    name: str  # of the repository
    licence: Licence
    configs: Configs  # the recipe
    names: PublicNames
    renamed: bool  # whether models are called otherwise than in the card
    with_search: bool  # whether the folder of the search goes along


def read_card(folder: Path) -> ModelCard:
    """Read ``README.md`` of a merged checkpoint.

    Raises:
        ArtifactError: it is not there, or its metadata cannot be read.
    """
    path = folder / "README.md"
    try:
        return ModelCard(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ArtifactError(
            f"{folder} has no {path.name}, which the Hub shows; name the folder that "
            "mergekit-map merge wrote, or merge again"
        ) from None
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise ArtifactError(
            f"{path}: the metadata of the model card cannot be read: {error}; repair "
            "it, or merge again"
        ) from None


def published_card(card: ModelCard, publication: Publication) -> str:
    """Complete a card for the Hub; what was written into it by hand stays.

    The sections on models and recipe are written anew where models are called
    otherwise than before.
    """
    card = ModelCard(card.content)
    configs, names = publication.configs, publication.names
    text, data = card.text, card.data
    if data.get("eval_results"):
        heading = f"# {escaped(str(data['model_name']))}\n"
        text = text.replace(heading, f"# {escaped(publication.name)}\n", 1)
        data["model_name"] = publication.name
    for key, value in publication.licence.metadata().items():
        data[key] = value
    if publication.renamed:
        known = data.get("base_model", [])
        known = [known] if isinstance(known, str) else known
        parents = dict.fromkeys([*known, *names.hub_parents(configs)])
        data["base_model"] = list(parents)
        text = _with_section(text, MODELS, models_section(configs, names))
        text = _with_section(text, RECIPE, recipe_section(configs, names))
    text = _without_section(text, SEARCH)
    if publication.with_search:
        text = f"{text.rstrip()}\n\n{section(SEARCH, search_section())}"
    return f"---\n{data.to_yaml()}\n---\n{text}"


def _with_section(text: str, heading: str, body: str) -> str:
    """Replace a section of a text, if it is there."""
    return _pattern(heading).sub(lambda _: f"{section(heading, body)}\n", text)


def _without_section(text: str, heading: str) -> str:
    return _pattern(heading).sub("", text)


def _pattern(heading: str) -> re.Pattern[str]:
    return re.compile(rf"^## {heading}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
