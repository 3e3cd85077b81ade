"""The model card of a merged checkpoint, and its changes for the Hub.

Text from outside (models, tasks, sentences with their names) is escaped: it is no
markup, and it ends neither a table nor a block.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import re
import string
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from huggingface_hub import CardData, ModelCard, ModelCardData

from mergekit_map.config.tasks import LmEvalTask, TaskSpec
from mergekit_map.config.yaml_file import yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.hub import metadata
from mergekit_map.hub.sanitize import (
    Configs,
    PublicNames,
    models_of,
    parts_of,
    public_names,
)
from mergekit_map.report.plots import plot_front
from mergekit_map.results.answer import answer
from mergekit_map.results.findings import border_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.gains import gains
from mergekit_map.utils.files import read_json_or_nothing

CARD = "README.md"
RECIPE_FILE = "mergekit_config.yml"
_ARXIV = {  # by words of the method's name
    "arithmetic": "2212.04089",
    "dare": "2311.03099",
    "della": "2406.11617",
    "breadcrumbs": "2312.06795",
    "ties": "2306.01708",
}
# The last heading of the table: "this model" is the merge here.
_COMPARED = "chosen merge vs the model of the row"
_CAUSAL = ("ForCausalLM", "LMHeadModel")  # how architectures of such models end


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
    licences = metadata.parent_licences(configs, names)
    # No path of this machine: models and files are called by their public names.
    content = names.content(record.front.model_dump(mode="json"))
    front = Front.model_validate_json(json.dumps(content))
    public = replace(record, command=names.text(record.command), front=front)
    data = _metadata(folder, public, names.hub_parents(configs), licences)
    text = _filled(
        "card",
        name=escaped(record.name),
        answer=_answer(public),
        methods=_methods(configs),
        fitted=max(task.fit.n for task in front.tasks.values()),
        usage=_usage(folder, record.name) if data.pipeline_tag else "",
        models=_models(configs, names, licences),
        version=importlib.metadata.version("mergekit"),
        command=public.command,
        recipe=_fenced_recipe(configs, names),
    )
    plot_front(front, folder / "front.png")
    (folder / CARD).write_text(_card(data, f"\n{text}").content, encoding="utf-8")


def _metadata(
    folder: Path, record: MergeRecord, parents: list[str], licences: metadata.Licences
) -> ModelCardData:
    """Return what the Hub reads of a card: parents, values, licence."""
    known = read_json_or_nothing(folder / "config.json").get("architectures") or ()
    kind = "text-generation" if any(str(n).endswith(_CAUSAL) for n in known) else None
    results = metadata.model_index(record.tasks, gains(record.front), kind or "other")
    licence = metadata.common_licence(licences)
    return ModelCardData(
        base_model=parents or None,
        base_model_relation="merge",
        library_name="transformers",
        pipeline_tag=kind,
        tags=["mergekit", "merge", "mergekit-map"],
        model_name=record.name if results else None,
        eval_results=results or None,
        **(licence.metadata() if licence else {}),
    )


def _answer(record: MergeRecord) -> str:
    """Return the answer of the search, as the terminal begins with it."""
    found = answer(record.front)
    rows = [[*found.headings[:-1], _COMPARED], ["---", "---", "---:", "---:", "---"]]
    rows += [[*map(escaped, row)] for row in found.table]
    border = border_in_words(record.front)  # told to whoever searches
    findings = [text for text in found.findings if text != border]
    details = _bullets(text for text in found.details if text != border)
    parts = [
        f"**{sentence(found.headline)}**",
        "\n".join(f"| {' | '.join(row)} |" for row in rows),
        _explained(record.tasks),
        sentence(found.sample),
        _bullets(filter(None, (*findings, record.difference))),
        "![Merges of the search, task against task](front.png)",
        f"<details><summary>More on the front</summary>\n\n{details}\n\n</details>",
    ]
    return "\n\n".join(filter(None, parts))


def _explained(tasks: Mapping[str, TaskSpec]) -> str:
    """Explain the table to whoever has not seen the search."""
    known = []
    for task, spec in tasks.items():
        data, metric = metadata.data_and_metric(spec)
        limit = spec.limit if isinstance(spec, LmEvalTask) else None
        part = "" if limit is None else f", limit {limit:,}"
        known.append(f"{task}: {metric} on {data}{part}")
    return _filled("words", tasks=escaped("; ".join(known))).rstrip()


def sentence(text: str) -> str:
    """Escape a sentence of the answer, in which pairs of backticks mark code."""
    words, *rest = text.split("`")
    if len(rest) % 2 or "``" in text:
        return escaped(text)
    codes, others = rest[::2], map(_escape, rest[1::2])
    pairs = zip(codes, others, strict=True)
    text = _escape(words) + "".join(f"`{code}`{words}" for code, words in pairs)
    return " ".join(text.split())


def escaped(text: str) -> str:
    """Escape a text for one line of Markdown."""
    return _escape(" ".join(text.split()))


def _escape(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore within a word is no markup.
    return re.sub(r"([\\`*\[\]|#~$!])|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)


def _bullets(texts: Iterable[str]) -> str:
    """List texts of one line each."""
    return "\n".join(f"- {sentence(text)}" for text in texts)


def _methods(configs: Configs) -> str:
    """Name the merge methods, with links to their papers."""
    texts = []
    for method in dict.fromkeys(str(config.get("merge_method")) for config in configs):
        papers = [n for word, n in _ARXIV.items() if word in method.split("_")]
        links = (f"[arXiv:{n}](https://arxiv.org/abs/{n})" for n in papers)
        texts.append(", ".join([escaped(method), *links]))
    return " and ".join(texts)


def _usage(folder: Path, name: str) -> str:
    config = read_json_or_nothing(folder / "tokenizer_config.json")
    chat = config.get("chat_template") or (folder / "chat_template.jinja").exists()
    prompt = '"YOUR PROMPT"'
    prompt = f'[{{"role": "user", "content": {prompt}}}]' if chat else prompt
    return _filled("usage", name=_assigned(name), prompt=prompt)


def _assigned(name: str) -> str:
    # JSON quotes whatever a name may hold, and Python reads JSON.
    return f"name = {json.dumps(name, ensure_ascii=False)}"


def _models(configs: Configs, names: PublicNames, licences: metadata.Licences) -> str:
    """Return the list of the models, with links to the Hub and known licences."""
    bases = {config.get("base_model") for config in configs}
    lines = []
    for model in models_of(configs):
        parts = model.split("+")
        line = " + ".join(_linked(part, names) for part in parts)
        line += ", the base model" if model in bases else ""
        known = filter(None, (licences.get(names.reference(part)) for part in parts))
        stated = ", ".join(dict.fromkeys(escaped(str(licence)) for licence in known))
        lines.append(f"- {line}; licence: {stated}" if stated else f"- {line}")
    return "\n".join(lines)


def _linked(part: str, names: PublicNames) -> str:
    name, hub_id = escaped(names.reference(part)), names.hub_id(part)
    if hub_id is None:
        return f"{name} (a local model, in a folder of this name)"
    return f"[{name}](https://huggingface.co/{urllib.parse.quote(hub_id)})"


def _fenced_recipe(configs: Configs, names: PublicNames) -> str:
    # A line of YAML cannot begin with the end of the block.
    return f"```yaml\n{yaml_text(map(names.config, configs))}```"


def read_card(folder: Path) -> ModelCard:
    """Read ``README.md`` of a merged checkpoint."""
    path = folder / CARD
    try:
        return ModelCard(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        text = f"{path}, the model card, cannot be read: {error}; merge again"
        raise ArtifactError(text) from None


def renamed_card(
    card: ModelCard, folder: str, repo: str, licence: metadata.Licence | None
) -> ModelCard:
    """Name a card by its repository instead of its folder, and set the licence."""
    card, text = ModelCard(card.content), card.text
    name = repo.rpartition("/")[2]
    for known in (folder, str(card.data.get("model_name"))):
        text = text.replace(f"# {escaped(known)}\n", f"# {escaped(name)}\n", 1)
        text = text.replace(f"\n{_assigned(known)}\n", f"\n{_assigned(repo)}\n")
    if card.data.get("eval_results"):
        card.data["model_name"] = name
    vars(card.data).update(licence.metadata() if licence else {})
    return _card(card.data, text)


def with_parents(card: ModelCard, configs: Configs, names: PublicNames) -> ModelCard:
    """Call local models by their Hub ids in metadata, list of models and recipe."""
    known = card.data.get("base_model") or []
    known = [known] if isinstance(known, str) else known
    card.data["base_model"] = list(dict.fromkeys([*known, *names.hub_parents(configs)]))
    before, text = public_names(models_of(configs)), card.text
    for part in parts_of(configs):
        text = text.replace(_linked(part, before), _linked(part, names))
    recipe = _fenced_recipe(configs, names)
    return _card(card.data, text.replace(_fenced_recipe(configs, before), recipe))


def with_search(card: ModelCard, *, there: bool) -> ModelCard:
    """Add the section on the search to a card, or remove it."""
    text = re.sub(r"(?ms)^## The search\n.*?(?=^## |\Z)", "", card.text).rstrip()
    return _card(card.data, f"{text}\n\n{_filled('search')}" if there else f"{text}\n")


def _filled(template: str, **values: object) -> str:
    """Read a template of this package and fill in its values."""
    folder = importlib.resources.files(__package__) / "templates"
    text = (folder / f"{template}.md").read_text(encoding="utf-8")
    return string.Template(text).substitute(values)


def _card(data: CardData, text: str) -> ModelCard:
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")
