"""The JSON Schema of a configuration as a grammar: what it allows, drawn at random."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import yaml
from good_configuration import configuration, family
from hypothesis import strategies as st

Schema: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str | int, ...]

_DEEPEST = 4  # of what a drawn value holds
_NUMBERS = [0, 1, -1, 2, 3, 10, 2**31, 2**32, 2**63, 10**9, 10**30, 0.5, 1e-300, 1e300]
_CHANGES = ["allowed", "allowed", "any", "removed", "added"]
_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(_NUMBERS)
    | st.integers()
    | st.floats()
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def texts() -> st.SearchStrategy[str]:
    """Draw mutations of a good configuration, as files."""
    return st.builds(
        _torn,
        _mutated().map(functools.partial(yaml.safe_dump, allow_unicode=False)),
        st.none() | st.none() | st.none() | st.integers(0, 600),
        st.sampled_from(["", "\n", " ", "&a ", "*a", "<<: *a", "'", ": ", "- ", "\0"]),
    )


def _torn(text: str, place: int | None, put: str) -> str:
    """Put something in the middle of a text, or nothing, and take a letter away."""
    return text if place is None else text[:place] + put + text[place + 1 :]


@st.composite
def _mutated(draw: st.DrawFn) -> dict[str, Any]:
    content = configuration()
    for _ in range(draw(st.integers(1, 3))):
        place, schema = draw(st.sampled_from(_places()))
        change = draw(st.sampled_from(_CHANGES))
        if change == "removed":
            _change(content, place, None, remove=True)
        elif change == "added":
            key = draw(st.sampled_from(["x", "", "map", "a b"]) | st.text(max_size=9))
            _change(content, (*place[:-1], key), draw(_ANY))
        else:
            value = draw(_allowed(schema, _DEEPEST) if change == "allowed" else _ANY)
            _change(content, place, value)
    return content


def _change(content: Any, place: Place, value: Any, *, remove: bool = False) -> None:
    for part in place[:-1]:
        if isinstance(content, list) and isinstance(part, int) and part < len(content):
            content = content[part]
        elif isinstance(content, dict) and isinstance(part, str):
            content = content.setdefault(part, {})
        else:
            return  # something else was put there before
    if isinstance(content, dict) and isinstance(place[-1], str):
        if remove:
            content.pop(place[-1], None)
        else:
            content[place[-1]] = value
    elif isinstance(content, list) and isinstance(place[-1], int):
        content[place[-1] : place[-1] + 1] = [] if remove else [value]


@functools.cache
def _schema() -> Schema:
    from mergekit_map.steps.schema import config_schema

    return config_schema()


@functools.cache
def _places() -> Sequence[tuple[Place, Schema]]:
    """List the places of the configuration that the schema knows."""
    return [*_below((), _schema(), 5)]


def _below(place: Place, schema: Schema, levels: int) -> Iterator[tuple[Place, Schema]]:
    schema = _resolved(schema)
    if place:
        yield place, schema
    if not levels:
        return
    for choice in schema.get("anyOf", schema.get("oneOf", [])):
        for found, inner in _below(place, choice, levels):
            if found != place:
                yield found, inner
    for name, inner in schema.get("properties", {}).items():
        yield from _below((*place, name), inner, levels - 1)
    if "items" in schema:
        yield from _below((*place, 0), schema["items"], levels - 1)
    if isinstance(schema.get("additionalProperties"), dict):
        for name in _known_names(place, schema):
            inner = schema["additionalProperties"]
            yield from _below((*place, name), inner, levels - 1)


def _known_names(place: Place, schema: Schema) -> Sequence[str]:
    names = schema.get("propertyNames", {}).get("enum")
    return names or (["text", "other"] if place[:2] == ("map", "tasks") else ["a"])


def _resolved(schema: Schema) -> Schema:
    while "$ref" in schema:
        schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def _allowed(schema: Schema, levels: int) -> st.SearchStrategy[Any]:
    """Draw what a schema allows, about: limits of numbers are met and passed."""
    schema = _resolved(schema)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        if choices:
            return st.one_of([_allowed(choice, levels) for choice in choices])
    if "prefixItems" in schema:
        return st.tuples(*(_allowed(s, levels) for s in schema["prefixItems"])).map(
            list
        )
    kind = schema.get("type")
    if kind == "object" and levels:
        return _mappings(schema, levels - 1)
    if kind == "array" and levels:
        items = _allowed(schema.get("items", {}), levels - 1)
        return st.lists(items, max_size=3)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers() | st.sampled_from(_ends(schema)),
        "number": st.floats() | st.floats(0, 1) | st.sampled_from(_ends(schema)),
        "string": _strings(),
        "boolean": st.booleans(),
        "null": st.none(),
        "object": st.just({}),
        "array": st.just([]),
    }
    return simple.get(kind, _ANY)


def _mappings(schema: Schema, levels: int) -> st.SearchStrategy[dict[str, Any]]:
    known = {
        name: _allowed(inner, levels)
        for name, inner in schema.get("properties", {}).items()
    }
    needed = {name: known.pop(name) for name in schema.get("required", [])}
    named = st.fixed_dictionaries(needed, optional=known)
    more = schema.get("additionalProperties")
    if not isinstance(more, dict):
        return named
    names = schema.get("propertyNames", {}).get("enum")
    keys = st.sampled_from(names or ["a", "b", "text", "more", "base", "point", ""])
    other = st.dictionaries(keys, _allowed(more, levels), max_size=2)
    return st.builds(lambda one, two: {**two, **one}, named, other)


def _ends(schema: Schema) -> list[Any]:
    limits = [schema.get(name) for name in ("minimum", "maximum", "exclusiveMinimum")]
    ends = [
        limit + step for limit in limits if limit is not None for step in (-1, 0, 1)
    ]
    return [*ends, *_NUMBERS, 12, 20]


def _strings() -> st.SearchStrategy[str]:
    place = family()
    known = [
        *(str(place / name) for name in ("base", "a", "b", "text.txt", "more.txt")),
        *("", "a", "b", "base", "soup", "text", "more", "w", "auto", "0.5", "nowhere"),
        *("own:measure", "questions.yaml", str(place / "questions.yaml"), "acc", "95%"),
        *("linear", "float32", "bfloat16", ".", "/dev/zero", "point"),
    ]
    return st.sampled_from(known) | st.text(max_size=12)
