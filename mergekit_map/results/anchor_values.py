"""What was measured at the anchors: base, single models, and their soup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, by_merge, merge_key

# Label of an anchor to task to what was measured there, in the task's own units.
AnchorValues: TypeAlias = Mapping[str, Mapping[str, float]]


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> AnchorValues:
    """Read what was measured at the anchors (label to coefficients)."""
    seen = by_merge(e for e in evaluations if not e.failed)
    return {
        label: {task: e.value for task, e in seen.get(merge_key(c), {}).items()}
        for label, c in anchors.items()
    }


def anchor_values(front: Front) -> AnchorValues:
    """Read them from a front."""
    return {
        anchor.label or "": {
            task: reading.value
            for task, reading in anchor.measured.items()
            if reading.value is not None
        }
        for anchor in front.anchors
    }
