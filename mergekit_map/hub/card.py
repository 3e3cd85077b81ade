"""The model card of a merged checkpoint, and its changes for the Hub.

Text from outside (models, tasks, sentences with their names) is escaped: it is no
markup, and it ends neither a table nor a block.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from mergekit_map.config.tasks import TaskSpec
from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.markdown import (
    bullets,
    escaped,
    fenced,
    folded,
    renamed_usage,
    section,
    table,
    usage,
)
from mergekit_map.hub.metadata import (
    Licence,
    Licences,
    common_licence,
    model_index,
    parent_licences,
)
from mergekit_map.hub.sanitize import (
    RUN_FOLDER,
    Configs,
    PublicNames,
    is_local,
    models_of,
    public_names,
)
from mergekit_map.report.plots import plot_front
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front
from mergekit_map.results.sentences import merge_name

CARD = "README.md"
RECIPE_FILE = "mergekit_config.yml"
PICTURE = "front.png"
# Headings of the sections that change when a card goes to the Hub.
_PARENTS, _RECIPE, _SEARCH = "Models", "Recipe", "The search"
# The answer speaks of a merge and of files of the run folder.
_WORDS = {
    "The chosen merge": "This model",
    "the chosen merge": "this model",
    "chosen merge": "this model",
    "the merge's gain": "gain of this model",
    " (`recipes/soup.yml`)": "",
}
_CAUSAL = ("ForCausalLM", "LMHeadModel")  # how architectures of such models end

_ARXIV = {
    "linear": ("linear", ["2203.05482"]),
    "task_arithmetic": ("task arithmetic", ["2212.04089"]),
    "ties": ("TIES", ["2306.01708"]),
    "dare_linear": ("DARE", ["2311.03099"]),
    "dare_ties": ("DARE-TIES", ["2311.03099", "2306.01708"]),
    "della": ("DELLA", ["2406.11617"]),
    "della_linear": ("linear DELLA", ["2406.11617"]),
    "breadcrumbs": ("Model Breadcrumbs", ["2312.06795"]),
    "breadcrumbs_ties": ("Model Breadcrumbs with TIES", ["2312.06795", "2306.01708"]),
}
_BIBTEX = """\
@inproceedings{li2025map,
  title = {{MAP}: Low-Compute Model Merging with Amortized {Pareto} Fronts via \
Quadratic Approximation},
  author = {Li, Lu and Zhang, Tianyu and Bu, Zhiqi and Wang, Suyuchen and He, Huan and \
Fu, Jie and Wu, Yonghui and Bian, Jiang and Chen, Yong and Bengio, Yoshua},
  booktitle = {International Conference on Learning Representations},
  year = {2025}
}
"""


@dataclass(frozen=True, eq=False)
class MergeRecord:
    """The facts about a merge for its card."""

    name: str
    recipe: str  # mergekit YAML; a document for each stage
    command: str  # carries it out with mergekit alone
    front: Front  # the point that was merged is the chosen one
    tasks: Mapping[str, TaskSpec]
    difference: str = ""  # between what was searched and what was written, in words


def write_card(folder: Path, record: MergeRecord) -> None:
    """Write ``README.md`` and its picture into the folder of a checkpoint."""
    configs = list(yaml.safe_load_all(record.recipe))
    names = public_names(models_of(configs))
    content = names.content(record.front.model_dump(mode="json"))
    front = Front.model_validate_json(json.dumps(content))
    licences = parent_licences(configs, names)
    pipeline_tag = _pipeline_tag(folder)
    results = model_index(record.tasks, front.chosen.measured, pipeline_tag or "other")
    data = ModelCardData(
        base_model=names.hub_parents(configs) or None,
        base_model_relation="merge",
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=["mergekit", "merge", "mergekit-map"],
        model_name=record.name if results else None,
        eval_results=results or None,
    )
    licence = common_licence(licences)
    vars(data).update(licence.metadata() if licence else {})
    body = [
        f"# {escaped(record.name)}\n",
        f"{_answer_section(front, record.difference)}\n",
        f"{_made(front, configs)}\n",
    ]
    if pipeline_tag:
        body.append(section("How to use it", usage(folder, record.name)))
    body += [
        section(_PARENTS, _parents_section(configs, names, licences)),
        section(
            _RECIPE, _recipe_section(record.command, public_recipe(configs, names))
        ),
        folded("BibTeX", fenced(_BIBTEX, "bibtex")) + "\n",
    ]
    plot_front(front, folder / PICTURE)
    card = f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(body)
    (folder / CARD).write_text(card, encoding="utf-8")


def _pipeline_tag(folder: Path) -> str | None:
    path = folder / "config.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8")).get("architectures") or ()
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; merge again") from None
    causal = any(str(name).endswith(_CAUSAL) for name in names)
    return "text-generation" if causal else None


def _answer_section(front: Front, difference: str) -> str:
    """Return the answer of the search, as the terminal begins with it."""
    found, merge = answer(front), merge_name(front, front.chosen)
    words = {f"The {merge}": "This model", f"the {merge}": "this model", **_WORDS}

    def own(text: str) -> str:
        for word, public in words.items():
            text = text.replace(word, public)
        return text

    rows = (map(own, row) for row in found.table.rows)
    notes = [escaped(own(text)) for text in (*found.findings, difference) if text]
    details = bullets(escaped(own(text)) for text in found.details)
    parts = [
        f"**{escaped(own(found.headline))}**",
        table([*map(own, found.table.headings)], rows),
        escaped(found.sample),
        bullets(notes),
        f"![Merges of the search, task against task]({PICTURE})",
        folded("More on the front", details) if details else "",
    ]
    return "\n\n".join(filter(None, parts))


def _made(front: Front, configs: Configs) -> str:
    """Return how the models were merged and the weights found."""
    methods = dict.fromkeys(str(config.get("merge_method")) for config in configs)
    ways = " and ".join(map(_method, methods))
    fitted = max(task.fit.n for task in front.tasks.values())
    return (
        f"This model is a merge by {ways} with "
        "[mergekit](https://github.com/arcee-ai/mergekit). Its weights were searched "
        f"with {_program_link()} by MAP ({_paper('2406.07529')}): {fitted} measured "
        "merges."
    )


def _method(method: str) -> str:
    if method not in _ARXIV:
        return f"`{method}`"
    name, papers = _ARXIV[method]
    return f"{name} ({', '.join(map(_paper, papers))})"


def _paper(arxiv: str) -> str:
    return f"[arXiv:{arxiv}](https://arxiv.org/abs/{arxiv})"


def _program_link() -> str:
    """Return a link to this program, if the package metadata has its address."""
    found = importlib.metadata.metadata("mergekit-map").get_all("Project-URL") or []
    urls = dict(entry.split(", ", 1) for entry in found)
    return f"[mergekit-map]({urls['Source']})" if "Source" in urls else "mergekit-map"


def _parents_section(configs: Configs, names: PublicNames, licences: Licences) -> str:
    """Return the list of the models, with links to the Hub and known licences."""
    bases = {config.get("base_model") for config in configs}
    lines = []
    for model in models_of(configs):
        parts = model.split("+")
        line = " + ".join(_linked(part, names) for part in parts)
        line += ", the base model" if model in bases else ""
        known = [licences.get(names.reference(part)) for part in parts]
        stated = dict.fromkeys(escaped(str(licence)) for licence in known if licence)
        lines.append(line + (f"; licence: {', '.join(stated)}" if stated else ""))
    return bullets(lines)


def _linked(part: str, names: PublicNames) -> str:
    name, hub_id = escaped(names.reference(part)), names.hub_id(part)
    if hub_id is None:
        return f"{name} (a local model)"
    return f"[{name}](https://huggingface.co/{urllib.parse.quote(hub_id)})"


def public_recipe(configs: Configs, names: PublicNames) -> str:
    """Return a recipe with the public names of its models."""
    return yaml_text([names.config(config) for config in configs])


def _recipe_section(command: str, recipe: str) -> str:
    words = shlex.split(command)
    public = [Path(word).name if is_local(word) else word for word in words]
    cache = "--lora-merge-cache"
    if cache in words[:-1]:
        public[words.index(cache) + 1] = "CACHE"
    version = importlib.metadata.version("mergekit")
    commands = f"pip install mergekit=={version}\n{shlex.join(public)}\n"
    text = (
        "With local models in folders of their names, and on the same kind of device, "
        "this writes the same tensors, bit for bit:"
    )
    shown = folded(RECIPE_FILE, fenced(recipe, "yaml"))
    return f"{text}\n\n{fenced(commands, 'sh')}\n\n{shown}"


def read_card(folder: Path) -> ModelCard:
    """Read ``README.md`` of a merged checkpoint."""
    path = folder / CARD
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


@dataclass(frozen=True)
class Publication:
    """The decisions about a card for the Hub."""

    repo: str  # of the repository, with its owner
    folder: str  # its name, which a card is called by before
    licence: Licence | None
    licences: Licences  # of the parents, by public name
    configs: Configs  # the recipe
    names: PublicNames
    renamed: bool  # whether models are called otherwise than in the card
    with_search: bool  # whether the search goes along


def published_card(card: ModelCard, publication: Publication) -> str:
    """Complete a card for the Hub; keep the text added by hand.

    The sections on parents and recipe are rewritten where names of models change.
    """
    card = ModelCard(card.content)
    configs, names = publication.configs, publication.names
    text, data = renamed_usage(card.text, publication.repo), card.data
    name = publication.repo.rpartition("/")[2]
    for known in (publication.folder, str(data.get("model_name"))):
        heading = f"# {escaped(known)}\n"
        if text.lstrip().startswith(heading):
            text = text.replace(heading, f"# {escaped(name)}\n", 1)
    if data.get("eval_results"):
        data["model_name"] = name
    if publication.licence is not None:
        vars(data).update(publication.licence.metadata())
    if publication.renamed:
        data["base_model"] = _all_parents(data, names.hub_parents(configs))
        parents = _parents_section(configs, names, publication.licences)
        text = _section(_PARENTS).sub(lambda _: section(_PARENTS, parents) + "\n", text)
        recipe = fenced(public_recipe(configs, names), "yaml")
        text = _section(_RECIPE).sub(lambda m: _with_yaml(m[0], recipe), text)
    text = _section(_SEARCH).sub("", text)
    if publication.with_search:
        text = f"{text.rstrip()}\n\n{section(_SEARCH, _SEARCH_TEXT)}"
    return f"---\n{data.to_yaml()}\n---\n{text}"


_SEARCH_TEXT = (
    f"`{RUN_FOLDER}/` has the configuration of the search, every measurement, and the "
    "front: all of its points with their weights, as predicted and as measured. Texts "
    "that were measured on are not included."
)


def _all_parents(data: Any, parents: list[str]) -> list[str]:
    known = data.get("base_model") or []
    return list(
        dict.fromkeys([*([known] if isinstance(known, str) else known), *parents])
    )


def _with_yaml(text: str, recipe: str) -> str:
    return re.sub(r"(?ms)^```yaml\n.*?^```$", lambda _: recipe, text, count=1)


def _section(heading: str) -> re.Pattern[str]:
    return re.compile(rf"^## {heading}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
