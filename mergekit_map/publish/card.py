"""The model card of a merged checkpoint. Local paths never reach it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, ModelCardData

from mergekit_map.config.task_specs import (
    LmEvalTask,
    PerplexityTask,
    PythonTask,
    TaskSpec,
)
from mergekit_map.errors import ArtifactError
from mergekit_map.publish.card_text import (
    MODELS,
    PICTURE,
    RECIPE,
    escaped,
    front_section,
    measured_section,
    models_section,
    recipe_section,
    reproduce_section,
    section,
)
from mergekit_map.publish.licences import (
    cached_licence,
    common_licence,
    parent_licences,
)
from mergekit_map.publish.plots import plot_front
from mergekit_map.publish.public_names import models_of, public_names
from mergekit_map.results.front import Front, Readings
from mergekit_map.results.promise_words import confirmed_in_words

_CAUSAL = ("ForCausalLM", "LMHeadModel")  # how architectures of such models end


@dataclass(frozen=True, eq=False)
class MergeRecord:
    """What is known of a merge when its card is written."""

    name: str
    recipe: str  # mergekit YAML; a document for each stage
    command: str  # carries it out with mergekit alone
    front: Front  # the point that was merged is the chosen one
    tasks: Mapping[str, TaskSpec]


def write_card(folder: Path, record: MergeRecord) -> None:
    """Write ``README.md`` and its picture into the folder of a checkpoint."""
    configs = list(yaml.safe_load_all(record.recipe))
    names = public_names(models_of(configs))
    front = Front.model_validate_json(
        json.dumps(names.content(record.front.model_dump(mode="json")))
    )
    pipeline_tag = _pipeline_tag(folder)
    measured = front.chosen.measured
    results = _eval_results(record.tasks, measured, pipeline_tag or "other")
    licence = common_licence(parent_licences(configs, names, cached_licence))
    data = ModelCardData(
        base_model=names.hub_parents(configs) or None,
        base_model_relation="merge",
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=["mergekit", "merge", "mergekit-map"],
        model_name=record.name if results else None,
        eval_results=results or None,
    )
    vars(data).update(licence.metadata() if licence else {})
    sections = {
        MODELS: models_section(configs, names),
        "Predicted and measured": measured_section(front),
        "The front": front_section(front),
        RECIPE: recipe_section(configs, names),
        "How to reproduce": reproduce_section(record.command),
    }
    head = f"# {escaped(record.name)}\n\n{_introduction(front)}\n"
    body = "\n".join([head, *(section(*item) for item in sections.items())])
    plot_front(front, folder / PICTURE)
    card = f"---\n{data.to_yaml()}\n---\n\n{body}"
    (folder / "README.md").write_text(card, encoding="utf-8")


def _introduction(front: Front) -> str:
    count = max(task.fit.n for task in front.tasks.values())
    confirmed = " ".join(confirmed_in_words(front))
    return (f"{escaped(confirmed)}\n\n" if confirmed else "") + (
        "A merge of models, made with "
        "[mergekit](https://github.com/arcee-ai/mergekit). Its weights were found with "
        "mergekit-map, by the method MAP "
        f"([ICLR 2025](https://arxiv.org/abs/2406.07529)): a surrogate of each task, "
        f"fitted to {count} measured merges, predicts the Pareto front below.\n"
        f"{escaped(front.reason)}"
    )


def _pipeline_tag(folder: Path) -> str | None:
    path = folder / "config.json"
    try:
        names = json.loads(path.read_text(encoding="utf-8")).get("architectures") or ()
    except (OSError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}; merge again") from None
    causal = any(str(name).endswith(_CAUSAL) for name in names)
    return "text-generation" if causal else None


def _eval_results(
    tasks: Mapping[str, TaskSpec], measured: Readings, task_type: str
) -> list[EvalResult]:
    """List what has a measured value; files of one's own go by their name alone."""
    results = [
        _result(task_type, name, spec, value)
        for name, spec in tasks.items()
        if name in measured and (value := measured[name].value) is not None
    ]
    # What shares a data set is written as metrics of one task. Two tasks are not one.
    seen = Counter(result.unique_identifier for result in results)
    return [
        replace(r, dataset_config=r.task_name) if seen[r.unique_identifier] > 1 else r
        for r in results
    ]


def _result(task_type: str, name: str, spec: TaskSpec, value: float) -> EvalResult:
    result = partial(EvalResult, task_type, metric_value=value, task_name=name)
    match spec:
        case PerplexityTask(perplexity=text):
            own = Path(text.file).name if text.file else None
            return result(
                dataset_type=text.dataset or "own-text",
                dataset_name=own or str(text.dataset),
                dataset_config=text.name,
                dataset_split=None if own else text.split,
                dataset_revision=text.revision,
                dataset_args={"max_tokens": spec.max_tokens},
                metric_type="loss",
                metric_name="mean token loss (nats/token)",
            )
        case LmEvalTask(metric=metric):
            path = Path(spec.lm_eval)
            dataset = path.stem if path.suffix in {".yaml", ".yml"} else spec.lm_eval
            args = {"num_few_shot": spec.num_fewshot, "limit": spec.limit}
            return result(
                dataset_type=dataset,
                dataset_name=dataset,
                dataset_args={k: v for k, v in args.items() if v is not None} or None,
                metric_type=metric,
                metric_name=f"{metric} ({spec.filter})" if spec.filter else metric,
            )
        case PythonTask():
            return result(
                dataset_type="python", dataset_name=spec.python, metric_type=name
            )
