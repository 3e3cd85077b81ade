"""Reading and writing the JSON files of a run folder as frozen values.

A run folder may come from a stranger: every string must be one printable line, every
number finite, and every key of its type.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
)

from mergekit_map.config.problems import in_words
from mergekit_map.errors import ArtifactError
from mergekit_map.utils.files import read_whole, write_atomically
from mergekit_map.utils.text import printable

STATE = ".state"  # folder in a run folder, of what users need not open
MOST_BYTES = 1 << 29  # of a file: far more than any search writes
# Control characters, separators of lines, lone surrogates, marks of text direction.
NO_LINE = re.compile(
    r"[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)


def one_line(text: str) -> str:
    """Raise ValueError for text that a terminal or a YAML comment breaks or turns."""
    if found := NO_LINE.search(text):
        raise ValueError(f"a line of text is wanted, not one with {found[0]!r}")
    return text


def lines_of_text(text: str) -> str:
    """Raise ValueError for text of which one line is none by ``one_line``."""
    for line in text.split("\n"):
        one_line(line)
    return text


Line: TypeAlias = Annotated[str, AfterValidator(one_line)]
Text: TypeAlias = Annotated[str, AfterValidator(lines_of_text)]
Number: TypeAlias = int | float  # as it was written: 0 stays 0
# Fits square what is measured, and multiply that: what is larger has no such numbers.
LARGEST = 1e50
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Stderr: TypeAlias = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Coefficients: TypeAlias = dict[Line, Finite]
# Written with the keys that were given, without defaults.
AS_GIVEN = PlainSerializer(lambda one: one.model_dump(mode="json", exclude_unset=True))


class Frozen(BaseModel):
    """A value of a run folder. Keys of later versions are ignored."""

    model_config = ConfigDict(
        frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def left_out(default: Any = None) -> Any:
    """Return a field that files leave out where it has its default."""
    return Field(default, exclude_if=lambda value: value == default)


class Record(Frozen):
    """A whole file."""

    version: Annotated[int, Field(ge=1, le=1)] = 1  # a Literal would take true, too
    """Of the form of this file."""


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R], what: str) -> R:
    """Read a file of a run folder; ArtifactError if it is missing or damaged."""
    try:
        return kind.model_validate_json(read_whole(path, MOST_BYTES))
    except FileNotFoundError:
        run = path.parent.parent if path.parent.name == STATE else path.parent
        again = shlex.join(["mergekit-map", "search", "CONFIG", str(run)])
        raise ArtifactError(
            f"{run} has no {path.relative_to(run)}, so there is no {what}; finish the "
            f"search: type its command again, or {again}"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None
    except ValidationError as error:
        raise ArtifactError(
            f"{path} cannot be used: {in_one_sentence(error)}; restore or remove "
            "the file, and search again"
        ) from None


def unreadable(path: Path, error: Exception) -> ArtifactError:
    """Return the error for an unreadable file of a run folder, with a remedy."""
    text = f"{path} cannot be read: {error}; restore the file, or search again"
    return ArtifactError(text)


def write_record(path: Path, record: Record) -> None:
    """Write a file of a run folder, with exact numbers."""
    content = record.model_dump(mode="json")
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def in_one_sentence(error: ValidationError) -> str:
    """Describe the first mistake of a value, and its place."""
    first, *others = error.errors(include_url=False)
    if first["loc"] == ("version",):
        return f"it is of version {first['input']!r:.9}, which is not read here"
    place = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    sentence = f"{place}: {in_words(first)}{more}".removeprefix(": ")
    return printable(sentence).replace("\n", r"\n")


_Place: TypeAlias = list[Line | Annotated[int, Field(ge=0)]]


def _finite(content: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raise ValueError for infinities, which JsonValue lets pass."""
    json.dumps(content, allow_nan=False)
    return content


class Identity(Frozen):
    """The settings that decide the merges of a search."""

    method: Line = ""
    """Merge method."""
    models: dict[Line, Line] = Field(default_factory=dict)
    """Digest of each model, by its reference."""
    coefficients: dict[Line, list[_Place]] = Field(default_factory=dict)
    """Places of each coefficient in the configuration."""
    remainder: list[_Place] = Field(default_factory=list)
    """Places of the weight that is 1 minus all others."""
    dtype: Line | None = None
    out_dtype: Line | None = None
    configuration: Annotated[dict[str, JsonValue], AfterValidator(_finite)] = Field(
        default_factory=dict
    )
    """The other keys of mergekit's YAML."""
    device: Line | None = None
    seed: int | None = None
    """Seed of a method that drops parameters at random."""
    lora_merge_dtype: Line | None = None

    def content(self) -> dict[str, Any]:
        """Return the settings that were given, as JSON content."""
        return self.model_dump(mode="json", exclude_unset=True)
