"""Metadata of a model card: measured results, and licences of the parents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from huggingface_hub import EvalResult, try_to_load_from_cache
from huggingface_hub.repocard import metadata_load

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, TaskSpec
from mergekit_map.hub.sanitize import Configs, PublicNames, parts_of
from mergekit_map.results.gains import Gains


def model_index(
    tasks: Mapping[str, TaskSpec], gains: Gains, pipeline: str
) -> list[EvalResult]:
    """List the measured values, as the table of gains has them."""
    return [
        _result(name, spec, float(f"{gains.readings[name].value:.4g}"), pipeline)
        for name, spec in tasks.items()
        if gains.sources.get(name, "predicted") != "predicted"
    ]


def data_and_metric(spec: TaskSpec) -> tuple[str, str]:
    """Return the public names of a task's data and of its metric."""
    if isinstance(spec, PerplexityTask):
        source = spec.perplexity
        return source.dataset or Path(str(source.file)).name, "loss"
    if isinstance(spec, LmEvalTask):
        path = Path(spec.lm_eval)  # of a file the name, which no benchmark has
        return path.name if path.suffix in {".yaml", ".yml"} else str(path), spec.metric
    return spec.python, "score"


def _result(task: str, spec: TaskSpec, value: float, pipeline: str) -> EvalResult:
    data, metric = data_and_metric(spec)
    dataset, args = data, dict[str, Any]()
    if isinstance(spec, PerplexityTask):
        dataset = spec.perplexity.dataset or "own-text"
    elif isinstance(spec, LmEvalTask):
        args = {"num_few_shot": spec.num_fewshot, "limit": spec.limit}
        args["filter"] = spec.filter
    given = {key: value for key, value in args.items() if value is not None} or None
    name = f"{task}: {metric} on {data}"
    return EvalResult(
        pipeline, dataset, dataset, metric, value, metric_name=name, dataset_args=given
    )


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
    configs: Configs,
    names: PublicNames,
    lookup: Callable[[str], Licence | None] = lambda _: None,
) -> dict[str, Licence | None]:
    """Look up licences by public name: in cards on this machine, then by Hub id."""
    licences = {}
    for part in parts_of(configs):
        hub_id = names.hub_id(part)
        licence = _local_licence(Path(part.partition("@")[0]), hub_id)
        if licence is None and hub_id:
            licence = lookup(hub_id)
        licences[names.reference(part)] = licence
    return licences


def _local_licence(folder: Path, hub_id: str | None) -> Licence | None:
    """Read the card of a parent: in its folder, or in the Hub's cache."""
    card: Any = folder / "README.md" if folder.is_absolute() else None
    if hub_id and not (card and card.exists()):
        card = try_to_load_from_cache(hub_id, "README.md")
    try:
        return read_licence(metadata_load(card) or {})
    except (OSError, TypeError, ValueError, yaml.YAMLError):
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
    if not isinstance(licence_id, str):
        return None
    name, link = metadata.get("license_name"), str(metadata.get("license_link"))
    # A relative link leads to a file that only the parent's repository has.
    return Licence(licence_id, name and str(name), link if "://" in link else None)
