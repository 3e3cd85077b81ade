"""What a validation found, in our own words: what was wanted, and what was got.

pydantic's messages are for programmers ("Input should be a valid dictionary or instance
of"), so none of them is shown; a kind of error that is not known here still gets a
sentence of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mergekit_map.config.yaml_file import KeyPath, existing
from mergekit_map.errors import nearest

_LONGEST = 60  # characters of a value that is shown

_WANTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("string_type", "string_sub_type", "string_unicode"), "text"),
    **dict.fromkeys(("dict_type", "mapping_type"), "a mapping"),
    **dict.fromkeys(("model_type", "model_attributes_type"), "a mapping"),
    **dict.fromkeys(("dataclass_type", "dataclass_exact_type"), "a mapping"),
    **dict.fromkeys(("list_type", "tuple_type", "iterable_type"), "a list"),
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
    "finite_number": "a finite number",
    "path_type": "a path",
    "none_required": "null",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number from {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number up to {le}",
    "too_short": "{whole} of at least {min_length}",
    "too_long": "{whole} of at most {max_length}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def mistakes(
    errors: Iterable[ErrorDetails], content: Any, model: type[BaseModel] | None = None
) -> dict[KeyPath, str]:
    """Say what is wrong with a content, by the place in it.

    Of a union pydantic lists what each member wanted; here that is one sentence, about
    the innermost place that is wrong. ``model`` names the keys there are.
    """
    at: dict[KeyPath, list[ErrorDetails]] = {}
    for detail in errors:
        at.setdefault(existing(content, detail["loc"]), []).append(detail)
    return {
        place: _sentence(found, model)
        for place, found in at.items()
        if not (all(map(_is_wish, found)) and _is_inside(at, place))
    }


def in_words(detail: ErrorDetails) -> str:
    """Say what one error is, without its place."""
    return _sentence([detail], None)


def shown(value: Any) -> str:
    """Write a value as YAML would have it, on one line that is not long."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = repr(value)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _is_inside(places: Iterable[KeyPath], place: KeyPath) -> bool:
    return any(p != place and p[: len(place)] == place for p in places)


def _is_wish(detail: ErrorDetails) -> bool:
    """Tell whether another member of a union may have found more."""
    return detail["type"] in _WANTED


def _sentence(found: list[ErrorDetails], model: type[BaseModel] | None) -> str:
    if own := [text for detail in found if (text := _own_text(detail))]:
        return own[0]
    if missing := [d["loc"][-1] for d in found if d["type"] == "missing"]:
        return _missing(missing)
    first = found[0]
    if first["type"] == "extra_forbidden":
        return _unknown(first["loc"], model)
    wishes = list(dict.fromkeys(map(_wish, found)))
    if "a number" in wishes:
        wishes = [wish for wish in wishes if wish != "a whole number"]
    *others, last = (wish for wish in wishes if wish) if any(wishes) else ("",)
    wanted = f"{', '.join(others)} or {last}" if others else last
    got = shown(first["input"])
    if not wanted:
        return f"this value cannot be used here, got {got}"
    return f"{wanted} was expected, got {got}{_hint(first['input'])}"


def _own_text(detail: ErrorDetails) -> str | None:
    if detail["type"] in {"value_error", "assertion_error"}:
        return str(detail["ctx"]["error"]) or "this value cannot be used here"
    if detail["type"] == "json_invalid":
        return f"it is no JSON: {detail['ctx']['error']}"
    return None


def _missing(keys: list[str | int]) -> str:
    if all(isinstance(key, int) for key in keys):
        return f"item {int(keys[0]) + 1} of the list is missing; add it"
    if len(keys) == 1:
        return f"the key {keys[0]!r} is required and missing; add it"
    named = f"{', '.join(map(repr, keys[:-1]))} and {keys[-1]!r}"
    return f"the keys {named} are required and missing; add them"


def _unknown(loc: tuple[str | int, ...], model: type[BaseModel] | None) -> str:
    known = [] if model is None else [*_fields(model, loc)]
    hint = f"; {nearest(str(loc[-1]), known)}" if known else ""
    return f"unknown key {loc[-1]!r}{hint}"


def _fields(model: type[BaseModel], loc: tuple[str | int, ...]) -> Iterable[str]:
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        if field is None or not isinstance(field.annotation, type):
            break
        if issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model.model_fields


def _wish(detail: ErrorDetails) -> str:
    whole = "a mapping" if isinstance(detail["input"], Mapping) else "a list"
    context: Mapping[str, Any] = {"whole": whole, **detail.get("ctx", {})}
    return _WANTED.get(detail["type"], "").format_map(context)


def _hint(got: Any) -> str:
    if isinstance(got, str) and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", got):
        return "; YAML reads this as text, write the number with a point: 1.0e-3"
    return ""
