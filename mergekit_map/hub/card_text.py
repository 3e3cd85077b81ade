"""The sections of a model card as Markdown, and their changes for the Hub.

Text from outside (models, tasks, sentences with their names) is escaped. It is shown as
written: it is no markup, and it ends neither a table nor a block.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

import yaml
from huggingface_hub import ModelCard

from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.markdown import (
    escaped,
    fenced,
    renamed_usage,
    section,
    task_heading,
    written_table,
)
from mergekit_map.hub.metadata import Licence, Licences
from mergekit_map.hub.sanitize import Configs, PublicNames, is_local, models_of
from mergekit_map.optimize.selection import spread
from mergekit_map.results.front import Front, Kind, Merge
from mergekit_map.results.narrative import warnings_in_words

PICTURE = "front.png"
RECIPE_FILE = "mergekit_config.yml"
RUN_FOLDER = "mergekit-map"  # where the folder of the search lies in a repository
_N_SHOWN = 20  # points of the front as predicted; the run folder has all

# Headings of the sections that may change when a card goes to the Hub.
MODELS, RECIPE, SEARCH, USE = "Models", "Recipe", "The search", "How to use it"


def models_section(configs: Configs, names: PublicNames, licences: Licences) -> str:
    """Return the section on the models, with links to the Hub and known licences.

    ``licences`` goes by the public names of models and adapters.
    """
    bases = {config.get("base_model") for config in configs}
    lines = []
    for model in models_of(configs):
        parts = model.split("+")
        line = " + ".join(_placed(part, names) for part in parts)
        line += ", the base model" if model in bases else ""
        known = [licences.get(names.reference(part)) for part in parts]
        stated = dict.fromkeys(escaped(str(licence)) for licence in known if licence)
        lines.append(
            f"- {line}" + (f"; licence: {', '.join(stated)}" if stated else "")
        )
    return "\n".join(lines)


def named_link(part: str, names: PublicNames) -> str:
    """Return the name of a model or adapter, with a link if the Hub has it."""
    name, hub_id = escaped(names.reference(part)), names.hub_id(part)
    if hub_id is None:
        return name
    return f"[{name}](https://huggingface.co/{urllib.parse.quote(hub_id)})"


def front_section(front: Front) -> str:
    """Return the section on the front: picture, measured values, predicted points."""
    tasks = list(front.tasks)
    header = [
        "merge",
        *front.coefficients,
        *(task_heading(front, task) for task in tasks),
    ]
    measured = [
        _merge_row(anchor.label or "", anchor, front, "measured")
        for anchor in front.anchors
    ]
    predicted = []
    shown = spread(front.utilities(front.points, "predicted"), _N_SHOWN)
    for index, point in enumerate(front.points):
        label = f"{index} (this one)" if index == front.selected else str(index)
        label += ", recommended" if index in front.recommended else ""
        if index in shown or index == front.selected:
            predicted.append(_merge_row(label, point, front, "predicted"))
        if any(point.is_measured(task) for task in tasks):
            measured.append(_merge_row(label, point, front, "measured"))
    meaning = ", recommended where no measured merge is better on every task"
    recommended = meaning if front.recommended else ""
    return "\n\n".join(
        [
            escaped(front.reason),
            *map(escaped, warnings_in_words(front)),
            f"![Predicted and measured merges, task against task]({PICTURE})",
            f"As measured; a number is a point of the front{recommended}:",
            written_table(header, measured),
            "<details><summary>The front, as predicted</summary>",
            written_table(header, predicted),
            "</details>",
        ]
    )


def recipe_section(configs: Configs, names: PublicNames) -> str:
    """Return the section on the recipe, with the public names of its models."""
    return fenced(yaml_text([names.config(config) for config in configs]), "yaml")


def reproduce_section(command: str) -> str:
    """Return the section on how to reproduce the checkpoint."""
    words = [Path(w).name if is_local(w) else w for w in shlex.split(command)]
    version = importlib.metadata.version("mergekit")
    commands = f"pip install mergekit=={version}\n{shlex.join(words)}\n"
    text = (
        f"`{RECIPE_FILE}` is the recipe above. On the same kind of device, and with "
        "local models in folders of their names, this writes the same tensors, bit for "
        "bit:"
    )
    return f"{text}\n\n{fenced(commands, 'sh')}"


def search_section() -> str:
    """Return the section on the folder of the search, where it is uploaded."""
    commands = (
        f"mergekit-map select {RUN_FOLDER} --knee  # another point of the front\n"
        f"mergekit-map search {RUN_FOLDER}/config.yml again  # all of it once more\n"
    )
    return (
        f"`{RUN_FOLDER}/` holds the search: its configuration, every measurement, the "
        "surrogates, the front, and a recipe for each of its points. With mergekit-map "
        "choosing another point costs nothing; own texts that were measured on are not "
        "included.\n\n"
        f"{fenced(commands, 'sh')}"
    )


@dataclass(frozen=True)
class Publication:
    """The decisions about a card for the Hub."""

    repo: str  # of the repository, with its owner
    folder: str  # its name, which a card is called by before
    licence: Licence
    licences: Licences  # of the parents, by public name
    configs: Configs  # the recipe
    names: PublicNames
    renamed: bool  # whether models are called otherwise than in the card
    with_search: bool  # whether the folder of the search goes along

    @property
    def name(self) -> str:
        """Return the name of the repository, which is then that of the card."""
        return self.repo.rpartition("/")[2]


def read_card(folder: Path) -> ModelCard:
    """Read ``README.md`` of a merged checkpoint."""
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
    """Complete a card for the Hub; keep the text added by hand.

    The sections on models and recipe are rewritten where names of models change.
    """
    card = ModelCard(card.content)
    configs, names = publication.configs, publication.names
    licences = publication.licences
    text, data = renamed_usage(card.text, publication.repo), card.data
    known_as = [publication.folder, str(data.get("model_name"))]
    for name in known_as:
        heading = f"# {escaped(name)}\n"
        if text.lstrip().startswith(heading):
            text = text.replace(heading, f"# {escaped(publication.name)}\n", 1)
    if data.get("eval_results"):
        data["model_name"] = publication.name
    vars(data).update(publication.licence.metadata())
    if publication.renamed:
        known = data.get("base_model", [])
        known = [known] if isinstance(known, str) else known
        parents = dict.fromkeys([*known, *names.hub_parents(configs)])
        data["base_model"] = list(parents)
        text = _with_section(text, MODELS, models_section(configs, names, licences))
        text = _with_section(text, RECIPE, recipe_section(configs, names))
    text = _pattern(SEARCH).sub("", text)
    if publication.with_search:
        text = f"{text.rstrip()}\n\n{section(SEARCH, search_section())}"
    return f"---\n{data.to_yaml()}\n---\n{text}"


def _placed(part: str, names: PublicNames) -> str:
    here = names.hub_id(part) is None
    return (
        f"{named_link(part, names)} (a local model)"
        if here
        else named_link(part, names)
    )


def _merge_row(label: str, merge: Merge, front: Front, kind: Kind) -> list[str]:
    weights = [merge.coefficients.get(name) for name in front.coefficients]
    cells = ["-" if weight is None else f"{weight:.4g}" for weight in weights]
    return [label, *cells, *(_cell(merge, kind, task) for task in front.tasks)]


def _cell(merge: Merge, kind: Kind, task: str) -> str:
    reading = merge.readings(kind)[task]
    return "not measured" if reading.value is None else str(reading)


def _with_section(text: str, heading: str, body: str) -> str:
    return _pattern(heading).sub(lambda _: f"{section(heading, body)}\n", text)


def _pattern(heading: str) -> re.Pattern[str]:
    return re.compile(rf"^## {heading}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
