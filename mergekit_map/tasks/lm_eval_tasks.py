"""Tasks of lm-evaluation-harness, found, checked and built before any model is loaded.

A task is built in and found by name, or a YAML file of the user. It is rehearsed on two
documents with lm-eval's dummy model, which answers at random: that shows which metrics
and filters it really yields, and finds errors in templates, splits and aggregations
that lm-eval reports only after a whole evaluation. Requests are then built once:
lm-eval would draw other few-shot examples on each call. The length of generated
answers, in tokens of the merged model, is a metric of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
from datasets.exceptions import DatasetNotFoundError
from lm_eval.api import metrics
from lm_eval.models.dummy import DummyLM
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from mergekit_map.config.tasks import NO_METRIC, PRESETS, LmEvalTask
from mergekit_map.errors import InvalidTask, nearest
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.base import fingerprint
from mergekit_map.tasks.isolation import quiet, separate_randomness
from mergekit_map.tasks.lm_eval_patches import build_requests, cached_templates
from mergekit_map.types import Metric

_KEY = ("lm_eval",)
_RATIOS = (metrics.weighted_perplexity, metrics.bits_per_byte)
_KNOWN = (metrics.mean, metrics.perplexity, *_RATIOS)


def find_tasks(name: str, directory: Path) -> Mapping[str, Any]:
    """Load a built-in task, group or tag, or a YAML file relative to ``directory``.

    Returns:
        lm-eval's mapping with "tasks" and "groups", their data loaded.

    Raises:
        InvalidTask: there is no such task or file, or it cannot be loaded.
    """
    if Path(name).suffix in {".yaml", ".yml"}:
        return _load_file(directory / name)
    manager = built_in_tasks()
    if name not in manager.task_index:
        raise InvalidTask(
            _KEY,
            f"lm-eval has no task, group or tag {name!r}; "
            f"{nearest(name, manager.all_tasks)} A task of your own is named by the "
            "path of its .yaml file",
        )
    return _load(manager, name)


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Convert errors of lm-eval or a task's code to a message with a remedy."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too: the search is not what ends
        text = f"lm-eval cannot set this task up: {type(error).__name__}: {error}"
        if isinstance(error, ConnectionError | DatasetNotFoundError):
            text += (
                "; check the name of its dataset and, offline, that it is in the cache"
            )
        elif isinstance(error, FileNotFoundError):
            text += (
                "; relative data_files of a task YAML start at the working directory "
                f"{Path.cwd()}, not at the YAML's folder: write absolute paths"
            )
        elif isinstance(error, ModuleNotFoundError):
            text += f"; install it: {_installing(error.name)}"
        raise InvalidTask(_KEY, text) from error


def _installing(module: str | None) -> str:
    """Return the extra of lm-eval that installs a package, where there is one."""
    for wanted in requires("lm_eval") or ():
        package, _, extra = wanted.partition("extra == ")
        if extra and re.split(r"[^\w.-]", package)[0] == module:
            return f"pip install 'lm-eval[{extra.strip()[1:-1]}]'"
    return f"pip install {module}"


@functools.cache
def built_in_tasks() -> TaskManager:
    """Return lm-eval's index of its own tasks; reading it takes seconds, once."""
    return TaskManager()


def _load_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        text = f"there is no file {path}; relative paths start at the working directory"
        raise InvalidTask(_KEY, text)
    with setting_up():  # functions that a task names are code, and not loaded yet
        content = load_yaml(path, resolve_func=False)
    if "group" in content:
        return _load_group(str(content["group"]), path, _members(content.get("task")))
    return _load(TaskManager(include_defaults=False), str(path.resolve()))


def _load_group(group: str, path: Path, members: Collection[str]) -> Mapping[str, Any]:
    # A group names its tasks, which are beside it or built in. lm-eval 0.4.13 fails
    # on the path of a group (it takes the list of tasks for its name).
    with setting_up():
        manager = TaskManager(include_path=str(path.parent), include_defaults=False)
        if not set(members) <= set(manager.all_tasks):
            manager = TaskManager(include_path=str(path.parent))
    entry = manager.task_index.get(group)
    if entry is None or str(entry.yaml_path) not in (str(path), str(path.resolve())):
        raise InvalidTask(
            _KEY,
            f"lm-eval does not find group {group!r} in {path}; give the group a name "
            "that nothing else in that folder has, and a file that ends in .yaml",
        )
    return _load(manager, group)


def _load(manager: TaskManager, name: str) -> Mapping[str, Any]:
    with setting_up():
        loaded: Mapping[str, Any] = manager.load([name])
    return loaded


def _members(tasks: Any) -> list[str]:
    listed = tasks if isinstance(tasks, list) else [tasks]
    named = [task.get("task") if isinstance(task, dict) else task for task in listed]
    return [name for name in named if isinstance(name, str)]


ANSWER_TOKENS = "answer_tokens"


METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="tokens")


_KIND = "generate_until"


def check_generation(loaded: Mapping[str, Any]) -> None:
    """Refuse tasks whose documents are not answered by generated text.

    Raises:
        InvalidTask: one is not.
    """
    for name, task in loaded["tasks"].items():
        if task.OUTPUT_TYPE != _KIND:
            raise InvalidTask(
                ("metric",),
                f"{ANSWER_TOKENS!r} is the length of what a model generates, but task "
                f"{name!r} has it choose or scores text ({task.OUTPUT_TYPE}); take a "
                "task that generates, such as gsm8k",
            )


def with_lengths(
    found: Sequence[Mapping[str, Any]], tokenizer: Any
) -> list[dict[str, Any]]:
    """Add the length of its answer to each sample of a task.

    The text is what lm-eval leaves of it, cut at its stop strings; of several answers
    to a document, their mean counts.
    """
    first = found[0]["filter"] if found else None
    return [
        {**sample, ANSWER_TOKENS: _length(sample, tokenizer)}
        for sample in found
        if sample["filter"] == first
    ]


def _length(sample: Mapping[str, Any], tokenizer: Any) -> float:
    texts = [text for answers in sample["resps"] for text in answers]
    counts = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    return sum(counts) / len(counts)


# By name, for aggregations of this module; a task's own may be on another scale.
_METRICS = "lm_eval.api.metrics"


_RANGES: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info"), (0.0, 1.0)),
    **dict.fromkeys(("acc_all", "exact_match", "em", "f1"), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    **dict.fromkeys(("bleu", "chrf", "chrf++"), (0.0, 100.0)),
    **dict.fromkeys(("perplexity", "word_perplexity", "byte_perplexity"), (1.0, None)),
    **dict.fromkeys(("bits_per_byte", "brier_score", "ter"), (0.0, None)),
}


_SCORED = frozenset({"loglikelihood", "loglikelihood_rolling"})


# Where the documents come from; the documents themselves are in the fingerprint.
_NOT_IDENTITY = {"dataset_path", "dataset_name", "dataset_kwargs", "custom_dataset"}


@dataclass(frozen=True, eq=False)
class HarnessTask:
    """One metric of one task or group of lm-eval, with its requests."""

    name: str
    metric: Metric
    fingerprint: str
    loaded: Mapping[str, Any]  # lm-eval's tasks and groups; they keep the requests
    subject: str  # the task or group whose result is read
    reading: str  # lm-eval's "<metric>,<filter>"
    limit: int | float | None
    chat: bool  # whether prompts get the tokenizer's chat template
    may_run_code: bool  # that a model wrote
    sizes: Mapping[str, int]  # documents of each task that has the reading
    partial: bool  # whether the value is an average, so that some documents say it

    @property
    def metric_name(self) -> str:
        """Return the metric's name in lm-eval."""
        return self.reading.partition(",")[0]


def load_harness(name: str, spec: LmEvalTask, directory: Path) -> HarnessTask:
    """Find the task, rehearse it and build its requests.

    Raises:
        InvalidTask: no such task, data, metric or filter, or the rehearsal failed.
    """
    with quiet(), separate_randomness(), cached_templates():
        loaded = find_tasks(spec.lm_eval, directory)
        subject = _choose_subject(loaded, spec)
        _set_shots(loaded, spec)
        with setting_up(), separate_randomness():
            results: Mapping[str, Any] = lm_eval.evaluate(
                lm=DummyLM(),
                task_dict=loaded,
                limit=2,
                bootstrap_iters=0,
                confirm_run_unsafe_code=spec.confirm_run_unsafe_code,
            )
        if subject not in results["results"]:
            text = f"the task is called {subject}, which is no text; put it in quotes"
            raise InvalidTask(("lm_eval",), text)
        if spec.metric == ANSWER_TOKENS:
            reading, metric = _answer_tokens(loaded, spec)
        else:
            reading = _choose_reading(results, subject, loaded, spec)
            metric = _describe_metric(results, loaded, spec)
        with setting_up():
            build_requests(loaded, spec.limit)
    tasks = loaded["tasks"]
    known = results["results"]
    parts = [
        leaf for leaf in tasks if spec.metric == ANSWER_TOKENS or reading in known[leaf]
    ]
    return HarnessTask(
        name=name,
        metric=metric,
        fingerprint=_fingerprint(loaded, subject, reading, spec),
        loaded=loaded,
        subject=subject,
        reading=reading,
        limit=spec.limit,
        chat=spec.apply_chat_template,
        may_run_code=spec.confirm_run_unsafe_code,
        sizes={leaf: len(list(tasks[leaf].doc_iterator())) for leaf in parts},
        partial=are_averages([aggregation_of(tasks[p], spec.metric) for p in parts]),
    )


def _answer_tokens(loaded: Mapping[str, Any], spec: LmEvalTask) -> tuple[str, Metric]:
    check_generation(loaded)
    if spec.filter is not None:
        raise InvalidTask(
            ("filter",),
            f"{ANSWER_TOKENS!r} counts answers before any filter; remove the filter",
        )
    lower, upper = spec.range or (METRIC.lower, METRIC.upper)
    higher = spec.direction == "maximize"
    metric = replace(METRIC, higher_is_better=higher, lower=lower, upper=upper)
    return f"{ANSWER_TOKENS},none", metric


def is_scored(loaded: Mapping[str, Any]) -> bool:
    """Whether all requests are log-likelihoods."""
    tasks = loaded["tasks"].values()
    return all(r.request_type in _SCORED for task in tasks for r in task.instances)


def _choose_subject(loaded: Mapping[str, Any], spec: LmEvalTask) -> str:
    if loaded["groups"]:
        return str(next(iter(loaded["groups"])))  # the one asked for comes first
    if len(loaded["tasks"]) != 1:
        raise InvalidTask(
            ("lm_eval",),
            f"{spec.lm_eval!r} is a tag of several tasks and has no value of its own; "
            f"name one of them: {', '.join(sorted(loaded['tasks']))}",
        )
    return str(next(iter(loaded["tasks"])))


def _set_shots(loaded: Mapping[str, Any], spec: LmEvalTask) -> None:
    for name, task in loaded["tasks"].items():
        own = task.config.num_fewshot
        if own == 0 and spec.num_fewshot:
            raise InvalidTask(
                ("num_fewshot",),
                f"lm-eval keeps the 0 examples that task {name!r} fixes itself, got "
                f"{spec.num_fewshot}; leave num_fewshot out, or give a task YAML of "
                "your own",
            )
        shots = own if spec.num_fewshot is None else spec.num_fewshot
        task.set_config("num_fewshot", shots or 0)


def _choose_reading(
    results: Mapping[str, Any],
    subject: str,
    loaded: Mapping[str, Any],
    spec: LmEvalTask,
) -> str:
    filters: dict[str, list[str]] = {}  # by metric
    for key in results["results"][subject]:
        metric, comma, name = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            filters.setdefault(metric, []).append(name)
    if not filters and subject in loaded["groups"]:
        raise InvalidTask(
            ("lm_eval",),
            f"group {subject!r} has no aggregate_metric_list and thus no value of its "
            f"own; name one of its tasks: {', '.join(sorted(loaded['tasks']))}",
        )
    if spec.metric == NO_METRIC:
        raise InvalidTask((), _missing_metric(subject, filters))
    if spec.metric not in filters:
        raise InvalidTask(
            ("metric",),
            f"lm-eval yields no metric {spec.metric!r} for {subject!r}; "
            + nearest(spec.metric, filters),
        )
    return f"{spec.metric},{_choose_filter(filters[spec.metric], spec)}"


def _missing_metric(subject: str, filters: Mapping[str, list[str]]) -> str:
    known = ", ".join(
        name + (f" (filter: {' or '.join(kept)})" if len(kept) > 1 else "")
        for name, kept in filters.items()
    )
    text = f"the key 'metric' is required and missing; {subject!r} has: {known}"
    if subject in PRESETS:
        text += f"; or write {{preset: {subject}}}, which knows it"
    return text


def _choose_filter(filters: list[str], spec: LmEvalTask) -> str:
    if spec.filter is None and len(filters) == 1:
        return filters[0]
    if spec.filter in filters:
        return spec.filter
    known = ", ".join(filters)
    problem = (
        f"{spec.metric!r} has several filters, name one with 'filter:'"
        if spec.filter is None
        else f"{spec.metric!r} has no filter {spec.filter!r}"
    )
    raise InvalidTask(("filter",), f"{problem}; known: {known}")


def _describe_metric(
    results: Mapping[str, Any], loaded: Mapping[str, Any], spec: LmEvalTask
) -> Metric:
    directions = {
        name: results["higher_is_better"][name].get(spec.metric)
        for name in loaded["tasks"]
        if any(key.startswith(f"{spec.metric},") for key in results["results"][name])
    }
    if spec.direction is not None:
        directions = {spec.lm_eval: spec.direction == "maximize"}
    if set(directions.values()) not in ({True}, {False}):
        raise InvalidTask(
            ("metric",),
            f"one direction of {spec.metric!r} is required, but higher_is_better is "
            f"{directions}; state it with 'direction: maximize' or 'minimize'",
        )
    lower, upper = spec.range or _known_range(loaded, spec.metric)
    return Metric(set(directions.values()) == {True}, lower, upper)


def _known_range(
    loaded: Mapping[str, Any], metric: str
) -> tuple[float | None, float | None]:
    aggregations = [task.aggregation().get(metric) for task in loaded["tasks"].values()]
    modules = {function.__module__ for function in aggregations if function}
    return _RANGES.get(metric, (None, None)) if modules == {_METRICS} else (None, None)


def _fingerprint(
    loaded: Mapping[str, Any], subject: str, reading: str, spec: LmEvalTask
) -> str:
    tasks = []
    for name, task in loaded["tasks"].items():
        config = {
            field.name: getattr(task.config, field.name)
            for field in dataclasses.fields(task.config)
            if field.name not in _NOT_IDENTITY
        }
        metadata = dict(config["metadata"] or {})
        metadata.pop("config_source", None)  # an absolute path
        prompts = [[i.request_type, i.args, i.doc_id, i.idx] for i in task.instances]
        documents = list(task.doc_iterator())
        tasks.append([name, {**config, "metadata": metadata}, prompts, documents])
    groups = [[g.name, g.aggregate_metric_list] for g in loaded["groups"].values()]
    of_run = [version("lm_eval"), subject, reading, spec.limit]
    # The number is the version of how the value is found: what is scored is so by us,
    # in other batches than lm-eval's, and what is generated by its loop.
    number = 2 if is_scored(loaded) else 1
    return fingerprint(
        "lm_eval", number, of_run, spec.apply_chat_template, tasks, groups
    )


@dataclass(frozen=True, eq=False)
class Average:
    """The ratio of two sums over documents, or its exponential."""

    totals: FloatArray  # (n,)
    weights: FloatArray  # (n,)
    exponential: bool = False

    @property
    def value(self) -> float:
        """Return the value over all documents."""
        return math.exp(self._ratio) if self.exponential else self._ratio

    @property
    def _ratio(self) -> float:
        return float(self.totals.sum() / self.weights.sum())


def aggregation_of(leaf: Any, metric: str) -> Callable[..., float]:
    """Return lm-eval's function that aggregates a metric over documents."""
    found: Callable[..., float] = leaf.aggregation().get(metric, metrics.mean)
    return found


def are_averages(aggregations: Sequence[Callable[..., float]]) -> bool:
    """Whether a task, or the mean of several, is one average of all documents.

    A ratio in a group is not: how much a document counts there depends on the others.
    """
    if len(aggregations) == 1:
        return aggregations[0] in _KNOWN
    return all(aggregation is metrics.mean for aggregation in aggregations)


def average(aggregation: Callable[..., float], values: Sequence[Any]) -> Average | None:
    """Convert lm-eval's results per document of one task; None for other metrics."""
    if aggregation not in _KNOWN:
        return None
    array = np.array(values, np.float64)  # (n,), or (n, 2) for a ratio of sums
    if aggregation in _RATIOS:
        totals, weights = array.T
    else:
        totals, weights = array, np.ones(len(array))
    if aggregation is metrics.mean:
        return Average(totals, weights)
    if aggregation is metrics.bits_per_byte:
        return Average(-totals / math.log(2), weights)
    return Average(-totals, weights, exponential=True)
