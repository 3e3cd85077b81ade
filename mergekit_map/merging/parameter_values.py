"""What may stand under ``parameters:``, every number in its place held to a range.

mergekit reads most of it only when it merges, and there a density of -1 is an
assertion, one of NaN a merge of zeros, and no error at all says where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mergekit.merge_methods.base import MergeMethodSpec, ParameterSpec
from pydantic import ValidationError

from mergekit_map.config.parsing import Problem
from mergekit_map.config.wrong_values import in_words, shown
from mergekit_map.config.yaml_file import KeyPath, MergeConfig

_Leaf = tuple[KeyPath, Any]

# Shares of the entries of a task vector: what is kept, cut off, or spread around.
_SHARES = {"density", "gamma", "select_topk"}
_POSITIVE = {"density", "select_topk", "eps", "tol"}
_LARGEST = 1e6  # of any other number; merges are noise long before
_MOST_STEPS = 10_000  # of a method that iterates


def parameter_problems(merge: MergeConfig, spec: MergeMethodSpec) -> list[Problem]:
    """List the values of parameters that a method cannot merge with."""
    known = {parameter.name: parameter for parameter in spec.parameters}
    return [
        Problem(place, text)
        for key, parameters in _blocks(merge, ())
        for name, setting in parameters.items()
        if name in known
        for place, text in _wrong(setting, (*key, name), known[name])
    ]


def _blocks(part: Any, key: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Find the mappings of parameters, at any depth of a configuration."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from _blocks(item, (*key, index))
    elif isinstance(part, dict):
        for name, value in part.items():
            if name != "parameters":
                yield from _blocks(value, (*key, name))
            elif isinstance(value, dict):
                yield (*key, name), value


def _wrong(
    setting: Any, key: KeyPath, parameter: ParameterSpec
) -> Iterator[tuple[KeyPath, str]]:
    for place, value in _leaves(setting, key):
        if value == []:
            yield place, "this list is empty; write a value, or remove the key"
        elif problem := _problem(value, parameter):
            yield place, problem


def _leaves(setting: Any, key: KeyPath) -> Iterator[_Leaf]:
    if isinstance(setting, dict):
        if "value" in setting:
            yield from _leaves(setting["value"], (*key, "value"))
    elif isinstance(setting, list) and setting:
        for index, item in enumerate(setting):
            if not isinstance(item, list):  # mergekit says where lists may be
                yield from _leaves(item, (*key, index))
    else:
        yield key, setting


def _problem(value: Any, parameter: ParameterSpec) -> str | None:
    if parameter.value_type is float:
        return _wrong_number(value, parameter.name)
    try:
        read = parameter.validate(value)
    except ValidationError as error:
        return in_words(error.errors()[0])
    if type(read) is int and not 1 <= read <= _MOST_STEPS:
        return f"a whole number from 1 to {_MOST_STEPS} was expected, got {read}"
    return None


def _wrong_number(value: Any, name: str) -> str | None:
    number = _number(value)
    if name == "weight" and isinstance(value, str) and number is None:
        return None if value.strip() else "a number or a name was expected, got ''"
    low, high = (0.0, 1.0) if name in _SHARES else (-_LARGEST, _LARGEST)
    low = 0.0 if name in _POSITIVE else low
    fits = number is not None and low <= number <= high
    if fits and not (name in _POSITIVE and not number):
        return None
    above = f"above {low:g} and up to" if name in _POSITIVE else f"from {low:g} to"
    return f"a number {above} {high:g} was expected, got {shown(value)}"


def _number(value: Any) -> float | None:
    """Read a number as mergekit does, which takes YAML's text ``1e-3`` for one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    named = isinstance(value, str) and not math.isfinite(number)
    return None if named else number
