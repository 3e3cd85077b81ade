"""The ``map:`` block as lines of YAML, with the names of models and tasks filled in."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import yaml

from mergekit_map.config.task_specs import TASK_NAME

_BENCHMARK = "    # gsm8k: {preset: gsm8k}  # a benchmark by name"
_TO_FILL_IN = "    # a text of each kind, which no model was trained on"


def map_block(
    models: Sequence[str], tasks: Mapping[str, str], *, on_base: bool = False
) -> list[str]:
    """Write a ``map:`` block line by line; without tasks, one a model to fill in.

    What is merged on a base is to be no worse than that.
    """
    names = list(tasks) or task_names(map(last_part, models))
    known = tasks or {
        name: f"{{perplexity: {scalar(f'{name}.txt')}}}" for name in names
    }
    weights = ", ".join(f"{scalar(name)}: 1" for name in names)
    wish = f"prefer: {{{weights}}}"
    return [
        "map:",
        "  tasks:  # what is measured, each under a name of your own",
        *([] if tasks else [_TO_FILL_IN]),
        *(f"    {scalar(name)}: {task}" for name, task in known.items()),
        *([] if tasks else [_BENCHMARK]),
        "  # search: {evaluations: 12}  # at most; or {hours: 2}",
        f"  select: {{not_worse_than: base}}  # and, as each counts, {wish}"
        if on_base
        else f"  # select: {{{wish}}}  # how much each task counts",
    ]


def last_part(model: str) -> str:
    """Call a model as its folder or repository is called."""
    return model.split("+")[-1].partition("@")[0].rstrip("/").rpartition("/")[2]


def task_names(wishes: Iterable[str]) -> list[str]:
    """Make names that tasks may have, each another."""
    names: list[str] = []
    for wish in wishes:
        word = re.sub(r"[^A-Za-z0-9_.-]", "-", wish)
        word = word if TASK_NAME.fullmatch(word) else f"task{word}"
        numbered = (f"{word}-{number}" for number in itertools.count(2))
        names.append(
            next(w for w in itertools.chain([word], numbered) if w not in names)
        )
    return names


def scalar(text: str) -> str:
    """Write text as YAML, plain where nothing in it means something else."""
    is_plain = re.fullmatch(r"[\w./][\w./~@+-]*", text) and yaml.safe_load(text) == text
    # JSON quotes whatever there may be, and YAML reads JSON.
    return text if is_plain else json.dumps(text, ensure_ascii=False)
