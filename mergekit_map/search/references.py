"""Measured values of the reference points: base, parents and soup.

Those that are merges of the search are measured with it. The others are linear merges
of the models, which lie in the same log under a fingerprint of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from mergekit_map.results.gains import Anchors, measured_anchors
from mergekit_map.results.log import Evaluation
from mergekit_map.search.measure import matching
from mergekit_map.search.study import Study


def on_disk_evaluations(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """List the measurements of reference points that are no merges of the search."""
    if study.on_disk is None:
        return []
    return matching(study.on_disk, log)


def reference_values(
    study: Study, known: Iterable[Evaluation], log: Iterable[Evaluation]
) -> Anchors:
    """Read the values of all reference points.

    Args:
        study: The study.
        known: Measurements of merges of the search.
        log: All measurements.
    """
    own = measured_anchors(study.anchors, known)
    if study.on_disk is None:
        return own
    others = measured_anchors(study.on_disk.anchors, on_disk_evaluations(study, log))
    return Anchors(
        {**own.values, **others.values},
        {**own.errors, **others.errors},
        {**own.noise, **others.noise},
    )
