"""AdaMerging, a baseline of table 4 (Yang et al., ICLR 2024): low entropy by descent.

No labels: Adam goes down the mean entropy of what the merge predicts, from 0.3 each, on
a batch of 16 blocks of every text per step. A coefficient is one of a model, or of a
layer of a model. Every step is a line of the log, with its derivatives, so that a
descent which was stopped goes on where it was.

The entropy of a text is that of the distribution over the next token, in nats, at every
position that its loss would score. It is averaged over a text, and then over the texts.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from mergekit_map.compare.baselines import elected, has_base, task_arithmetic
from mergekit_map.compare.measured_log import Rivals
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.yaml_file import put
from mergekit_map.errors import EvaluationError, MergeError
from mergekit_map.evaluation.evaluator import InMemory
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.gradients import differentiation
from mergekit_map.merging.in_memory import resident_merge
from mergekit_map.merging.space import Coefficient, MergeSpace, build_space
from mergekit_map.models.files import find_model
from mergekit_map.results.log import EvaluationLog, evaluation_key
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.base import PreparedTask, fingerprint
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.tasks.perplexity import (
    NOT_SCORED,
    Blocks,
    PerplexityText,
    make_blocks,
)
from mergekit_map.types import Differentiate, Measure, Measurement, Metric

STEPS = 30  # of each descent; the authors take 500
_ENTROPY = "next-token entropy"  # no task can have this name
_METRIC = Metric(higher_is_better=False, lower=0.0, upper=None, unit="nats")
_LAYER = re.compile(r".*?\.\d+\.")  # what the tensors of a layer begin with
START = 0.3  # of every coefficient, as in AdaMerging's own experiments
_RATE = 1e-3  # theirs, too, with 500 steps
_REACH = 0.5  # that is as far as they can come; fewer steps are longer
_DECAYS = (0.9, 0.999)
_TINY = 1e-8

_BLOCK = 256
_BATCH = 16  # blocks of each text and step, where it has more
_ROWS = 4  # blocks passed through the model at a time


def adapted(rivals: Rivals) -> dict[str, FloatArray]:
    """Go down the entropy, and measure where that ends; (m,) by name."""
    project = rivals.project
    if not all(isinstance(task, PerplexityText) for task in project.tasks.values()):
        return {}
    if project.spec.merge == "disk" or not has_base(project.space):
        return {}
    whole = task_arithmetic(project.space)
    trimmed = trimmed_task_vectors(project.space)
    spaces = {
        "AdaMerging": lambda: whole,
        "AdaMerging++": lambda: trimmed,
        "AdaMerging, per layer": lambda: per_layer(whole),
        "AdaMerging++, per layer": lambda: per_layer(trimmed),
    }
    return {name: _adapt(rivals, name, space) for name, space in spaces.items()}


def _adapt(rivals: Rivals, name: str, make: Callable[[], MergeSpace]) -> FloatArray:
    try:
        space = make()
        merge = _descend(rivals, replace(rivals.project, space=space))
    except (MergeError, EvaluationError) as error:
        rivals.notice(f"{name} has no numbers: {error}")
        return np.full(len(rivals.project.tasks), np.nan)
    return np.asarray(rivals.measure_all(name, space, [merge])[0])


def _descend(rivals: Rivals, project: Project) -> dict[str, float]:
    bench = rivals.bench
    study = replace(
        project.study(),
        tasks={_ENTROPY: _METRIC},
        definitions={_ENTROPY: entropy_fingerprint(project.tasks)[:16]},
    )
    with bench.open(project, _merges_with_entropy(project), study) as measure:
        return minimise_entropy(
            study, bench.log, lambda c: measure("baseline", [c]), STEPS
        )


@contextmanager
def _merges_with_entropy(project: Project) -> Iterator[InMemory]:
    checkpoint = project.spec.search.checkpoint_activations
    place = project.spec.task_vectors
    with resident_merge(project.space, project.options, place) as merge:
        differentiate = differentiation(
            merge, project.space, checkpoint_activations=checkpoint
        )
        measure = prepare_entropy(
            project.tasks,
            merge.model,
            merge.tokenizer,
            differentiate,
            lambda: drawn_by(merge.coefficients),
        )
        yield InMemory(merge, {_ENTROPY: measure})


def trimmed_task_vectors(space: MergeSpace) -> MergeSpace:
    """Return TIES without its mean, with a coefficient per model: AdaMerging++."""
    template = copy.deepcopy(dict(elected(space, "ties", 0.2, 1.0).template))
    del template["parameters"]
    for entry in template["models"]:
        del entry["parameters"]["weight"]
    searched, problems = build_space(template, SearchSpec())
    assert searched is not None, problems
    return searched


def per_layer(space: MergeSpace) -> MergeSpace:
    """Return a space with a coefficient for each model and layer.

    A tensor outside of the layers has one of its own.

    Raises:
        MergeError: the base model has no weights that can be read.
    """
    headers = find_model(str(space.template["base_model"])).headers()
    parts = dict.fromkeys(
        found[0] if (found := _LAYER.match(name)) else name for name in headers
    )
    # mergekit takes the first whose filter is a part of the name.
    parts = dict.fromkeys(sorted(parts, key=len, reverse=True))
    template = copy.deepcopy(dict(space.template))
    coefficients = []
    for whole in space.coefficients:
        [place] = whole.places
        put(template, place, [{"filter": part, "value": 0.0} for part in parts])
        coefficients += [
            Coefficient(f"{whole.name} {part}", whole.model, ((*place, i, "value"),))
            for i, part in enumerate(parts)
        ]
    bounds = np.tile([0.0, 1.0], (len(coefficients), 1))
    return MergeSpace(template, tuple(coefficients), bounds, parents=space.parents)


def minimise_entropy(
    study: Study,
    log: EvaluationLog,
    measure: Callable[[Mapping[str, float]], object],
    steps: int,
) -> dict[str, float]:
    """Go down the only task of ``study``; returns the coefficients after ``steps``.

    ``measure`` leaves a measurement with its gradient in the log, unless it is there.
    Coefficients stay in [0, 1], as in the authors' program.
    """
    (task,) = study.tasks
    rate = max(_RATE, _REACH / steps)
    c = np.full(len(study.bounds), START)
    mean, square = np.zeros_like(c), np.zeros_like(c)
    for step in range(1, steps + 1):
        named = study.named(c)
        measure(named)
        slope = study.vector(_gradient(study, log, task, named))
        mean = _DECAYS[0] * mean + (1 - _DECAYS[0]) * slope
        square = _DECAYS[1] * square + (1 - _DECAYS[1]) * slope**2
        unbiased = mean / (1 - _DECAYS[0] ** step)
        scale = np.sqrt(square / (1 - _DECAYS[1] ** step)) + _TINY
        c = np.clip(c - rate * unbiased / scale, 0.0, 1.0)
    return study.named(c)


def _gradient(
    study: Study, log: EvaluationLog, task: str, coefficients: Mapping[str, float]
) -> Mapping[str, float]:
    key = evaluation_key(coefficients, task)
    for e in reversed(matching(study, log)):
        slopes = e.gradient or {}
        if e.key == key and slopes and all(map(math.isfinite, slopes.values())):
            return slopes
    raise EvaluationError(
        f"the entropy at {dict(coefficients)} has no finite derivatives; see the last "
        f"lines of {log.path}"
    )


def entropy_fingerprint(tasks: Mapping[str, LoadedTask]) -> str:
    """Name all that decides the value, except the model."""
    # The number is the version of this module's definition of the value.
    parts = [task.fingerprint for task in tasks.values()]
    return fingerprint("next-token entropy", 2, _BLOCK, _BATCH, parts)


def drawn_by(coefficients: Mapping[str, float]) -> np.random.Generator:
    """Make what draws the batch of a step, the same whenever that is taken again."""
    return np.random.default_rng(np.array([*coefficients.values()]).view(np.uint64))


def prepare_entropy(
    tasks: Mapping[str, LoadedTask],
    model: PreTrainedModel,
    tokenizer: Any,
    differentiate: Differentiate,
    draws: Callable[[], np.random.Generator],
) -> Measure:
    """Tokenise once; each measurement has a derivative by each coefficient.

    ``draws`` gives the generator of a measurement, which draws its batch.
    """
    texts = [_blocks(task, model, tokenizer) for task in tasks.values()]

    def run() -> Measurement:
        rng = draws()
        total, count = 0.0, 0
        with differentiate() as derivatives:
            for text in texts:
                rows = _drawn(len(text.inputs), rng)
                for entropy in _entropies(model, text.some(rows)):
                    part = entropy / len(texts)
                    part.backward()  # type: ignore[no-untyped-call]
                    total += part.item()
                count += len(rows)
        return Measurement(total, None, count, gradient=dict(derivatives))

    return PreparedTask(lambda _: run(), sum(len(text.inputs) for text in texts))


def _blocks(task: LoadedTask, model: PreTrainedModel, tokenizer: Any) -> Blocks:
    assert isinstance(task, PerplexityText)
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return make_blocks(
        task.documents,
        tokenizer,
        length=min(_BLOCK, longest or _BLOCK),
        max_tokens=task.max_tokens,
    )


def _drawn(count: int, rng: np.random.Generator) -> list[int]:
    if count <= _BATCH:
        return [*range(count)]
    return sorted(rng.choice(count, _BATCH, replace=False).tolist())


def _entropies(model: PreTrainedModel, text: Blocks) -> Iterator[torch.Tensor]:
    """Yield what adds up to the mean entropy of some blocks, each part by itself."""
    scored = (text.targets != NOT_SCORED).to(model.device)
    for inputs, mask in zip(
        torch.split(text.inputs, _ROWS), torch.split(scored, _ROWS), strict=True
    ):
        logits = model(input_ids=inputs.to(model.device), use_cache=False).logits
        # It knows that what has no probability adds nothing and passes nothing back.
        predicted = torch.distributions.Categorical(logits=logits[mask].float())
        entropies: torch.Tensor = predicted.entropy()  # type: ignore[no-untyped-call]
        yield entropies.sum() / int(scored.sum())
