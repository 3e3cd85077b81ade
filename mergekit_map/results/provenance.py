"""The identity of a merge, as a run folder stores it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from mergekit_map.results.records import NO_LINE, Line, in_one_sentence

_Place: TypeAlias = list[Line | Annotated[int, Field(ge=0)]]


class _Shape(BaseModel):
    """The keys of an identity that other modules read, where present."""

    model_config = ConfigDict(strict=True)

    method: Line = ""
    models: dict[Line, Line] = {}
    coefficients: dict[Line, list[_Place]] = {}
    remainder: list[_Place] = []
    dtype: Line | None = None
    out_dtype: Line | None = None
    configuration: dict[str, JsonValue] = {}
    device: Line | None = None


def _checked(identity: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raise for content that is no identity of a merge.

    Raises:
        ValueError: with the place in it.
    """
    for place, value in _leaves(identity, ""):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{place}: a finite number is wanted, got {value}")
        # Templates of chats are of many lines; nothing else is shown of a text.
        if isinstance(value, str) and NO_LINE.search(value.replace("\n", "")):
            raise ValueError(f"{place}: lines of text are wanted, got {value[:40]!r}")
    try:
        _Shape.model_validate(identity)
    except ValidationError as error:
        raise ValueError(in_one_sentence(error)) from None
    return identity


Identity: TypeAlias = Annotated[dict[str, JsonValue], AfterValidator(_checked)]


def device_of(identity: Identity) -> str | None:
    """Return the name of the device that merges were made on."""
    device = identity.get("device")
    return device if isinstance(device, str) else None


def _leaves(content: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for key, value in content.items():
            yield place, key
            yield from _leaves(value, f"{place}.{key}".lstrip("."))
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _leaves(value, f"{place}.{index}")
    else:
        yield place, content
