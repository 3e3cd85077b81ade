"""The model card of a merged checkpoint, its metadata, and its changes for the Hub.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from huggingface_hub import (
    CardData,
    EvalResult,
    ModelCard,
    ModelCardData,
    try_to_load_from_cache,
)

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, TaskSpec, is_task_file
from mergekit_map.config.yaml_file import DAMAGES, MergeConfig, parse_recipe, yaml_text
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.sanitize import PublicNames, is_local, parts_of, public_names
from mergekit_map.models.references import referenced_models
from mergekit_map.report.plots import plot_front
from mergekit_map.results.answer import answer, border_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.gains import Source, gains
from mergekit_map.results.limits import MISSED
from mergekit_map.utils.files import LARGEST_JSON, read_json_or_nothing, read_whole

CARD = "README.md"
RECIPE_FILE = "mergekit_config.yml"
_PAPERS = {  # arXiv ids, by words of the method's name
    "arithmetic": "2212.04089",
    "dare": "2311.03099",
    "della": "2406.11617",
    "breadcrumbs": "2312.06795",
    "ties": "2306.01708",
}
# The last heading of the table: "this model" is the merge here.
_DIFFERENCE_HEADING = "chosen merge vs the model of the row"
_CAUSAL_SUFFIXES = ("ForCausalLM", "LMHeadModel")  # of architectures


@dataclass(frozen=True, eq=False)
class MergeRecord:
    """The facts about a merge for its card."""

    name: str
    recipe: str  # mergekit YAML
    command: str  # that runs mergekit alone
    front: Front  # the point that was merged is the chosen one
    tasks: Mapping[str, TaskSpec]
    difference: str = ""  # sentence on how the checkpoint differs from the search


def write_card(folder: Path, record: MergeRecord) -> None:
    """Write ``README.md`` and its picture into the folder of a checkpoint."""
    config = yaml.safe_load(record.recipe)
    names = public_names(referenced_models(config))
    licences = parent_licences(config, names)
    # Public names of models and files, instead of the paths of this machine.
    content = names.content(record.front.model_dump(mode="json"))
    front = Front.model_validate_json(json.dumps(content))
    public = replace(record, command=names.text(record.command), front=front)
    data = _metadata(folder, public, names.hub_parents(config), licences)
    text = _fill_template(
        "card",
        name=escape_markdown(public.name),
        answer=_answer_section(public),
        method=_linked_method(str(config.get("merge_method"))),
        fitted=max(task.fit.n for task in public.front.tasks.values()),
        usage=_usage_section(folder, public.name) if data.pipeline_tag else "",
        models=_model_list(config, names, licences),
        version=importlib.metadata.version("mergekit"),
        command=public.command,
        recipe=_recipe_block(config, names),
    )
    plot_front(public.front, folder / "front.png")
    (folder / CARD).write_text(_card(data, f"\n{text}").content, encoding="utf-8")


def _metadata(
    folder: Path, record: MergeRecord, parents: list[str], licences: Licences
) -> ModelCardData:
    config = read_json_or_nothing(folder / "config.json")
    architectures = map(str, config.get("architectures") or ())
    is_causal = any(name.endswith(_CAUSAL_SUFFIXES) for name in architectures)
    pipeline = "text-generation" if is_causal else None
    gained, kind = gains(record.front), pipeline or "other"
    results = [  # the measured values, as the table of gains has them
        _result(name, spec, float(f"{gained.readings[name].value:.4g}"), kind, source)
        for name, spec in record.tasks.items()
        if (source := gained.sources.get(name, "predicted")) != "predicted"
    ]
    licence = common_licence(licences)
    return ModelCardData(
        base_model=parents or None,
        base_model_relation="merge",
        library_name="transformers",
        pipeline_tag=pipeline,
        tags=["mergekit", "merge", "mergekit-map"],
        model_name=record.name if results else None,
        eval_results=results or None,
        **(licence.metadata() if licence else {}),
    )


def _data_and_metric(spec: TaskSpec) -> tuple[str, str]:
    """Return the public names of a task's data and of its metric."""
    if isinstance(spec, PerplexityTask):
        source = spec.perplexity
        name = str(source.file or source.dataset)
        is_path = source.file is not None or is_local(name) or Path(name).is_dir()
        return Path(name).name if is_path else name, "loss"
    if isinstance(spec, LmEvalTask):
        path = Path(spec.lm_eval)
        return path.name if is_task_file(path.name) else str(path), spec.metric
    return spec.python, "score"


def _result(
    task: str, spec: TaskSpec, value: float, pipeline: str, source: Source
) -> EvalResult:
    data, metric = _data_and_metric(spec)
    dataset = re.sub(r"[^\w./-]", "-", data, flags=re.ASCII)  # as the Hub demands
    args: dict[str, Any] = {}
    if isinstance(spec, PerplexityTask):
        dataset = data if data == spec.perplexity.dataset else "own-text"
    elif isinstance(spec, LmEvalTask):
        args = {"num_few_shot": spec.num_fewshot, "limit": spec.limit}
        args["filter"] = spec.filter
    given = {key: arg for key, arg in args.items() if arg is not None} or None
    name = f"{task}: {metric} on {data}{' (held-out)' * (source == 'held-out')}"
    return EvalResult(
        pipeline, dataset, dataset, metric, value, metric_name=name, metric_args=given
    )


def _answer_section(record: MergeRecord) -> str:
    result = answer(record.front)
    headings = [*result.headings[:-1], _DIFFERENCE_HEADING]
    alignment = ["---", "---", "---:", "---:", "---"]
    rows = [[*map(escape_markdown, row)] for row in result.table]
    # A reader of the card cannot search again, with wider bounds or other limits.
    not_for_readers = {border_in_words(record.front)}
    if MISSED in result.headline:
        not_for_readers.add(record.front.reason)
    findings = [text for text in result.findings if text not in not_for_readers]
    details = _bullets(text for text in result.details if text not in not_for_readers)
    paragraphs = [
        f"**{escape_markdown(result.headline)}**",
        "\n".join(f"| {' | '.join(row)} |" for row in (headings, alignment, *rows)),
        _explanation(record.tasks),
        escape_markdown(result.sample),
        _bullets(filter(None, (*findings, record.difference))),
        "![Merges of the search, task against task](front.png)",
        f"<details><summary>More on the front</summary>\n\n{details}\n\n</details>",
    ]
    return "\n\n".join(filter(None, paragraphs))


def _explanation(tasks: Mapping[str, TaskSpec]) -> str:
    """Explain the table to readers who have not seen the search."""
    texts = []
    for task, spec in tasks.items():
        data, metric = _data_and_metric(spec)
        limit = spec.limit if isinstance(spec, LmEvalTask) else None
        suffix = "" if limit is None else f", limit {limit:,}"
        texts.append(f"{task}: {metric} on {data}{suffix}")
    return _fill_template("words", tasks=escape_markdown("; ".join(texts))).rstrip()


def escape_markdown(text: str) -> str:
    """Escape a text for one line of Markdown."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # An underscore between letters or digits is no markup.
    return re.sub(r"[\\`*\[\]|#~$!]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", line)


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(text)}" for text in texts)


def _linked_method(method: str) -> str:
    papers = [_PAPERS[word] for word in _PAPERS if word in method.split("_")]
    links = [f"[arXiv:{paper}](https://arxiv.org/abs/{paper})" for paper in papers]
    return ", ".join([escape_markdown(method), *links])


def _usage_section(folder: Path, name: str) -> str:
    config = read_json_or_nothing(folder / "tokenizer_config.json")
    prompt = '"YOUR PROMPT"'
    if config.get("chat_template") or (folder / "chat_template.jinja").exists():
        prompt = f'[{{"role": "user", "content": {prompt}}}]'
    return _fill_template("usage", name=_name_assignment(name), prompt=prompt)


def _name_assignment(name: str) -> str:
    # JSON quotes whatever a name may hold, and Python reads JSON.
    return f"name = {json.dumps(name, ensure_ascii=False)}"


def _model_list(config: MergeConfig, names: PublicNames, licences: Licences) -> str:
    lines = []
    for model in referenced_models(config):
        parts = model.split("+")  # a model, and its adapter
        line = "- " + " + ".join(_linked_model(part, names) for part in parts)
        if model == config.get("base_model"):
            line += ", the base model"
        known = filter(None, (licences.get(names.reference(part)) for part in parts))
        distinct = dict.fromkeys(escape_markdown(str(licence)) for licence in known)
        lines.append(f"{line}; licence: {', '.join(distinct)}" if distinct else line)
    return "\n".join(lines)


def _linked_model(part: str, names: PublicNames) -> str:
    name = escape_markdown(names.reference(part))
    if (hub_id := names.hub_id(part)) is None:
        return f"{name} (a local model, in a folder of this name)"
    return f"[{name}](https://huggingface.co/{urllib.parse.quote(hub_id)})"


def _recipe_block(config: MergeConfig, names: PublicNames) -> str:
    text = yaml_text(names.config(config))
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{fence}yaml\n{text}{fence}"


def read_card(folder: Path) -> ModelCard:
    """Read ``README.md`` of a merged checkpoint."""
    path = folder / CARD
    try:
        return ModelCard(read_whole(path, LARGEST_JSON).decode("utf-8-sig"))
    except (OSError, *DAMAGES, yaml.YAMLError) as error:
        text = f"{path}, the model card, cannot be read: {error}; merge again"
        raise ArtifactError(text) from None


def renamed_card(
    card: ModelCard, folder: str, repo: str, licence: Licence | None
) -> ModelCard:
    """Name a card by its repository instead of its folder, and set the licence."""
    data = ModelCard(card.content).data  # a copy
    text = card.text
    name = repo.rpartition("/")[2]
    heading = f"\n# {escape_markdown(name)}\n"
    assignment = f"\n{_name_assignment(repo)}\n"
    for old in (folder, str(data.get("model_name"))):
        text = text.replace(f"\n# {escape_markdown(old)}\n", heading, 1)
        text = text.replace(f"\n{_name_assignment(old)}\n", assignment)
    if data.get("eval_results"):
        data["model_name"] = name
    if licence is not None and licence != read_licence(vars(data)):
        vars(data).update(licence.metadata())
    return _card(data, text)


def with_parents(card: ModelCard, config: MergeConfig, names: PublicNames) -> ModelCard:
    """Call local models by their Hub ids in metadata, list of models and recipe."""
    parents = card.data.get("base_model") or []
    listed = [parents] if isinstance(parents, str) else parents
    card.data["base_model"] = list(dict.fromkeys([*listed, *names.hub_parents(config)]))
    old_names = public_names(referenced_models(config))
    text = card.text
    for part in parts_of(config):
        old, new = (_linked_model(part, known) for known in (old_names, names))
        for mark in ("\n- ", " + "):  # one name may be the end of another
            text = text.replace(f"{mark}{old}", f"{mark}{new}")
    old_recipe = _recipe_block(config, old_names)
    return _card(card.data, text.replace(old_recipe, _recipe_block(config, names)))


def with_search(card: ModelCard, *, uploaded: bool) -> ModelCard:
    """Add the section on the search to a card, or remove it."""
    text = re.sub(r"(?ms)^## The search\n.*?(?=^## |\Z)", "", card.text).rstrip()
    section = f"\n{_fill_template('search')}" if uploaded else ""
    return _card(card.data, f"{text}\n{section}")


def _fill_template(template: str, **values: object) -> str:
    folder = importlib.resources.files(__package__) / "templates"
    text = (folder / f"{template}.md").read_text(encoding="utf-8")
    return string.Template(text).substitute(values)


def _card(data: CardData, text: str) -> ModelCard:
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")


@dataclass(frozen=True)
class Licence:
    """A licence as the metadata of a card names it."""

    id: str  # one of the Hub's identifiers; "other" goes with name and link
    name: str | None = None
    link: str | None = field(default=None, compare=False)

    def metadata(self) -> dict[str, Any]:
        """Return the licence in the form of a card's metadata."""
        return dict(license=self.id, license_name=self.name, license_link=self.link)

    def __str__(self) -> str:
        return f"{self.id} ({self.name})" if self.name else self.id


Licences: TypeAlias = Mapping[str, Licence | None]  # by model; None where unknown


def parent_licences(
    config: MergeConfig,
    names: PublicNames,
    lookup: Callable[[str], Licence | None] = lambda _: None,
) -> dict[str, Licence | None]:
    """Look up licences by public name: in cards on this machine, then by Hub id."""
    licences = {}
    for part in parts_of(config):
        hub_id = names.hub_id(part)
        licence = _local_licence(Path(part.partition("@")[0]), hub_id)
        if licence is None and hub_id:
            licence = lookup(hub_id)
        licences[names.reference(part)] = licence
    return licences


def _local_licence(folder: Path, hub_id: str | None) -> Licence | None:
    card: Any = folder / "README.md" if folder.is_absolute() else None
    try:
        if hub_id and not (card and card.exists()):
            card = try_to_load_from_cache(hub_id, "README.md")
        text = read_whole(Path(card), 1 << 20).decode("utf-8-sig")
        head = re.match(r"\s*---[ \t]*\r?\n(.*?)\n---[ \t\r]*(\n|$)", text, re.DOTALL)
        return read_licence(parse_recipe(head[1] if head else ""))
    except (OSError, *DAMAGES):
        return None  # no card, or one that states nothing


def common_licence(licences: Licences) -> Licence | None:
    """Return the common licence of all parents; None where there is none."""
    first, *others = list(licences.values()) or [None]
    return first if all(other == first for other in others) else None


def read_licence(metadata: Mapping[str, Any]) -> Licence | None:
    """Read the metadata of a card; a list of several licences counts as unknown."""
    licence_id = metadata.get("license")
    if isinstance(licence_id, list) and len(licence_id) == 1:
        licence_id = licence_id[0]
    name, link = (metadata.get(f"license_{key}") for key in ("name", "link"))
    name = name if isinstance(name, str) else None
    if not isinstance(licence_id, str) or (licence_id == "other" and not name):
        return None
    # A relative link leads to a file that only the parent's repository has.
    known = isinstance(link, str) and "://" in link
    return Licence(licence_id, name, link if known else None)
