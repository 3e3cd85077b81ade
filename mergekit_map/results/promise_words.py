"""What documents that a search never saw say of its choice, as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mergekit_map.measurement import BASE, SOUP
from mergekit_map.results.confirmation import Amount, Confirmation, Gain
from mergekit_map.results.front import Front
from mergekit_map.words import listed

_KINDS = ("better", "worse", "noise")


def confirmed_in_words(front: Front) -> tuple[str, ...]:
    """Say what was kept of what a search promised; nothing where it saw all."""
    return () if front.holdout is None else tuple(_sentences(front, front.holdout))


def _sentences(front: Front, holdout: Confirmation) -> Iterator[str]:
    place = holdout.place(front.chosen.coefficients)
    known = {} if place is None else holdout.merges[place].measured
    if not known:
        yield (
            "The chosen merge was not measured yet on "
            f"{_documents(front, holdout)}: merging it does so, or a search that is "
            "told to choose it."
        )
        return
    start = f"On {_documents(front, holdout)}, the chosen merge"
    for other, gains in _by_other(holdout):
        yield f"{start} is {_compared(front, other, gains)}."
        start = "It"
    if missing := [task for task in front.tasks if task not in known]:
        yield f"{listed(missing)} could not be measured there."
    if broken := [gain for gain in holdout.gains if gain.kept is False]:
        yield _broken(broken)
    if holdout.choices > 1:
        yield (
            f"{holdout.choices} choices were confirmed on these documents: the more "
            "there are, the less the best of them is confirmed."
        )


def _documents(front: Front, holdout: Confirmation) -> str:
    counts = {task: holdout.documents.get(task, 0) for task in front.tasks}
    if len({*counts.values()}) > 1:
        each = listed(f"{count} of {task}" for task, count in counts.items())
        return f"documents that the search never saw ({each})"
    of = " of each task" if len(counts) > 1 else ""
    return f"{min(counts.values())} documents{of} that the search never saw"


def _by_other(holdout: Confirmation) -> Iterator[tuple[str, list[Gain]]]:
    """Give gains over the base, the best single models, and the soup."""
    single = [g for g in holdout.gains if g.other not in {BASE, SOUP}]
    of_base, of_soup = (
        [g for g in holdout.gains if g.other == label] for label in (BASE, SOUP)
    )
    name = "the best single model"
    for other, gains in ((BASE, of_base), (name, single), (SOUP, of_soup)):
        if gains:
            yield other, gains


def _compared(front: Front, other: str, gains: Sequence[Gain]) -> str:
    texts: list[str] = []
    for kind in _KINDS:
        of_kind = [gain for gain in gains if gain.verdict == kind]
        if not of_kind:
            continue
        on = listed(_on(front, other, gain) for gain in of_kind)
        first = "" if texts else f" {'of' if kind == 'noise' else 'than'} {other}"
        word = "within noise" if kind == "noise" else kind
        texts.append(f"{word}{first} on {on}")
    return ", ".join(texts)


def _on(front: Front, other: str, gain: Gain) -> str:
    """Say by how much the chosen merge is better or worse, and what was promised."""
    metric = front.tasks[gain.task].metric
    name = gain.task if gain.other == other else f"{gain.task} ({gain.other})"
    unit = f" {metric.unit}" if metric.unit else ""
    promise = gain.measured or gain.predicted
    ahead = metric.sign * gain.held_out.value
    size = f"{_size(gain.held_out)}{unit}"
    if gain.verdict == "noise":
        size = f"{_direction(ahead)} by {size}"
        told = "" if promise is None else f", {_promised(metric.sign, promise, 0)}"
        return f"{name} ({size}{told})"
    told = "" if promise is None else f" ({_promised(metric.sign, promise, ahead)})"
    return f"{name} by {size}{told}"


def _promised(sign: int, promise: Amount, ahead: float) -> str:
    """Say a promise; its direction only where it is another one."""
    value = sign * promise.value
    if value * ahead > 0:
        return f"promised {_size(promise)}"
    return f"promised {_direction(value)} by {_size(promise)}"


def _direction(ahead: float) -> str:
    return "better" if ahead >= 0 else "worse"


def _size(amount: Amount) -> str:
    """Write as many digits as the standard error has a meaning for."""
    value, stderr = abs(amount.value), amount.stderr
    if not stderr:
        return f"{value:.2g}"
    digits = max(0, -math.floor(math.log10(stderr)))
    return f"{value:.{digits}f} ± {stderr:.{digits}f}"


def _broken(gains: Sequence[Gain]) -> str:
    which = listed(f"{gain.task} against {gain.other}" for gain in gains)
    was = "promise was" if len(gains) == 1 else "promises were"
    return f"The {was} off by more than chance for {which}: believe these documents."
