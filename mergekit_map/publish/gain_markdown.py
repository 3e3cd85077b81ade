"""What a merge gains, as a table of its model card."""

from __future__ import annotations

from mergekit_map.measurement import BASE, SOUP
from mergekit_map.publish.markdown import escaped, task_heading, written_table
from mergekit_map.results.front import Front
from mergekit_map.results.gain_words import amount_in_words, share_in_words
from mergekit_map.results.gained import BEST_PARENT, Gains, Rival, gains

_HEADINGS = {BASE: "base", SOUP: "uniform soup", BEST_PARENT: "best parent"}


def gain_section(front: Front) -> str:
    """Hold the merge against base, soup and best parents, task by task."""
    found = gains(front)
    header = ["task", "this model", *(_HEADINGS[r.label] for r in found.rivals)]
    rows = [
        [
            task_heading(front, task),
            _own(found, task),
            *(_rival(rival, task) for rival in found.rivals),
        ]
        for task in front.tasks
    ]
    note = (
        "± is one standard error. In brackets: by how much this model is ahead (+) or "
        "behind (-), and the standard error of that difference, item by item where "
        "both answered the same."
    )
    if any(share is not None for share in found.kept.values()):
        header.append("gain kept")
        for row, share in zip(rows, found.kept.values(), strict=True):
            row.append(share_in_words(share))
        note += (
            " Gain kept is the share of what the best parent gains over the base; the "
            "best parent may be another one for each task."
        )
    return f"{written_table(header, rows)}\n\n{escaped(note)}"


def _own(found: Gains, task: str) -> str:
    reading, source = found.readings[task], found.sources[task]
    if reading.value is None:
        return "not measured"
    return str(reading) if source == "measured" else f"{reading}, {source}"


def _rival(rival: Rival, task: str) -> str:
    gained = rival.tasks.get(task)
    if gained is None:
        return "not measured"
    text = f"{gained.reading} ({amount_in_words(gained)}, {gained.verdict})"
    return text if gained.other == rival.label else f"{gained.other}: {text}"
