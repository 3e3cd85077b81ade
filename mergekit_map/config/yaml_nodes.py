"""What a YAML file may hold, looked at before anything is made of it.

Aliases are cheap to write and dear to read: ten lines of them are ten thousand million
values. So values are counted as they would be read, and anchors that contain
themselves are found, on the nodes of the file, each of which is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
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
        raise ConfigError(_too_deep(MOST_LEVELS)) from None
    if node is not None:
        check_size(node, MOST_VALUES, MOST_LEVELS)
    return node


def check_size(node: yaml.Node, most_values: int, most_levels: int) -> None:
    """Refuse what is too much once it is read, aliases written out.

    Raises:
        ConfigError: the values are too many or too deep, or contain themselves.
    """
    _Size(most_values, most_levels).measured(node, ())


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


@dataclass(frozen=True)
class _Size:
    """How much a file may hold."""

    values: int
    levels: int
    known: dict[int, tuple[int, int]] = field(default_factory=dict)

    def measured(self, node: yaml.Node, above: tuple[int, ...]) -> tuple[int, int]:
        """Count the values in a node, itself included, and its levels."""
        line = node.start_mark.line + 1
        if id(node) in above:
            raise ConfigError(f"line {line}: an anchor contains itself; write it out")
        if len(above) >= self.levels:
            raise ConfigError(f"line {line}: {_too_deep(self.levels)}")
        if id(node) not in self.known:
            inside = (*above, id(node))
            found = [self.measured(part, inside) for part in _parts(node)]
            count = 1 + sum(number for number, _ in found)
            levels = 1 + max((level for _, level in found), default=0)
            self.known[id(node)] = count, levels
        count, levels = self.known[id(node)]
        if count > self.values:
            raise ConfigError(
                f"line {line}: with its aliases written out this is more than "
                f"{self.values} values; write less"
            )
        if len(above) + levels > self.levels:
            raise ConfigError(f"line {line}: {_too_deep(self.levels)}")
        return count, levels


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _too_deep(levels: int) -> str:
    return (
        f"lists and mappings lie in one another more than {levels} levels deep; "
        "write it flatter"
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
