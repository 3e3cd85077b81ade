"""The ends of the searched box, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mergekit_map.results.front import Front
from mergekit_map.results.quality import Border, Growth
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


def growth_in_words(front: Front, growth: Growth) -> Iterator[str]:
    """Say where the search moved an end of the box, or tried to."""
    name = growth.coefficient
    if growth.end != growth.start:
        lower, upper = front.coefficients[name]
        yield (
            f"The box grew to [{lower:.4g}, {upper:.4g}] for {name}, as merges "
            f"measured beyond {growth.start:.4g} were better."
        )
    if growth.tried is not None:
        yield (
            f"The box does not go beyond {growth.end:.4g} for {name}: better merges "
            f"were predicted there, but the one measured at {growth.tried:.4g} did not "
            "bear that out."
        )
