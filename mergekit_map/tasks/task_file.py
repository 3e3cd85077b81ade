"""The YAML file of a task of one's own, looked at before lm-eval reads it.

lm-eval reads whatever a file includes, writes out all aliases, and opens whatever the
data are said to be in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from mergekit_map.config.yaml_nodes import check_size
from mergekit_map.errors import ConfigError, InvalidTask
from mergekit_map.files import read_whole

_KEY = ("lm_eval",)
_LARGEST = 1 << 22  # bytes
_MOST_VALUES = 1 << 20  # with aliases written out
_MOST_LEVELS = 50
_MOST_INCLUDED = 50  # files


def read_task_file(path: Path) -> dict[str, yaml.Node]:
    """Read the entries of a task; not constructed: lm-eval's tags stand for code.

    Raises:
        InvalidTask: it is no YAML, or it or what it includes cannot be read whole.
    """
    root = _compose(path)
    open_files, seen = list(_included(root, path)), {path.resolve()}
    while open_files:
        file = open_files.pop()
        if file.resolve() in seen:
            continue
        seen.add(file.resolve())
        if len(seen) > _MOST_INCLUDED:
            text = f"{path} includes more than {_MOST_INCLUDED} files; include fewer"
            raise InvalidTask(_KEY, text)
        open_files += _included(_compose(file), file)
    return entries(root)


def entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """Give the entries of a mapping; none of what is no mapping."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(key.value): value for key, value in node.value}


def _compose(path: Path) -> yaml.Node | None:
    try:
        text = read_whole(path, _LARGEST).decode("utf-8")
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            check_size(root, _MOST_VALUES, _MOST_LEVELS)
    except ConfigError as error:
        raise InvalidTask(_KEY, f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise InvalidTask(_KEY, f"{path} is not valid YAML: {error}") from None
    _check_data(entries(root), path)
    return root


def _included(root: yaml.Node | None, path: Path) -> Iterator[Path]:
    for name in _texts(entries(root).get("include")):
        yield path.parent / name


def _check_data(found: dict[str, yaml.Node], path: Path) -> None:
    """Refuse data in pipes and devices, which nobody comes to the end of."""
    arguments = entries(found.get("dataset_kwargs"))
    for name in _texts(arguments.get("data_files")):
        place = Path(name)
        if place.exists() and not place.is_file() and not place.is_dir():
            text = f"{path} has its data in {name}, which is a pipe or a device; give "
            raise InvalidTask(_KEY, f"{text}the data as a file")


def _texts(node: yaml.Node | None) -> Iterator[str]:
    """List the texts in a node, wherever they are."""
    if isinstance(node, yaml.ScalarNode):
        yield str(node.value)
    elif isinstance(node, yaml.SequenceNode):
        for part in node.value:
            yield from _texts(part)
    else:
        for part in entries(node).values():
            yield from _texts(part)
