"""AdaMerging, a baseline of table 4 (Yang et al., ICLR 2024): low entropy by descent.

No labels: Adam goes down the mean entropy of what the merge predicts, from 0.3 each, on
a batch of 16 blocks of every text per step. A coefficient is one of a model, or of a
layer of a model.

The entropy of a text is that of the distribution over the next token, in nats, at every
position that its loss would score. It is averaged over a text, and then over the texts.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from mergekit_map.compare.baselines import elected, task_arithmetic
from mergekit_map.compare.contest import Bench
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.yaml_file import put
from mergekit_map.errors import EvaluationError
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.in_memory import ResidentMerge, resident_merge
from mergekit_map.merging.space import Coefficient, MergeSpace, build_space
from mergekit_map.models.files import find_model
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.loglikelihood import NOT_SCORED, Request
from mergekit_map.tasks.perplexity import make_blocks
from mergekit_map.utils.files import write_json

STEPS = 30  # of each descent; the authors take 500
_LAYER = re.compile(r".*?\.\d+\.")  # what the tensors of a layer begin with
START = 0.3  # of every coefficient, as in AdaMerging's own experiments
_RATE = 1e-3  # theirs, too, with 500 steps
_REACH = 0.5  # that is as far as they can come; fewer steps are longer
_STEP = 0.05  # to each side of a coefficient

_BLOCK = 256
_BATCH = 16  # blocks of each text and step, where it has more
_ROWS = 4  # blocks passed through the model at a time


def adapted(bench: Bench, kept: Path) -> dict[str, FloatArray]:
    """Go down the entropy, and measure where that ends; (m,) by name.

    Where it ends is written to a file, and not computed again.
    """
    arithmetic = task_arithmetic(bench.project.space)
    trimmed = trimmed_task_vectors(bench.project.space)
    spaces = {
        "AdaMerging": arithmetic,
        "AdaMerging++": trimmed,
        "AdaMerging, per layer": per_layer(arithmetic),
        "AdaMerging++, per layer": per_layer(trimmed),
    }
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    found = {}
    for name, space in spaces.items():
        if name not in known:
            known[name] = _descend(replace(bench.project, space=space))
            write_json(kept, known)
        found[name] = np.asarray(bench.baseline(name, space, [known[name]])[0])
    return found


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


def _descend(project: Project) -> dict[str, float]:
    """Return the coefficients after all steps; they stay in [0, 1], as the authors'."""
    names, rate = project.space.names, max(_RATE, _REACH / STEPS)
    weights = torch.full((len(names),), START, dtype=torch.float64)
    adam, c = torch.optim.Adam([weights], lr=rate), weights.numpy()
    place = project.spec.task_vectors
    with resident_merge(project.space, project.options, place) as merge:
        merge.model.requires_grad_()
        tasks = project.tasks.values()
        texts = [_blocks(task, merge.model, merge.tokenizer) for task in tasks]
        for _ in range(STEPS):
            merge.write(at := dict(zip(names, c.tolist(), strict=True)))
            # What draws the batch of a step is the same whenever that is taken again.
            rng = np.random.default_rng(c.view(np.uint64))
            for text in texts:
                n = len(text)
                rows = range(n) if n <= _BATCH else rng.choice(n, _BATCH, replace=False)
                for entropy in _entropies(merge.model, [text[i] for i in sorted(rows)]):
                    (entropy / len(texts)).backward()
            slope = _slopes(merge, at)
            if not np.isfinite(slope).all():
                raise EvaluationError(f"the entropy at {c} has no finite derivatives")
            weights.grad = torch.from_numpy(slope)
            adam.step()
            weights.clamp_(0.0, 1.0)
    return dict(zip(names, c.tolist(), strict=True))


def _slopes(merge: ResidentMerge, c: Mapping[str, float]) -> FloatArray:
    """Return the derivatives by the coefficients, and free those by the tensors.

    Differences of merges within [0, 1] include that elected signs turn.
    """
    slopes, targets = dict.fromkeys(c, 0.0), merge.model.state_dict(keep_vars=True)
    for tensor, replay in merge.replays.items():
        if targets[tensor].grad is None:
            continue  # nothing was passed back
        gradient, models = targets[tensor].grad.float().flatten(), replay.models
        deltas = replay.deltas.flatten(1).to(gradient)
        for name, weights in merge.weights.slopes.items():
            if any(weights[model].get(tensor) for model in models):
                ends = max(c[name] - _STEP, 0.0), min(c[name] + _STEP, 1.0)
                rows = [merge.weights.of(tensor, models, {**c, name: x}) for x in ends]
                columns = deltas.new_tensor(rows)[:, :, None]
                low, high = (replay.merge_deltas(deltas, each) for each in columns)
                slopes[name] += float((high - low) @ gradient) / (ends[1] - ends[0])
    merge.model.zero_grad()
    return np.array([*slopes.values()])


def _blocks(task: Any, model: PreTrainedModel, tokenizer: Any) -> list[Request]:
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return make_blocks(
        task.documents,
        tokenizer,
        length=min(_BLOCK, longest or _BLOCK),
        max_tokens=task.max_tokens,
    )


def _entropies(model: PreTrainedModel, text: list[Request]) -> Iterator[torch.Tensor]:
    """Yield what adds up to the mean entropy of some blocks, each part by itself."""
    inputs = torch.tensor([block.inputs for block in text]).to(model.device)
    targets = torch.tensor([block.targets for block in text]).to(model.device)
    scored = targets != NOT_SCORED
    for some, mask in zip(inputs.split(_ROWS), scored.split(_ROWS), strict=True):
        logits = model(input_ids=some, use_cache=False).logits
        # It knows that what has no probability adds nothing and passes nothing back.
        predicted = torch.distributions.Categorical(logits=logits[mask].float())
        entropies: torch.Tensor = predicted.entropy()  # type: ignore[no-untyped-call]
        yield entropies.sum() / int(scored.sum())
