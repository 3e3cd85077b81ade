"""Earlier names of ``sentences``, for modules that still import them."""

from __future__ import annotations

from mergekit_map.results.front import Front
from mergekit_map.results.gains import Gains, Improvement, gains
from mergekit_map.results.sentences import difference, headline, perplexities, sample
from mergekit_map.results.sentences import share_in_words as share_in_words


def gains_in_words(front: Front, found: Gains | None = None) -> list[str]:
    """Write the headline and perplexities."""
    found = found or gains(front)
    return [headline(front, found), *perplexities(front, found)]


def worse_than_base(_front: Front, _found: Gains) -> list[str]:
    """Return nothing: the headline names these tasks."""
    return []


def confirmed_in_words(front: Front) -> tuple[str, ...]:
    """Write on which documents the gains were measured."""
    return (sample(front, gains(front)),)


def amount_in_words(gained: Improvement) -> str:
    """Write ``+0.085 ± 0.012``."""
    return difference(gained.amount, gained.stderr)
