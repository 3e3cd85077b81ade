"""Earlier names of ``sentences``, for modules that still import them."""

from __future__ import annotations

from mergekit_map.results.front import Front
from mergekit_map.results.sentences import findings_in_words
from mergekit_map.results.sentences import reason as reason


def verdicts_in_words(front: Front) -> tuple[str, ...]:
    """Write all findings."""
    decisive, details = findings_in_words(front)
    return (*decisive, *details)


def verdicts_of_points(front: Front) -> list[tuple[str, ...]]:
    """Write all findings with each point in turn as the chosen one."""
    chosen = (
        front.model_copy(update={"selected": index})
        for index in range(len(front.points))
    )
    return [verdicts_in_words(one) for one in chosen]


def choice_in_words(front: Front) -> tuple[str, ...]:
    """Write the findings that may change a decision."""
    return tuple(findings_in_words(front)[0])


warnings_in_words = choice_in_words


def missed_as_measured(_front: Front) -> list[str]:
    """Return nothing: the headline names limits that are missed."""
    return []


def prior_predictions_in_words(held: int, count: int) -> str:
    """Write the share of predictions made before measuring that held."""
    return (
        f"{held} of {count} predictions made before measuring fell within their 95 % "
        "interval."
    )
