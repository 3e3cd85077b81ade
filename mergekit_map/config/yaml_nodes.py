"""What a YAML file may hold, looked at before anything is made of it.

Aliases are cheap to write and dear to read: ten lines of them are ten thousand million
values. So values are counted as they would be read, and anchors that contain
themselves are found, on the nodes of the file, each of which is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

import yaml

from mergekit_map.errors import ConfigError

KeyPath: TypeAlias = tuple[str | int, ...]

MOST_BYTES = 1 << 18  # of a file; a large configuration has some thousand
MOST_VALUES = 20_000  # as read, aliases written out
MOST_LEVELS = 40
_LONGEST_NAME = 100  # characters of a key where its value is wrong
_LONGEST_KEY = 1000  # characters
_LONGEST_TEXT = 1 << 16  # a chat template has some thousand
_LONGEST_NUMBER = 100  # digits

# What no terminal, file name or JSON file takes: control characters but tab and line
# ends, and halves of characters.
_ODD = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN = "tag:yaml.org,2002:"
_TAGS = {f"{_PLAIN}{name}" for name in ("str", "int", "float", "bool", "null", "merge")}


class Loader(yaml.SafeLoader):
    """Reads what looks like a date as the text that it is, as YAML 1.2 does."""


Loader.yaml_implicit_resolvers = {
    start: [(tag, form) for tag, form in found if tag != f"{_PLAIN}timestamp"]
    for start, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def compose(text: str) -> yaml.Node | None:
    """Read the nodes of a text, which may be made into values; None of an empty one.

    Raises:
        ConfigError: the values are too many or too deep, or contain themselves.
        yaml.YAMLError: it is no YAML.
        ValueError: nor this.
    """
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=Loader)
    except RecursionError:
        raise ConfigError(_too_deep()) from None
    if node is not None:
        _measured(node, {}, ())
    return node


def oddities(node: yaml.Node) -> Iterator[tuple[KeyPath, yaml.Node, str]]:
    """List the nodes that no configuration may have: where, and what is wrong."""
    nodes: list[tuple[KeyPath, yaml.Node]] = [((), node)]
    seen = set()
    loader = Loader("")
    while nodes:
        place, node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if problem := _wrong_key(key):
                    yield place, key, problem
                nodes.append(((*place, str(key.value)[:_LONGEST_NAME]), value))
        elif isinstance(node, yaml.SequenceNode):
            nodes += [
                ((*place, number), item) for number, item in enumerate(node.value)
            ]
        if problem := _wrong_value(node, loader):
            yield place, node, problem


def _measured(
    node: yaml.Node, known: dict[int, tuple[int, int]], above: tuple[int, ...]
) -> tuple[int, int]:
    """Count the values in a node, itself included, and its levels."""
    line = node.start_mark.line + 1
    if id(node) in above:
        raise ConfigError(f"line {line}: an anchor contains itself; write it out")
    if len(above) >= MOST_LEVELS:
        raise ConfigError(f"line {line}: {_too_deep()}")
    if id(node) not in known:
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        inside = (*above, id(node))
        found = [_measured(part, known, inside) for part in parts]
        count = 1 + sum(number for number, _ in found)
        known[id(node)] = count, 1 + max((level for _, level in found), default=0)
    count, levels = known[id(node)]
    if count > MOST_VALUES:
        raise ConfigError(
            f"line {line}: with its aliases written out this is more than "
            f"{MOST_VALUES} values, which no merge has; write less"
        )
    if len(above) + levels > MOST_LEVELS:
        raise ConfigError(f"line {line}: {_too_deep()}")
    return count, levels


def _too_deep() -> str:
    return (
        f"lists and mappings lie in one another more than {MOST_LEVELS} levels deep; "
        "no configuration has as many, write it flatter"
    )


def _wrong_key(key: yaml.Node) -> str | None:
    if not isinstance(key, yaml.ScalarNode):
        return "keys are text, got a list or a mapping; write a name"
    if key.tag not in {f"{_PLAIN}str", f"{_PLAIN}merge"}:
        return f"keys are text, got {key.value}; put it in quotes"
    if len(key.value) > _LONGEST_KEY:
        return f"a key of {len(key.value)} characters; at most {_LONGEST_KEY} can be"
    return _odd_text(key.value)


def _wrong_value(node: yaml.Node, loader: Loader) -> str | None:
    if not isinstance(node, yaml.ScalarNode):
        whole = "map" if isinstance(node, yaml.MappingNode) else "seq"
        if node.tag == f"{_PLAIN}{whole}":
            return None
        return f"the tag {node.tag} has no meaning here; remove it"
    if node.tag not in _TAGS:
        return f"the tag {node.tag} has no meaning here; remove it"
    if node.tag == f"{_PLAIN}str":
        return _odd_text(node.value)
    if len(node.value) > _LONGEST_NUMBER:
        return f"a number of {len(node.value)} characters; write a shorter one"
    try:
        loader.construct_object(node)
    except (KeyError, ValueError, IndexError, yaml.YAMLError):
        kind = node.tag.removeprefix(_PLAIN)
        return f"{node.value!r} is no {kind}, as its tag says; remove the tag"
    return None


def _odd_text(text: str) -> str | None:
    if len(text) > _LONGEST_TEXT:
        return f"a text of {len(text)} characters; at most {_LONGEST_TEXT} can be"
    if found := _ODD.search(text):
        return f"the character {found[0]!r} cannot be used in a text; remove it"
    return None
