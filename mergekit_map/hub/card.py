"""The model card of a merged checkpoint, without local paths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from huggingface_hub import ModelCardData

from mergekit_map.config.tasks import TaskSpec
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.card_text import (
    MODELS,
    PICTURE,
    RECIPE,
    USE,
    front_section,
    models_section,
    named_link,
    recipe_section,
    reproduce_section,
)
from mergekit_map.hub.markdown import (
    escaped,
    fenced,
    section,
    task_heading,
    usage_section,
    written_table,
)
from mergekit_map.hub.metadata import (
    cached_languages,
    cached_licence,
    common_licence,
    model_index,
    parent_licences,
    write_benchmarks,
)
from mergekit_map.hub.papers import citations, method_in_words, program_link
from mergekit_map.hub.sanitize import Configs, PublicNames, models_of, public_names
from mergekit_map.report.plots import plot_front
from mergekit_map.results.front import Front
from mergekit_map.results.gain_sentences import (
    amount_in_words,
    confirmed_in_words,
    gains_in_words,
    share_in_words,
)
from mergekit_map.results.gains import BEST_PARENT, Gains, Rival, gains
from mergekit_map.results.narrative import missed_as_measured
from mergekit_map.types import BASE, SOUP
from mergekit_map.utils.text import listed

_HEADINGS = {BASE: "base", SOUP: "uniform soup", BEST_PARENT: "best parent"}


def gain_section(front: Front) -> str:
    """Return the table of gains against base, soup and best parents, by task."""
    found = gains(front)
    header = ["task", "this model", *(_HEADINGS[r.label] for r in found.rivals)]
    rows = [
        [
            task_heading(front, task),
            _own(found, task),
            *(_rival(rival, task) for rival in found.rivals),
        ]
        for task in front.tasks
    ]
    note = (
        "± is one standard error. In brackets: by how much this model is ahead (+) or "
        "behind (-), and the standard error of that difference, item by item where "
        "both answered the same."
    )
    if any(share is not None for share in found.kept.values()):
        header.append("gain kept")
        for row, share in zip(rows, found.kept.values(), strict=True):
            row.append(share_in_words(share))
        note += (
            " Gain kept is the share of what the best parent gains over the base; the "
            "best parent may be another one for each task."
        )
    return f"{written_table(header, rows)}\n\n{escaped(note)}"


def _own(found: Gains, task: str) -> str:
    reading, source = found.readings[task], found.sources[task]
    if reading.value is None:
        return "not measured"
    return str(reading) if source == "measured" else f"{reading}, {source}"


def _rival(rival: Rival, task: str) -> str:
    gained = rival.tasks.get(task)
    if gained is None:
        return "not measured"
    text = f"{gained.reading} ({amount_in_words(gained)}, {gained.verdict})"
    return text if gained.other == rival.label else f"{gained.other}: {text}"


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
    """Write ``README.md``, its picture and results into the folder of a checkpoint."""
    configs = list(yaml.safe_load_all(record.recipe))
    names = public_names(models_of(configs))
    front = Front.model_validate_json(
        json.dumps(names.content(record.front.model_dump(mode="json")))
    )
    licences = parent_licences(configs, names, cached_licence)
    pipeline_tag = _pipeline_tag(folder)
    results = model_index(record.tasks, front.chosen.measured, pipeline_tag or "other")
    data = ModelCardData(
        base_model=names.hub_parents(configs) or None,
        base_model_relation="merge",
        language=cached_languages(configs, names) or None,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=["mergekit", "merge", "mergekit-map"],
        model_name=record.name if results else None,
        eval_results=results or None,
    )
    licence = common_licence(licences)
    vars(data).update(licence.metadata() if licence else {})
    sections = {
        "What it gains": gain_section(front),
        **({USE: usage_section(folder, record.name)} if pipeline_tag else {}),
        MODELS: models_section(configs, names, licences),
        "How it was made": method_in_words(configs, _fitted(front)),
        "The front": front_section(front),
        RECIPE: recipe_section(configs, names),
        "How to reproduce": reproduce_section(record.command),
        "Citation": fenced(citations(configs), "bibtex"),
    }
    introduction = _introduction(front, configs, names, record.difference)
    head = f"# {escaped(record.name)}\n\n{introduction}\n"
    body = "\n".join([head, *(section(*item) for item in sections.items())])
    plot_front(front, folder / PICTURE)
    write_benchmarks(folder, record.tasks, front.chosen.measured)
    card = f"---\n{data.to_yaml()}\n---\n\n{body}"
    (folder / "README.md").write_text(card, encoding="utf-8")


def _introduction(
    front: Front, configs: Configs, names: PublicNames, difference: str
) -> str:
    bases = {config.get("base_model") for config in configs}
    links = [
        (model, " + ".join(named_link(part, names) for part in model.split("+")))
        for model in models_of(configs)
    ]
    merged = listed(link for model, link in links if model not in bases)
    base = [link for model, link in links if model in bases]
    tasks = listed(map(escaped, front.tasks))
    made = f"A merge of {merged}" + (f", on {listed(base)}" if base else "")
    made += f". Its weights were searched with {program_link()}, measuring {tasks}."
    missed = missed_as_measured(front)
    said = [gains_in_words(front), missed, confirmed_in_words(front), [difference]]
    words = [" ".join(sentences) for sentences in said]
    texts = [escaped(text.replace("he chosen merge", "his merge")) for text in words]
    return "\n\n".join([made, *filter(None, texts)])


def _fitted(front: Front) -> int:
    return max(task.fit.n for task in front.tasks.values())


def _pipeline_tag(folder: Path) -> str | None:
    path = folder / "config.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8")).get("architectures") or ()
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; merge again") from None
    causal = any(str(name).endswith(_CAUSAL) for name in names)
    return "text-generation" if causal else None
