"""What the screen says of its keys."""

from __future__ import annotations

import textwrap

_KEYS = (
    *("↑↓ move", "1-9 sort", "l limits", "space mark", "c compare", "i items"),
    *("v meaning", "s save", "m merge", "t talk", "p push", "? all keys", "q quit"),
)


def keys_text(width: int) -> str:
    """Put the keys into lines; a key and what it does stay in one."""
    lines = [""]
    for key in _KEYS:
        longer = f"{lines[-1]} · {key}" if lines[-1] else key
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(key)
    return "\n".join(lines)


_LIST = (
    "The list has a line for every point of the front. ~ before a number: predicted; "
    "without it the number was measured."
)
_MARKS = (
    (">", "the chosen point: its recipe is in recipe.yml"),
    ("*", "recommended: measured, and no measured merge is better on every task"),
    ("+", "marked, to compare with"),
    ("!", "does not keep the limits"),
    ("?", "wished for: it lies between points, and gets a recipe when it is saved"),
)
_PRESSED = (
    ("↑ ↓", "move along the front; page up, page down, home, end, too"),
    ("1 to 9", "sort by that task, the best first; once more, the best last"),
    ("0", "in the order of the front"),
    ("tab", "move between list and point, to scroll what is said of it"),
    (
        "l",
        "limits and preferences, in the words of select; the point that they choose is "
        "gone to, and nothing is written",
    ),
    ("x", "forget limits and preferences"),
    ("space", "mark a point"),
    ("c", "two points side by side; ← → for base, soup and models in place of one"),
    (
        "i",
        "items that got better or worse against a parent; ← → the next parent, tab the "
        "next task",
    ),
    ("v", "what the numbers mean"),
    ("s", "save: choose this point, as select does"),
    ("m", "merge it, as merge does"),
    ("t", "talk with the merge, in memory"),
    ("p", "push a merge to the Hub, as push does"),
    ("q", "quit"),
)
_GAINS = "Gains are larger where the point is better, whatever the task's direction."


def help_text(width: int) -> str:
    """Say what the list shows and what there is to press."""
    parts = [textwrap.fill(_LIST, width)]
    for pairs in (_MARKS, _PRESSED):
        keys = max(len(key) for key, _ in pairs) + 2
        lines = [
            textwrap.fill(
                about,
                width,
                initial_indent=key.ljust(keys),
                subsequent_indent=" " * keys,
            )
            for key, about in pairs
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, textwrap.fill(_GAINS, width)])
