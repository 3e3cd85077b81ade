"""Metadata of a model card: results, licences and languages.

Results have the Hub's two forms, ``model-index`` and ``.eval_results``. Licences and
languages are those that the cards of the parents state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from huggingface_hub import EvalResult, try_to_load_from_cache
from huggingface_hub.repocard import metadata_load
from pydantic import JsonValue

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.hub.sanitize import Configs, PublicNames, parts_of
from mergekit_map.results.front import Reading, Readings

FOLDER = ".eval_results"  # of a repository
_STDERR = "standard error of "


@dataclass(frozen=True)
class _Benchmark:
    """A data set with a leaderboard on the Hub, and its task there."""

    dataset: str
    task: str


_GSM8K = _Benchmark("openai/gsm8k", "gsm8k")
_MMLU_PRO = _Benchmark("TIGER-Lab/MMLU-Pro", "mmlu_pro")
_GPQA = _Benchmark("Idavidrein/gpqa", "gpqa_diamond")
_BENCHMARKS: Mapping[str, _Benchmark] = {
    **dict.fromkeys(("gsm8k", "gsm8k_cot", "gsm8k_cot_zeroshot"), _GSM8K),
    "mmlu_pro": _MMLU_PRO,
    **{
        f"gpqa_diamond_{way}": _GPQA
        for way in ("zeroshot", "n_shot", "cot_zeroshot", "cot_n_shot")
    },
}


def model_index(
    tasks: Mapping[str, TaskSpec], measured: Readings, task_type: str
) -> list[EvalResult]:
    """List the measured values, each with its standard error as a metric.

    Local files are named without their folder.
    """
    results = [
        result
        for name, spec in tasks.items()
        if name in measured
        for result in _with_stderr(task_type, name, spec, measured[name])
    ]
    # What shares a data set is written as metrics of one task. Two tasks are not one.
    names: dict[tuple[object, ...], Counter[str]] = {}
    for result in results:
        found = names.setdefault(result.unique_identifier, Counter())
        found[str(result.task_name)] += 1
    return [
        replace(r, dataset_config=r.task_name)
        if len(names[r.unique_identifier]) > 1
        else r
        for r in results
    ]


def write_benchmarks(
    folder: Path, tasks: Mapping[str, TaskSpec], measured: Readings
) -> None:
    """Write the results of benchmarks with a leaderboard, a file for each.

    A result on a part of the questions is left out.
    """
    found: dict[_Benchmark, list[JsonValue]] = {}
    for name, spec in tasks.items():
        reading = measured.get(name)
        if not isinstance(spec, LmEvalTask) or spec.limit or reading is None:
            continue
        benchmark = _BENCHMARKS.get(spec.lm_eval)
        if benchmark is not None and reading.value is not None:
            entry: JsonValue = {
                "dataset": {"id": benchmark.dataset, "task_id": benchmark.task},
                "value": round(100 * reading.value, 2),
                "notes": _notes(spec, reading),
            }
            found.setdefault(benchmark, []).append(entry)
    for benchmark, entries in found.items():
        path = folder / FOLDER / f"{benchmark.task}.yaml"
        path.parent.mkdir(exist_ok=True)
        text = yaml.safe_dump(entries, sort_keys=False)
        path.write_text(text, encoding="utf-8")


def _notes(spec: LmEvalTask, reading: Reading) -> str:
    shots = [] if spec.num_fewshot is None else [f"{spec.num_fewshot}-shot"]
    metric = f"{spec.metric}, {spec.filter}" if spec.filter else spec.metric
    error = [] if not reading.stderr else [f"standard error {100 * reading.stderr:.2g}"]
    return ", ".join([f"lm-evaluation-harness {spec.lm_eval}", metric, *shots, *error])


def _with_stderr(
    task_type: str, name: str, spec: TaskSpec, reading: Reading
) -> Iterator[EvalResult]:
    if reading.value is None:
        return
    result = _result(task_type, name, spec, reading.value)
    yield result
    if reading.stderr is not None:
        yield replace(
            result,
            metric_type=f"{result.metric_type}_stderr",
            metric_value=reading.stderr,
            metric_name=f"{_STDERR}{result.metric_name or result.metric_type}",
        )


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


@dataclass(frozen=True)
class Licence:
    """A licence as the metadata of a card names it."""

    id: str  # one of the Hub's identifiers; "other" goes with name and link
    name: str | None = None
    link: str | None = field(default=None, compare=False)

    def metadata(self) -> dict[str, str | None]:
        """Return the licence in the form of a card's metadata."""
        return {
            "license": self.id,
            "license_name": self.name,
            "license_link": self.link,
        }

    def __str__(self) -> str:
        return f"{self.id} ({self.name})" if self.name else self.id


Licences: TypeAlias = Mapping[str, Licence | None]  # by model; None where unknown


def parent_licences(
    configs: Configs, names: PublicNames, lookup: Callable[[str], Licence | None]
) -> dict[str, Licence | None]:
    """Look up licences by public name: in folders, or by ``lookup`` of Hub ids."""
    found = {}
    for part in parts_of(configs):
        folder, hub_id = Path(part.partition("@")[0]), names.hub_id(part)
        own = _read_card(folder / "README.md") if folder.is_absolute() else None
        licence = read_licence(own)
        if licence is None and hub_id is not None:
            licence = lookup(hub_id)
        found[names.reference(part)] = licence
    return found


def common_licence(licences: Licences) -> Licence | None:
    """Return the common licence of all parents; None where there is none."""
    first, *others = list(licences.values()) or [None]
    return first if all(other == first for other in others) else None


def read_licence(metadata: Mapping[str, Any] | None) -> Licence | None:
    """Read the metadata of a card; a list of several licences counts as unknown."""
    found = metadata or {}
    known = found.get("license")
    if isinstance(known, list) and len(known) == 1:
        known = known[0]
    if not isinstance(known, str):
        return None
    name, link = found.get("license_name"), str(found.get("license_link"))
    # A relative link leads to a file that only the parent's repository has.
    return Licence(known, name and str(name), link if "://" in link else None)


def cached_licence(hub_id: str) -> Licence | None:
    """Read a licence from the Hub's cache on this machine, without the network."""
    return read_licence(_cached(hub_id))


def cached_languages(configs: Configs, names: PublicNames) -> list[str]:
    """List the languages of the parents, as cards on this machine name them."""
    found: dict[str, None] = {}
    for part in parts_of(configs):
        folder, hub_id = Path(part.partition("@")[0]), names.hub_id(part)
        metadata = _read_card(folder / "README.md") if folder.is_absolute() else None
        if metadata is None and hub_id is not None:
            metadata = _cached(hub_id)
        known = (metadata or {}).get("language") or []
        listed = [known] if isinstance(known, str) else known
        found |= dict.fromkeys(word for word in listed if isinstance(word, str))
    return list(found)


def _cached(hub_id: str) -> Mapping[str, Any] | None:
    card = try_to_load_from_cache(hub_id, "README.md")
    return _read_card(Path(card)) if isinstance(card, str) else None


def _read_card(path: Path) -> Mapping[str, Any] | None:
    try:
        return metadata_load(path)
    except (OSError, ValueError, yaml.YAMLError):
        return None  # unknown, as where there is no card
