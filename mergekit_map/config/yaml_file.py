"""YAML files: read so that every key knows its line, and all written alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map.config.from_options import place_in_options
from mergekit_map.config.yaml_nodes import (
    MOST_BYTES,
    Loader,
    compose,
    oddities,
)
from mergekit_map.config.yaml_nodes import (
    KeyPath as KeyPath,
)
from mergekit_map.errors import ConfigError
from mergekit_map.words import bytes_in_words

_MOST_SHOWN = 20  # problems of one file
_LONGEST_REPORT = 1500  # characters of one of them

MergeConfig: TypeAlias = Mapping[str, Any]  # of mergekit's schema, without ``map``


@dataclass(frozen=True)
class YamlFile:
    """The content of a YAML file and the line of each of its keys."""

    path: Path
    text: str
    content: dict[str, Any]
    lines: Mapping[KeyPath, int]  # first line is 1
    repeated: tuple[KeyPath, ...]  # keys that stand twice in one mapping

    @property
    def merge(self) -> MergeConfig:
        """Give mergekit's part of it."""
        return {key: value for key, value in self.content.items() if key != "map"}

    def line(self, key: KeyPath) -> int:
        """Give the line of a key, or of the nearest enclosing key that is there."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 0)

    def locate(self, key: KeyPath) -> str:
        """Name file, line and key as far as they are known."""
        line = self.line(key)
        place = f"{self.path}:{line}" if line else str(self.path)
        place = place_in_options(place, self.text, key, self.content)
        return f"{place}: {format_key(key)}" if key else place


def format_key(key: KeyPath) -> str:
    """Write a key path as ``models[1].parameters.weight``."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if part.isprintable() else repr(part)
            text += f".{word}" if text else word
    return text


def existing(content: Any, key: KeyPath) -> KeyPath:
    """Keep of a key path what is in the content.

    pydantic adds names of union members and of missing keys to its locations.
    """
    place: list[str | int] = []
    for part in key:
        if isinstance(content, dict) and part in content:
            content = content[part]
        elif isinstance(content, list) and isinstance(part, int):
            if part >= len(content):
                break
            content = content[part]
        else:
            continue
        place.append(part)
    return tuple(place)


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file that holds one mapping.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML, not a mapping, or more
            than a configuration can be.
    """
    text = read_text(path)
    try:
        node = compose(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(node, yaml.MappingNode):
        kind = "" if node is None else node.tag.rpartition(":")[2]
        got = {"": "an empty file", "seq": "list"}.get(kind, kind)
        raise ConfigError(
            f"{path}: a mapping with merge_method, models and map was expected, got "
            f"{got}"
        )
    lines: dict[KeyPath, int] = {}
    repeated: list[KeyPath] = []
    _refuse_oddities(path, node)
    _walk(node, (), lines, repeated)
    try:
        content = _own_copies(yaml.load(text, Loader=Loader))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    return YamlFile(path, text, content, lines, tuple(repeated))


def with_count(path: Path, reports: Sequence[str]) -> ConfigError:
    """Report problems of a file, a line each, as one error."""
    count = f"{len(reports)} problem{'s' if len(reports) > 1 else ''}"
    shown = [shortened(report) for report in reports[:_MOST_SHOWN]]
    if len(reports) > _MOST_SHOWN:
        shown.append(f"and {len(reports) - _MOST_SHOWN} more")
    return ConfigError("\n".join([f"{count} in {path}:", *shown]))


def shortened(report: str) -> str:
    """Leave out the middle of a report that nobody would read whole."""
    if len(report) <= _LONGEST_REPORT:
        return report
    half = _LONGEST_REPORT // 2
    return f"{report[:half]} ... {report[-half:]}"


def read_text(path: Path) -> str:
    """Read a configuration as text.

    Raises:
        ConfigError: the file is missing, unreadable, or longer than any can be.
    """
    try:
        # Neither a pipe, which nobody may ever write to, nor a device without an end.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is no file; name a file, or copy it into one")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigError(
            f"{path}: a configuration has at most {bytes_in_words(MOST_BYTES)}, and "
            "this file has more; check the path"
        )
    return text


def _refuse_oddities(path: Path, node: yaml.Node) -> None:
    found: dict[tuple[int, str], None] = {}
    for key, odd, problem in oddities(node):
        line = odd.start_mark.line + 1
        name = f"{format_key(key)}: " if key else ""
        found[line, f"{path}:{line}: {name}{problem}"] = None
    if found:
        raise with_count(path, [report for _, report in sorted(found)])


def _own_copies(content: Any) -> Any:
    """Copy what YAML aliases share, so that each place can be filled by itself."""
    if isinstance(content, dict):
        return {key: _own_copies(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_own_copies(item) for item in content]
    return content


def _walk(
    node: yaml.Node, key: KeyPath, lines: dict[KeyPath, int], repeated: list[KeyPath]
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            child = (*key, str(key_node.value))
            if child in lines:
                repeated.append(child)
            lines[child] = key_node.start_mark.line + 1
            _walk(value_node, child, lines, repeated)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            child = (*key, index)
            lines[child] = item.start_mark.line + 1
            _walk(item, child, lines, repeated)


class _Dumper(yaml.SafeDumper):
    """Writes lists of numbers on one line, as mergekit's own configurations do."""


def _flow_numbers(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    numbers = all(isinstance(item, int | float) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=numbers)


_Dumper.add_representer(list, _flow_numbers)


def yaml_text(
    documents: Iterable[Any], comments: Iterable[str] = (), *, inline: bool = False
) -> str:
    """Write documents one below the other; ``comments`` stand on top, a line each.

    Numbers are exact. With ``inline``, what holds no list or mapping is on one line.
    """
    text = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        default_flow_style=None if inline else False,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
    lines = (" ".join(f"# {comment}".splitlines()).rstrip() for comment in comments)
    return "".join(f"{line}\n" for line in lines) + text
