"""YAML files: read with the line of every key, filled, and written in one style."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from mergekit_map.errors import ConfigError
from mergekit_map.utils.files import read_whole, temporary
from mergekit_map.utils.text import printable

KeyPath: TypeAlias = tuple[str | int, ...]
_MOST_BYTES = 1 << 18  # of a file; a large configuration has some thousand
_MOST_VALUES = 20_000  # as read, aliases written out
_MOST_LEVELS = 40
_MOST_COLONS = 9  # in YAML 1.1, 1:30 is 90, and so on to any power of 60
# Control characters but tab and line ends; marks that end or turn a line; lone
# surrogates, which cannot be encoded.
_UNUSABLE = re.compile(
    r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_TAG = "tag:yaml.org,2002:"
_TEXT = f"{_TAG}str"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_OF_YAML_1_1 = r":|^[-+]?0[0-9]"  # 1:30 is 90 there, and 010 is 8
_TYPES = ("str", "int", "float", "bool", "null", "map", "seq")
# Numbers such as 1e-3, which PyYAML reads as text, as YAML 1.1 wants a point in them.
_EXPONENT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
# What looking into a recipe that somebody has changed may end in.
DAMAGES = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
_MOST_SHOWN = 20  # problems of one file
MergeConfig: TypeAlias = Mapping[str, Any]  # of mergekit's schema, without ``map``
Settings: TypeAlias = Mapping[str, Mapping[str, Any]]  # of blocks of ``map:``, by key
# Keys of a merge configuration that hold a model.
MODEL_KEYS = {"model", "base_model", "tokenizer_source", "source"}
_SOURCE_WORDS = {"base", "union"}  # sources of a tokenizer that are no models


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
        if self.path.parent in temporary:  # written for options, and removed later
            place = "options"
        return f"{place}: {format_key(key)}" if key else place


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
    inner = content
    for part in key:
        if isinstance(inner, list) and isinstance(part, int):
            if part >= len(inner):
                break
        elif not isinstance(inner, dict) or part not in inner:
            continue  # pydantic's own name
        inner = inner[part]
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
    """Return a configuration with the values of coefficients in their places, by name.

    The places of the remainder get 1 minus the sum of the values.
    """
    result = copy.deepcopy(dict(config))
    rest = 1.0
    for name, places_of_name in places.items():
        rest -= values[name]
        for place in places_of_name:
            put(result, place, float(values[name]))
    for place in remainder:
        put(result, place, rest)
    return result


def map_references(merge: MergeConfig, change: Callable[[str], str]) -> MergeConfig:
    """Replace every reference to a model in a configuration."""

    def copied(content: Any, key: str = "") -> Any:
        if key == "parameters":
            return content
        if isinstance(content, str):
            is_word = "source" in key and content in _SOURCE_WORDS
            return change(content) if key in MODEL_KEYS and not is_word else content
        if isinstance(content, list):
            return [copied(item) for item in content]
        if isinstance(content, Mapping):
            return {name: copied(value, name) for name, value in content.items()}
        return content

    result: MergeConfig = copied(merge)
    return result


def read_yaml(path: Path) -> YamlFile:
    """Read a YAML file that holds one mapping; ConfigError for any other file."""
    try:
        text = read_whole(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        text = f"{path}: cannot be read as UTF-8 text: {error}; check the path"
        raise ConfigError(text) from None
    places = _Places(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            kind = "an empty file" if node is None else node.tag.removeprefix(_TAG)
            got = {"seq": "a list", "str": "text"}.get(kind, kind)
            raise ConfigError(
                f"{path}: a mapping with merge_method, models and map was expected, "
                f"got {got}"
            )
        places.walk(node, ())
        # Through JSON, so that aliases share no object and can be filled one by one.
        content = json.loads(json.dumps(loader.construct_document(node)))
    except RecursionError:
        raise _too_much(str(path)) from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    return YamlFile(path, text, content, places.lines, tuple(places.repeated))


def parse_recipe(text: str) -> dict[str, Any]:
    """Parse a recipe; ValueError for a text that is none, or holds aliases or tags."""
    try:
        # Ends where it is nested too deep, of which a scan takes the square in time.
        yaml.compose(text, Loader=yaml.SafeLoader)
        # What stands for something else could grow without end when it is copied.
        tokens = [*yaml.scan(text)]
        if any(isinstance(token, yaml.AliasToken | yaml.TagToken) for token in tokens):
            raise ValueError("an alias or tag in it stands for something else")
        scalars = [t for t in tokens if isinstance(t, yaml.ScalarToken)]
        if any(t.plain and t.value.count(":") > _MOST_COLONS for t in scalars):
            raise ValueError("a text in it would be read as a huge number")
        if any(re.search("[\0\ud800-\udfff]", t.value) for t in scalars):
            raise ValueError("a text in it holds what no file name can")
        found = yaml.safe_load(text)
        json.dumps(found, default=str, skipkeys=True)  # ValueError for a huge number
    except yaml.YAMLError as error:
        if "single document" in str(error):
            raise ValueError("it is of several merges, by an earlier version") from None
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no merge configuration")
    return found


def _too_much(place: str) -> ConfigError:
    return ConfigError(
        f"{place}: more than {_MOST_VALUES} values with its aliases written out, or "
        f"more than {_MOST_LEVELS} levels; write less, or flatter"
    )


def with_settings(file: YamlFile, settings: Settings) -> YamlFile:
    """Set keys of the ``map:`` block, in content and text; lines stay the file's.

    A block that is no mapping stays as it is; its validation reports that.
    """
    old = file.content.get("map")
    if not isinstance(old, dict) or not old:
        return file
    new = dict(old)
    for name, values in settings.items():
        block = new.get(name) or {}
        if values and isinstance(block, dict):
            new[name] = {**block, **values}
    if new == old:
        return file
    content = {**file.content, "map": new}
    text = yaml_text(content, [f"{file.path.name}, with keys set by options"])
    return replace(file, text=text, content=content)


def with_count(place: object, reports: Sequence[str]) -> ConfigError:
    """Join the problems of a file, a line each, into one error message."""
    plural = "s" if len(reports) > 1 else ""
    lines = [f"{len(reports)} problem{plural} in {place}:", *reports[:_MOST_SHOWN]]
    if len(reports) > _MOST_SHOWN:
        lines.append(f"and {len(reports) - _MOST_SHOWN} more")
    return ConfigError("\n".join(lines))


class _Loader(yaml.SafeLoader):
    """Reads plain values; unlike in YAML 1.1, a date is text, and 1e-3 a number."""


_Loader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag]
    for tag in (*(f"{_TAG}{name}" for name in _TYPES), None)
}
_Loader.yaml_implicit_resolvers = {
    start: [(tag, form) for tag, form in forms if tag != f"{_TAG}timestamp"]
    for start, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+.0123456789"))


@dataclass
class _Places:
    path: Path
    lines: dict[KeyPath, int] = field(default_factory=dict)
    repeated: list[KeyPath] = field(default_factory=list)
    n_values: int = 0

    def walk(self, node: yaml.Node, key: KeyPath) -> None:
        """Note the places below a node; refuse what no configuration has."""
        self.n_values += 1
        if self.n_values > _MOST_VALUES or len(key) > _MOST_LEVELS:
            raise _too_much(f"{self.path}: line {_line(node)}")
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                if isinstance(name, yaml.ScalarNode) and name.tag != f"{_TAG}merge":
                    name.tag = _TEXT  # a task may be called no, which is false in YAML
                if (place := (*key, str(name.value))) in self.lines:
                    self.repeated.append(place)
                self.lines[place] = _line(name)
                self._refuse_unusable(name, place)
                self.walk(value, place)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*key, index)] = _line(item)
                self.walk(item, (*key, index))
        else:
            if node.tag in _NUMBERS and re.search(_OF_YAML_1_1, str(node.value)):
                node.tag = _TEXT
            self._refuse_unusable(node, key)

    def _refuse_unusable(self, node: yaml.Node, key: KeyPath) -> None:
        if node.tag == _TEXT and (character := _UNUSABLE.search(str(node.value))):
            raise ConfigError(
                f"{self.path}:{_line(node)}: {format_key(key)}: the character "
                f"{character[0]!r} cannot be used in a text; remove it"
            )


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Dumper(yaml.SafeDumper):
    """Writes lists of numbers on one line, as mergekit's own configurations do."""


_Dumper.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+.0123456789"))


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    on_one_line = all(isinstance(item, int | float) for item in data)
    return dumper.represent_sequence(f"{_TAG}seq", data, flow_style=on_one_line)


_Dumper.add_representer(list, _represent_list)


def yaml_text(content: Any, comments: Iterable[str] = ()) -> str:
    """Return YAML with exact numbers, and with ``comments`` on top."""
    form: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1000}
    text: str = yaml.dump(content, Dumper=_Dumper, **form)
    texts = (printable(f"# {comment}") for comment in comments)
    lines = (" ".join(text.splitlines()).rstrip() for text in texts)
    return "".join(f"{line}\n" for line in lines) + text
