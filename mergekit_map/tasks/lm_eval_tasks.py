"""Tasks of lm-evaluation-harness, found, checked and built before any model is loaded.

A task is built in and found by name, or a YAML file of the user. Its requests are built
once, and it is rehearsed with lm-eval's dummy model, which answers at random: that
shows which metrics and filters it really yields, and finds errors in templates, splits
and aggregations that lm-eval reports only after a whole evaluation. The length of
generated answers, in tokens of the merged model, is a metric of its own.

lm-eval guarantees none of the parts that are replaced here: hence the upper bound of
its version.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch  # raises AttributeError where a part is no more

import lm_eval
import lm_eval.utils
import numpy as np
from jinja2.sandbox import SandboxedEnvironment
from lm_eval.api import metrics
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator_utils import get_sample_size
from lm_eval.models.dummy import DummyLM
from lm_eval.tasks import TaskManager, _yaml_loader
from lm_eval.tasks._yaml_loader import load_yaml

from mergekit_map.config.tasks import NO_METRIC, PRESETS, LmEvalTask, is_task_file
from mergekit_map.errors import InvalidTask, in_words
from mergekit_map.tasks.base import fingerprint, quiet, separate_randomness
from mergekit_map.types import Metric
from mergekit_map.utils.text import nearest

_KEY = ("lm_eval",)
_FEWSHOT_SEED = 1234  # the default of the lm_eval command
_TEMPLATES = 4096  # that are kept compiled
ANSWER_TOKENS = "answer_tokens"
GENERATED = "generate_until"
SCORED = frozenset({"loglikelihood", "loglikelihood_rolling"})
# lm-eval's aggregations that are means of documents, or their exponentials, and what
# the mean is divided by.
MEANS = {
    metrics.mean: 1.0,
    np.mean: 1.0,  # of some tasks
    metrics.perplexity: -1.0,
    metrics.weighted_perplexity: -1.0,
    metrics.bits_per_byte: -math.log(2),
}
EXPONENTIAL = (metrics.perplexity, metrics.weighted_perplexity)
# By name, for lm-eval's own aggregations; a task's own may be on another scale.
_RANGES: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info"), (0.0, 1.0)),
    **dict.fromkeys(("acc_all", "exact_match", "f1", "em", "math_verify"), (0.0, 1.0)),
    **dict.fromkeys(("pass@1", "pass_at_1"), (0.0, 1.0)),
    **dict.fromkeys((f"prompt_level_{k}_acc" for k in ("strict", "loose")), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    **dict.fromkeys(("bleu", "chrf", "chrf++"), (0.0, 100.0)),
    **dict.fromkeys(("perplexity", "word_perplexity", "byte_perplexity"), (1.0, None)),
    **dict.fromkeys(("bits_per_byte", "brier_score", "ter"), (0.0, None)),
}
# Tasks without a mark that evaluate answers, one of them by sympy.
_EVALUATES = re.compile("robustness_math|longproc_countdown")
# Where the documents come from; the documents themselves are in the fingerprint.
_NOT_IDENTITY = {"dataset_path", "dataset_name", "dataset_kwargs", "custom_dataset"}
Loaded: TypeAlias = Mapping[str, Any]  # lm-eval's tasks and groups, with requests


@dataclass(frozen=True, eq=False)
class HarnessTask:
    """One metric of one task or group of lm-eval, with its requests."""

    name: str
    spec: LmEvalTask
    metric: Metric
    fingerprint: str
    loaded: Loaded
    subject: str  # the task or group whose result is read
    reading: str  # lm-eval's "<metric>,<filter>"
    sizes: Mapping[str, int]  # documents of each task that has the reading

    @property
    def requests(self) -> list[Any]:
        """Return the requests of all tasks."""
        tasks = self.loaded["tasks"].values()
        return [request for task in tasks for request in task.instances]

    @property
    def kinds(self) -> set[str]:
        """Return what a model is asked for: log-likelihoods, or text."""
        return {request.request_type for request in self.requests}

    @property
    def size(self) -> int:
        """Return how many documents it has."""
        return sum(self.sizes.values())

    @property
    def partial(self) -> bool:
        """Whether the value is an average, so that some documents estimate it.

        In a group, a ratio is not: the weight of a document there depends on others.
        """
        averages = MEANS if len(self.sizes) == 1 else {metrics.mean, np.mean}
        return all(self.aggregation(leaf) in averages for leaf in self.sizes)

    @property
    def by_size(self) -> bool:
        """Whether all documents of a group count alike, and not all of its tasks."""
        group = self.loaded["groups"].get(self.subject)
        if group is None or self.spec.metric == ANSWER_TOKENS:
            return True
        found = [c for c in group.aggregate_metric_list if c.metric == self.spec.metric]
        # The last entry of a metric is the one whose value lm-eval keeps.
        return bool(found[-1].weight_by_size)

    def aggregation(self, leaf: str) -> Callable[..., float]:
        """Return lm-eval's function that aggregates the metric over documents."""
        by_metric = self.loaded["tasks"][leaf].aggregation()
        function: Callable[..., float] = by_metric.get(self.spec.metric, metrics.mean)
        return function


def load_harness(name: str, spec: LmEvalTask, directory: Path) -> HarnessTask:
    """Find the task, rehearse it and build its requests, or raise InvalidTask."""
    with quiet(), separate_randomness(), cached_templates():
        loaded = find_tasks(spec.lm_eval, directory)
        subject = _choose_subject(loaded, spec)
        _set_shots(loaded, spec)
        with setting_up():
            build_requests(loaded, spec.limit)
        tasks = loaded["tasks"]
        runs_code = any(
            getattr(task, "UNSAFE_CODE", False) or _EVALUATES.search(name)
            for name, task in tasks.items()
        )
        if runs_code and not spec.confirm_run_unsafe_code:
            text = "it runs code that a model writes, on this machine; true allows it"
            raise InvalidTask(("confirm_run_unsafe_code",), text)
        model = DummyLM()
        # Its own does not take an empty prompt.
        model.generate_until = lambda requests, **_: ["lol"] * len(requests)
        with setting_up(_ACCEPT_ANY_ANSWER), separate_randomness():
            results: Mapping[str, Any] = lm_eval.evaluate(
                lm=model,
                task_dict=with_documents(loaded, None),
                bootstrap_iters=0,
                confirm_run_unsafe_code=spec.confirm_run_unsafe_code,
            )
        readings = results["results"]
        if spec.metric == ANSWER_TOKENS:
            reading, metric = _answer_tokens(loaded, spec)
            parts = list(tasks)
        else:
            reading = _choose_reading(readings[subject], subject, loaded, spec)
            parts = [leaf for leaf in tasks if reading in readings[leaf]]
            metric = _describe_metric(results, loaded, parts, spec)
    return HarnessTask(
        name=name,
        spec=spec,
        metric=metric,
        fingerprint=_fingerprint(loaded, subject, reading, spec),
        loaded={**loaded, "tasks": {leaf: tasks[leaf] for leaf in parts}},
        subject=subject,
        reading=reading,
        sizes={leaf: len(list(tasks[leaf].doc_iterator())) for leaf in parts},
    )


def find_tasks(name: str, directory: Path) -> Loaded:
    """Load a built-in task, group or tag, or a YAML file relative to ``directory``.

    Returns lm-eval's mapping with "tasks" and "groups", their data loaded. Raises
    InvalidTask if there is no such task or file, or it cannot be loaded.
    """
    if is_task_file(name):
        manager, path = TaskManager(include_defaults=False), directory / name
        with setting_up():  # functions that a task names are code, and not loaded yet
            content = load_yaml(path, resolve_func=False)
        if "group" in content:
            text = f"{path} is a group, which lm-eval finds by name alone"
            raise InvalidTask(_KEY, f"{text}; give its tasks one by one")
        name = str(path.resolve())
    else:
        manager = built_in_tasks()
        if name not in manager.task_index:
            text = f"lm-eval has no task, group or tag {name!r}; "
            text += f"{nearest(name, manager.all_tasks)} A task of your own is named "
            raise InvalidTask(_KEY, f"{text}by the path of its .yaml file")
    with setting_up():
        loaded: Loaded = manager.load([name])
    return loaded


_LOOK_FOR_DATA = (
    "its dataset must be on the Hub or, offline, in the cache, its data_files absolute "
    "paths, and what it imports installed, such as lm-eval[ifeval]"
)
_ACCEPT_ANY_ANSWER = (
    "its functions got made-up answers, 'lol' where text is generated, and must accept "
    "any answer"
)


@contextmanager
def setting_up(remedy: str = _LOOK_FOR_DATA) -> Iterator[None]:
    """Convert errors of lm-eval or a task's code to a message with a remedy."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit, too: the search is not what ends
        raise InvalidTask(
            _KEY, f"lm-eval cannot set this task up: {in_words(error)}; {remedy}"
        ) from error


@functools.cache
def built_in_tasks() -> TaskManager:
    """Return lm-eval's index of its own tasks; reading it takes seconds, once.

    Its 14,000 files include a few hundred others. Each of these is read once here.
    """
    read_once = functools.cache(functools.partial(load_yaml, resolve_func=False))
    with patch.object(
        _yaml_loader, "load_yaml", lambda path, **_: copy.deepcopy(read_once(path))
    ):
        return TaskManager()


def cached_templates() -> AbstractContextManager[Any]:
    """Compile each template once, in a sandbox: lm-eval's reach all of Python.

    lm-eval compiles it again for each field, which takes half of the time.
    """
    return patch.object(lm_eval.utils.env, "from_string", _compile)


@functools.lru_cache(_TEMPLATES)
def _compile(source: str) -> Any:
    env = lm_eval.utils.env
    sandbox = SandboxedEnvironment(
        loader=env.loader,
        undefined=env.undefined,
        keep_trailing_newline=env.keep_trailing_newline,
    )
    sandbox.filters.update(env.filters)
    return sandbox.from_string(source)


def build_requests(loaded: Loaded, limit: int | float | None, **chat: Any) -> None:
    """Build the requests of all tasks once, for every evaluation.

    Each time, lm-eval would draw other few-shot examples, and a task might make other
    documents at random. ``chat`` is what lm-eval's ``build_all_requests`` needs to
    apply a chat template.
    """
    for task in loaded["tasks"].values():
        task.set_fewshot_seed(_FEWSHOT_SEED)
        size = get_sample_size(task, limit)
        documents = list(task.doc_iterator(limit=size))
        task.doc_iterator = functools.partial(same_documents, documents)
        task.build_all_requests(limit=size, **chat)


def with_documents(
    loaded: Loaded, places: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    """Return tasks with some of their documents, by place; without the other tasks.

    Requests and documents are those of ``build_requests``, without responses. lm-eval
    would build all of them again, and add responses to those that are there; its own
    ``samples`` numbers documents anew, and needs one of each task.
    """
    parts = {}
    for name, task in loaded["tasks"].items():
        if places is not None and name not in places:
            continue
        documents = list(task.doc_iterator())
        if places is not None:
            documents = [documents[place] for place in places[name]]
        ids = {doc_id for doc_id, _ in documents}
        part = parts[name] = copy.copy(task)
        part.doc_iterator = functools.partial(same_documents, documents)
        part.build_all_requests = lambda **_: None
        part._instances = [
            replace(request, resps=[], filtered_resps={})
            for request in task.instances
            if request.doc_id in ids
        ]
    return {**loaded, "tasks": parts}


def same_documents(documents: list[Any], **_: Any) -> Iterator[Any]:
    """Iterate over fixed documents, as a task does over its own."""
    return iter(copy.deepcopy(documents))  # tasks may change theirs


def _answer_tokens(loaded: Loaded, spec: LmEvalTask) -> tuple[str, Metric]:
    if spec.filter is not None:
        text = f"{ANSWER_TOKENS!r} are counted before any filter; remove this key"
        raise InvalidTask(("filter",), text)
    for name, task in loaded["tasks"].items():
        if others := {i.request_type for i in task.instances} - {GENERATED}:
            raise InvalidTask(
                ("metric",),
                f"{ANSWER_TOKENS!r} is the length of what a model generates, but task "
                f"{name!r} has it choose or scores text ({', '.join(sorted(others))}); "
                "take a task that generates, such as gsm8k",
            )
    ends = spec.range or (0.0, None)
    metric = Metric(spec.direction == "maximize", *ends, unit="tokens")
    return f"{ANSWER_TOKENS},none", metric


def _choose_subject(loaded: Loaded, spec: LmEvalTask) -> Any:
    if not loaded["groups"] and len(loaded["tasks"]) != 1:
        raise InvalidTask(
            ("lm_eval",),
            f"{spec.lm_eval!r} is a tag of several tasks and has no value of its own; "
            f"name one of them: {', '.join(sorted(loaded['tasks']))}",
        )
    return next(iter(loaded["groups"] or loaded["tasks"]))  # the one asked for is first


def _set_shots(loaded: Loaded, spec: LmEvalTask) -> None:
    for name, task in loaded["tasks"].items():
        if (own := task.config.num_fewshot) == 0 and spec.num_fewshot:
            raise InvalidTask(
                ("num_fewshot",),
                f"lm-eval keeps the 0 examples that task {name!r} fixes itself, got "
                f"{spec.num_fewshot}; leave num_fewshot out, or give a task YAML of "
                "your own",
            )
        shots = own if spec.num_fewshot is None else spec.num_fewshot
        task.set_config("num_fewshot", shots or 0)


def _choose_reading(
    readings: Mapping[str, Any], subject: str, loaded: Loaded, spec: LmEvalTask
) -> str:
    filters: dict[str, list[str]] = {}  # by metric
    for key in readings:
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
        text = "the key 'metric' is required and missing; "
        text += f"{subject!r} has: {', '.join(filters)}"
        if subject in PRESETS:
            text += f"; or write {{preset: {subject}}}, which knows it"
        raise InvalidTask((), text)
    if spec.metric not in filters:
        text = f"lm-eval yields no metric {spec.metric!r} for {subject!r}; "
        raise InvalidTask(("metric",), text + nearest(spec.metric, filters))
    names = filters[spec.metric]
    chosen = [name for name in names if spec.filter in (None, name)]
    if len(chosen) != 1:
        problem = f"has no filter {spec.filter!r}; known"
        if chosen:
            problem = "has several filters, name one with 'filter:'; known"
        text = f"{spec.metric!r} {problem}: {', '.join(names)}"
        raise InvalidTask(("filter",), text)
    return f"{spec.metric},{chosen[0]}"


def _describe_metric(
    results: Mapping[str, Any], loaded: Loaded, parts: Sequence[str], spec: LmEvalTask
) -> Metric:
    declared = results["higher_is_better"]
    directions = {leaf: declared[leaf].get(spec.metric) for leaf in parts}
    if spec.direction is not None:
        directions = {spec.lm_eval: spec.direction == "maximize"}
    if set(directions.values()) not in ({True}, {False}):
        raise InvalidTask(
            ("metric",),
            f"one direction of {spec.metric!r} is required, but higher_is_better is "
            f"{directions}; state it with 'direction: maximize' or 'minimize'",
        )
    by_metric = [task.aggregation() for task in loaded["tasks"].values()]
    modules = {a[spec.metric].__module__ for a in by_metric if spec.metric in a}
    known = _RANGES.get(spec.metric) if modules == {metrics.__name__} else None
    ends = spec.range or known or (None, None)
    return Metric(all(directions.values()), *ends, unit=spec.metric)


def _fingerprint(loaded: Loaded, subject: str, reading: str, spec: LmEvalTask) -> str:
    tasks = []
    for name, task in loaded["tasks"].items():
        config = {
            field.name: getattr(task.config, field.name)
            for field in fields(task.config)
            if field.name not in _NOT_IDENTITY
        }
        metadata = dict(config["metadata"] or {})
        metadata.pop("config_source", None)  # an absolute path
        prompts = [[i.request_type, i.args, i.doc_id, i.idx] for i in task.instances]
        documents = list(task.doc_iterator())
        own = [] if type(task) is ConfigurableTask else [type(task)]
        tasks.append([name, {**config, "metadata": metadata}, prompts, documents, *own])
    groups = [[g.name, g.aggregate_metric_list] for g in loaded["groups"].values()]
    of_run = [version("lm_eval"), subject, reading, spec.limit]
    # The version of how values are computed. Log-likelihoods are scored by us, in other
    # batches than lm-eval's; text is generated by lm-eval's loop.
    instances = (i for task in loaded["tasks"].values() for i in task.instances)
    version_of_values = 2 if {i.request_type for i in instances} <= SCORED else 1
    return fingerprint(
        "lm_eval", version_of_values, of_run, spec.apply_chat_template, tasks, groups
    )
