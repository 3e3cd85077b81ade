"""What a report says of each point of the front, as if that one were chosen.

Sentences are listed once, and points name them by their places. An amount is a list of
its value, its standard error and its verdict; larger is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mergekit_map.publish.public_items import ItemReader
from mergekit_map.results.finished import FinishedSearch
from mergekit_map.results.front import Front
from mergekit_map.results.gain_words import gains_in_words
from mergekit_map.results.gained import Gains, gains, rival_of
from mergekit_map.results.verdict_words import verdicts_of_points


def points_content(run: FinishedSearch) -> dict[str, object]:
    """Gather what is said of the points, in their order."""
    front, rivals = run.front, rivals_of(run.front)
    sentences: dict[str, int] = {}
    found = [
        (chosen, gains(chosen))
        for chosen in (
            front.model_copy(update={"selected": index})
            for index in range(len(front.points))
        )
    ]
    said = [
        {
            "ahead": [_amounts(front, of, rival) for rival in rivals],
            "kept": [_short(of.kept[task]) for task in front.tasks],
            "gained": _places(sentences, gains_in_words(chosen, of)),
            "verdicts": _places(sentences, verdicts),
        }
        for (chosen, of), verdicts in zip(found, verdicts_of_points(front), strict=True)
    ]
    return {
        "rivals": [
            {"label": label, "of": [_place(front, label, task) for task in front.tasks]}
            for label in rivals
        ],
        "said": said,
        "sentences": list(sentences),
        "apart": _apart(front),
        "items": list(_items(run)),
    }


def rivals_of(front: Front) -> list[str]:
    """List what a point is held against: base, soup and best parent, if they are."""
    return [rival.label for rival in gains(front).rivals]


def _place(front: Front, label: str, task: str) -> int | None:
    """Give the place of a rival among the anchors; the best parent goes by task."""
    rival = rival_of(front, label, task)
    return None if rival is None else front.anchors.index(rival)


def _amounts(front: Front, of: Gains, label: str) -> list[object]:
    rival = of.rival(label)
    tasks = rival.tasks if rival is not None else {}
    return [
        None
        if (one := tasks.get(task)) is None
        else (_short(one.amount), _short(one.stderr), one.verdict)
        for task in front.tasks
    ]


def _places(sentences: dict[str, int], said: Sequence[str]) -> list[int]:
    return [sentences.setdefault(text, len(sentences)) for text in said]


def _apart(front: Front) -> list[dict[str, object] | None]:
    """Give the standard errors of differences between measured points, by task."""
    n = len(front.points)
    found: list[dict[str, object] | None] = []
    for task in front.tasks:
        known = front.differences.get(task)
        points = [] if known is None else [i for i in known.merges if i < n]
        if known is None or len(points) < 2:
            found.append(None)
            continue
        # Points are counted first, so that theirs is a triangle at the start.
        found.append({"points": points, "stderr": known.stderr[: len(points) - 1]})
    return found


def _items(run: FinishedSearch) -> Iterator[dict[str, object]]:
    """Tell, of points whose records are there, what they won against each anchor."""
    front, read = run.front, ItemReader(run)
    for index, point in enumerate(front.points):
        if not any(reading.value is not None for reading in point.measured.values()):
            continue
        against = [
            [read.compare(point, anchor, task) for task in front.tasks]
            for anchor in front.anchors
        ]
        if any(found is not None for row in against for found in row):
            yield {"point": index, "against": against}


def _short(value: float | None) -> float | None:
    """Round to more digits than are shown."""
    return None if value is None else float(f"{value:.5g}")
