"""Removed keys and values of the ``map:`` block, and what to write instead.

An old configuration, or its copy in an old run folder, gets the sentence in place of
"unknown key".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mergekit_map.config.yaml_file import KeyPath

_NO_AUTO_BOUNDS = (
    "'bounds: auto' left; give two numbers such as [0, 1.4]. A finished search says "
    "which ends its front lies at, and what a larger box would gain"
)
_NO_GENERATE_BATCH = (
    "the engine 'generate_batch' left; write 'hf', which answers alike, or 'vllm'"
)

# By key below ``map``, ``*`` for the name of a task; a pair where only one value left.
REMOVED: Mapping[tuple[str, ...] | tuple[tuple[str, ...], object], str] = {
    (("engine",), "generate_batch"): _NO_GENERATE_BATCH,
    (("engine", "name"), "generate_batch"): _NO_GENERATE_BATCH,
    (("tasks", "*", "engine"), "generate_batch"): _NO_GENERATE_BATCH,
    (("tasks", "*", "engine", "name"), "generate_batch"): _NO_GENERATE_BATCH,
    (("search", "bounds"), "auto"): _NO_AUTO_BOUNDS,
    (("search", "bounds", "*"), "auto"): _NO_AUTO_BOUNDS,
    (("tasks", "*", "documents"), "auto"): (
        "'documents: auto' left; give a number such as 64, of documents that are the "
        "same for every merge, or remove it to measure all"
    ),
    ("search", "documents"): (
        "the budget in documents left; give one in 'hours', or limit the 'evaluations'"
    ),
}


def removed_keys(block: Mapping[str, Any]) -> dict[KeyPath, str]:
    """Return the sentence of each removed key or value in a block, by its place."""
    found: dict[KeyPath, str] = {}
    for pattern, sentence in REMOVED.items():
        path, value = _split(pattern)
        for place, content in _places(block, path):
            if value is None or content == value:
                found[("map", *place)] = sentence
    return found


def _split(pattern: Any) -> tuple[tuple[str, ...], object]:
    return pattern if isinstance(pattern[0], tuple) else (pattern, None)


def _places(content: Any, path: tuple[str, ...]) -> Iterator[tuple[KeyPath, Any]]:
    if not path:
        yield (), content
    elif isinstance(content, dict):
        keys = content if path[0] == "*" else [path[0]]
        for key in keys:
            if key in content:
                for place, value in _places(content[key], path[1:]):
                    yield (str(key), *place), value
