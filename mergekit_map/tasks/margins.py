"""By how much a choice was right or wrong, as lm-eval judges choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lm_eval.api.task import ConfigurableTask

from mergekit_map.search.arrays import FloatArray

_LEAST = math.ulp(0.0)


def choice_margins(
    leaf: Any, metric: str, samples: Sequence[Mapping[str, Any]]
) -> list[float] | None:
    """Subtract the best wrong choice from the best right one, for each sample.

    Scores are log-likelihoods, by length where the metric has it so. A margin is
    positive where lm-eval counts the answer as right: of two that tie, it takes the
    first. None where that is not how the metric comes about.
    """
    if not isinstance(leaf, ConfigurableTask) or leaf.OUTPUT_TYPE != "multiple_choice":
        return None
    if callable(leaf.config.process_results):
        return None
    margins = []
    for sample in samples:
        margin = _margin(leaf, metric, sample)
        if margin is None or (margin > 0) != bool(sample[metric]):
            return None
        margins.append(margin)
    return margins


def _margin(leaf: Any, metric: str, sample: Mapping[str, Any]) -> float | None:
    choices = leaf.doc_to_choice(sample["doc"])
    scores = _scores(metric, [r[0] for r in sample["filtered_resps"]], choices)
    right = _right(leaf, sample, choices)
    if scores is None or not right or len(right) == len(choices):
        return None
    best = max(scores[i] for i in right)
    margin = float(best - max(np.delete(scores, sorted(right))))
    if not math.isfinite(margin):
        return None
    return _LEAST if margin == 0 and int(np.argmax(scores)) in right else margin


def _scores(
    metric: str, loglikelihoods: Sequence[float], choices: Sequence[str]
) -> FloatArray | None:
    # For acc_mutual_info, those without the question follow those with it.
    known = np.array(loglikelihoods[: len(choices)], np.float64)
    if len(known) < len(choices):
        return None
    if metric == "acc":
        return known
    if metric == "acc_norm":
        return known / np.array([len(choice) for choice in choices], np.float64)
    if metric == "acc_bytes":
        return known / np.array([len(c.encode("utf-8")) for c in choices], np.float64)
    if metric == "acc_mutual_info" and len(loglikelihoods) == 2 * len(choices):
        return known - np.array(loglikelihoods[len(choices) :], np.float64)
    return None


def _right(leaf: Any, sample: Mapping[str, Any], choices: Sequence[str]) -> set[int]:
    """Find the right choices; none where they are not among the choices."""
    doc = sample["doc"]
    gold = leaf.doc_to_text(doc) if leaf.multiple_input else leaf.doc_to_target(doc)
    found = gold if isinstance(gold, list) else [gold]
    indices = {
        choices.index(one) if isinstance(one, str) and one in choices else one
        for one in found
    }
    known = range(len(choices))
    return indices if all(i in known for i in indices) else set()
