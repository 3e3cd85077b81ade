"""The ends of the searched box, in sentences."""

from __future__ import annotations

from mergekit_map.results.front import Front
from mergekit_map.results.quality import Border
from mergekit_map.words import percent


def border_in_words(front: Front, border: Border) -> str:
    """Say how many points lie at an end of the box, and what may lie beyond."""
    name = border.coefficient
    lie = "lies" if border.points == 1 else "lie"
    return (
        f"{border.points} of {len(front.points)} points {lie} at weight "
        f"{border.end:.4g} for {name}: searching to {border.beyond:.4g} would gain "
        f"about {percent(border.gain)} of the hypervolume, as the surrogates go on."
    )
