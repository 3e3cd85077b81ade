"""YAML files: read with the line of every key, and written in one style."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import read_whole, sha256
from mergekit_map.utils.text import cut_short

WRITTEN = "Written by mergekit-map from options; edit it, and name it in their place."
PASSING = "What the options of one command stand for, there as long as it runs."
_SIGNATURE = re.compile(r"^# \(as written: \w+\)\n", re.M)
_OPTIONS = {
    "merge_method": "--method",
    "parameters": "--method",
    "base_model": "--base",
    "models": "--model",
    "dtype": "--dtype",
}
KeyPath: TypeAlias = tuple[str | int, ...]
_MOST_BYTES = 1 << 18  # of a file; a large configuration has some thousand
_MOST_VALUES = 20_000  # as read, aliases written out
_MOST_LEVELS = 40
# What no terminal, file name or JSON file takes: control characters but tab and line
# ends, and halves of characters.
_ODD = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
_TEXT = f"{_TAG}str"
_MOST_SHOWN = 20  # problems of one file
_LONGEST_REPORT = 1500  # characters of one of them
MergeConfig: TypeAlias = Mapping[str, Any]  # of mergekit's schema, without ``map``


def signed(text: str) -> str:
    """Add a digest of the text to its first comments, which shows later edits."""
    comments = re.match(r"(#.*\n)*", text)
    end = comments.end() if comments else 0
    return f"{text[:end]}# (as written: {sha256(text)[:8]})\n{text[end:]}"


def is_unedited(text: str) -> bool:
    """Whether a file is as ``signed`` returned it."""
    return signed(_SIGNATURE.sub("", text, count=1)) == text


def place_in_options(
    place: str, text: str, key: KeyPath, content: Mapping[str, Any]
) -> str:
    """Return the option that a key of a file comes from, with the key's place."""
    passing = text.startswith(f"# {PASSING}\n")
    if not passing and not (text.startswith(f"# {WRITTEN}\n") and is_unedited(text)):
        return place
    option = _OPTIONS.get(str(key[0])) if key else None
    if key[:2] == ("map", "tasks") and len(key) > 2:
        task = content["map"]["tasks"][key[2]]
        option = "--text" if "perplexity" in task else "--task"
    elif len(key) > 2:  # of map.search or map.select
        option = f"--{key[2]}".replace("_", "-")
    if passing:
        return option or "the options"
    return f"{place} ({option})" if option else place


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
        """Return mergekit's part of it."""
        return {key: value for key, value in self.content.items() if key != "map"}

    def line(self, key: KeyPath) -> int:
        """Return the line of a key, or of its nearest enclosing key in the file."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key, 0)

    def locate(self, key: KeyPath) -> str:
        """Return file, line and key as text, as far as they are known."""
        line = self.line(key)
        place = f"{self.path}:{line}" if line else str(self.path)
        place = place_in_options(place, self.text, key, self.content)
        named = not key or place in _OPTIONS.values()
        return place if named else f"{place}: {format_key(key)}"


def format_key(key: KeyPath) -> str:
    """Return a key path as ``models[1].parameters.weight``."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            word = part if part.isprintable() else repr(part)
            text += f".{word}" if text else word
    return text


def existing(content: Any, key: KeyPath) -> KeyPath:
    """Return the longest beginning of a key path that exists in the content.

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


def put(config: Any, place: Sequence[Any], value: Any) -> None:
    """Set a value in nested mappings and lists; create missing ones on the way."""
    for part, following in itertools.pairwise(place):
        if isinstance(part, str) and config.get(part) is None:
            config[part] = [] if isinstance(following, int) else {}
        config = config[part]
    config[place[-1]] = value


def filled(
    config: MergeConfig,
    places: Mapping[str, Iterable[Sequence[Any]]],
    remainder: Iterable[Sequence[Any]],
    values: Mapping[str, float],
) -> dict[str, Any]:
    """Return a configuration with values in their places, all by name.

    At the places of the remainder is 1 minus the sum of all.
    """
    found, rest = copy.deepcopy(dict(config)), 1.0
    for name, own in places.items():
        rest -= values[name]
        for place in own:
            put(found, place, float(values[name]))
    for place in remainder:
        put(found, place, rest)
    return found


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file that holds one mapping.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML, not a mapping, or more
            than a configuration can be.
    """
    text, places = read_text(path), _Places(path)
    try:
        node = yaml.compose(text, Loader=Loader)
        if not isinstance(node, yaml.MappingNode):
            kind = "" if node is None else node.tag.removeprefix(_TAG)
            got = {"": "an empty file", "seq": "list"}.get(kind, kind)
            raise ConfigError(
                f"{path}: a mapping with merge_method, models and map was expected, "
                f"got {got}"
            )
        places.walk(node, ())
        # As JSON, aliases share nothing, and each place can be filled by itself.
        content = json.loads(json.dumps(yaml.load(text, Loader=Loader)))
    except RecursionError:
        raise _too_much(str(path)) from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if places.problems:
        reports = [f"{path}:{n}: {text}" for n, text in sorted({*places.problems})]
        raise with_count(path, reports)
    return YamlFile(path, text, content, places.lines, tuple(places.repeated))


def _too_much(place: str) -> ConfigError:
    return ConfigError(
        f"{place}: more than {_MOST_VALUES} values with its aliases written out, or "
        f"more than {_MOST_LEVELS} levels; write less, or flatter"
    )


def with_settings(
    file: YamlFile, settings: Mapping[str, Mapping[str, Any]]
) -> YamlFile:
    """Set keys of the ``map:`` block, in content and text; lines stay the file's.

    What is no mapping stays as it is; its validation reports that.
    """
    old = file.content.get("map")
    new = dict(old) if isinstance(old, dict) else {}
    for block, values in settings.items() if new else ():
        if values and isinstance(new.get(block) or {}, dict):
            new[block] = {**(new.get(block) or {}), **values}
    if not new or new == old:
        return file
    content = {**file.content, "map": new}
    text = yaml_text([content], [f"{file.path.name}, with keys set by options"])
    return replace(file, text=text, content=content)


def flow_text(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6
    )
    return text.removesuffix("...\n").rstrip("\n")


def with_count(path: Path, reports: Sequence[str]) -> ConfigError:
    """Join the problems of a file, a line each, into one error message."""
    count = f"{len(reports)} problem{'s' if len(reports) > 1 else ''}"
    shown = [shortened(report) for report in reports[:_MOST_SHOWN]]
    if len(reports) > _MOST_SHOWN:
        shown.append(f"and {len(reports) - _MOST_SHOWN} more")
    return ConfigError("\n".join([f"{count} in {path}:", *shown]))


def shortened(report: str) -> str:
    """Remove the middle of a very long report."""
    return cut_short(report, _LONGEST_REPORT)


def read_text(path: Path) -> str:
    """Read a configuration as text.

    Raises:
        ConfigError: the file is missing, unreadable, or longer than any can be.
    """
    try:
        return read_whole(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        text = f"{path}: cannot be read as UTF-8 text: {error}; check the path"
        raise ConfigError(text) from None


class Loader(yaml.SafeLoader):
    """Reads plain values alone: a date is text, as in YAML 1.2; no tag runs code."""


Loader.yaml_implicit_resolvers = {
    start: [(tag, form) for tag, form in found if tag != f"{_TAG}timestamp"]
    for start, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_PLAIN = [
    f"{_TAG}{kind}" for kind in ["str", "int", "float", "bool", "null", "map", "seq"]
]


Loader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*_PLAIN, None)
}


@dataclass
class _Places:
    """The places of the keys of a file, and the problems of its size and form."""

    path: Path
    lines: dict[KeyPath, int] = field(default_factory=dict)
    repeated: list[KeyPath] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    values: int = 0

    def walk(self, node: yaml.Node, key: KeyPath) -> None:
        self.values += 1
        if self.values > _MOST_VALUES or len(key) > _MOST_LEVELS:
            raise _too_much(f"{self.path}: line {node.start_mark.line + 1}")
        if isinstance(node, yaml.MappingNode):
            for key_node, value in node.value:
                child = (*key, str(key_node.value))
                self._check_key(key_node, key)
                if child in self.lines:
                    self.repeated.append(child)
                self.lines[child] = key_node.start_mark.line + 1
                self.walk(value, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*key, index)] = item.start_mark.line + 1
                self.walk(item, (*key, index))
        else:
            self._check_text(node, key)

    def _check_key(self, node: yaml.Node, outer: KeyPath) -> None:
        if not isinstance(node, yaml.ScalarNode):
            text = "keys are text, got a list or a mapping; write a name"
            self._report(node, outer, text)
        elif node.tag not in {_TEXT, f"{_TAG}merge"}:
            text = f"keys are text, got {node.value}; put it in quotes"
            self._report(node, outer, text)
        else:
            self._check_text(node, outer)

    def _check_text(self, node: yaml.Node, key: KeyPath) -> None:
        if node.tag == _TEXT and (odd := _ODD.search(node.value)):
            text = f"the character {odd[0]!r} cannot be used in a text; remove it"
            self._report(node, key, text)

    def _report(self, node: yaml.Node, key: KeyPath, text: str) -> None:
        place = f"{format_key(key)}: " if key else ""
        self.problems.append((node.start_mark.line + 1, f"{place}{text}"))


class _Dumper(yaml.SafeDumper):
    """Writes lists of numbers on one line, as mergekit's own configurations do."""


def _flow_numbers(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    numbers = all(isinstance(item, int | float) for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=numbers)


_Dumper.add_representer(list, _flow_numbers)


def yaml_text(documents: Iterable[Any], comments: Iterable[str] = ()) -> str:
    """Return documents as YAML with exact numbers, and with ``comments`` on top."""
    text = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
    lines = (" ".join(f"# {comment}".splitlines()).rstrip() for comment in comments)
    return "".join(f"{line}\n" for line in lines) + text
