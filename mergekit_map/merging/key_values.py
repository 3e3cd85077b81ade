"""What may stand under mergekit's own keys beside models and parameters."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mergekit_map.config import at_most
from mergekit_map.config.parsing import Problem
from mergekit_map.config.wrong_values import shown
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import nearest
from mergekit_map.models.references import walk_entries

DTYPES = ("bfloat16", "float16", "float32", "float64")
_MOST_PADDING = 1 << 16  # rows of an embedding
_LONGEST_MODEL = 4096  # characters; no path is longer


def value_problems(merge: MergeConfig) -> list[Problem]:
    """List the values of single keys that no merge can be made with."""
    return [
        *_wrong_dtypes(merge),
        *_wrong_tokenizer(merge),
        *_wrong_template(merge),
        *_empty_modules(merge),
        *_wrong_layers(merge),
    ]


def wrong_model(model: Any) -> str | None:
    """Say why something cannot name a model; None where it can."""
    if not isinstance(model, str):
        text = "a model is written as text (path, path@revision or path+lora), got "
        return f"{text}{shown(model)}"
    if not model.strip() or len(model) > _LONGEST_MODEL:
        return f"a model is a folder or an id of the Hub, got {shown(model)}"
    if model.count("+") > 1 or any(p.count("@") > 1 for p in model.split("+")):
        return (
            f"mergekit reads '+' as base+lora and '@' as a revision, so {shown(model)} "
            "cannot be a path; rename the folder or use a symbolic link"
        )
    if not all(part.partition("@")[0] for part in model.split("+")):
        return f"a model before and behind '+' was expected, got {shown(model)}"
    return None


def _wrong_dtypes(merge: MergeConfig) -> Iterator[Problem]:
    for name in ("dtype", "out_dtype"):
        dtype = merge.get(name)
        if dtype is None or (
            isinstance(dtype, str) and dtype.removeprefix("torch.") in DTYPES
        ):
            continue
        text = f"there is no dtype {shown(dtype)} of merges; "
        hint = nearest(dtype, DTYPES) if isinstance(dtype, str) else nearest("", DTYPES)
        yield Problem((name,), text + hint)


def _wrong_tokenizer(merge: MergeConfig) -> Iterator[Problem]:
    yield from _wrong_source(merge, ("tokenizer_source",))
    tokenizer = merge.get("tokenizer")
    if not isinstance(tokenizer, dict):
        return
    yield from _wrong_source(tokenizer, ("tokenizer", "source"))
    multiple = tokenizer.get("pad_to_multiple_of")
    if type(multiple) is int and not 1 <= multiple <= _MOST_PADDING:
        text = f"a whole number from 1 to {_MOST_PADDING} was expected, got {multiple}"
        yield Problem(("tokenizer", "pad_to_multiple_of"), text)
    tokens = tokenizer.get("tokens")
    for token, kept in tokens.items() if isinstance(tokens, dict) else ():
        if isinstance(kept, dict):
            yield from _wrong_source(kept, ("tokenizer", "tokens", token, "source"))


def _wrong_source(part: MergeConfig, key: KeyPath) -> Iterator[Problem]:
    source = part.get(str(key[-1]))
    if isinstance(source, str) and (text := wrong_model(source)):
        yield Problem(key, text)


def _wrong_template(merge: MergeConfig) -> Iterator[Problem]:
    template = merge.get("chat_template")
    if not isinstance(template, str) or "{" in template or "\n" in template:
        return
    folder = Path(str(importlib.resources.files("mergekit"))) / "_data/chat_templates"
    known = ["auto", *(path.stem for path in folder.glob("*.jinja"))]
    if template not in known:
        text = (
            f"there is no chat template {shown(template)}; {nearest(template, known)}; "
            "a template of your own has braces"
        )
        yield Problem(("chat_template",), text)


def _empty_modules(merge: MergeConfig) -> Iterator[Problem]:
    modules = merge.get("modules")
    for name, module in modules.items() if isinstance(modules, dict) else ():
        given = module if isinstance(module, dict) else {}
        if bool(given.get("models")) == bool(given.get("slices")):
            text = "either 'models' or 'slices' was expected, that are merged into it"
            yield Problem(("modules", name), text)


def _wrong_layers(merge: MergeConfig) -> Iterator[Problem]:
    try:
        ranges = [
            ((*key, "layer_range"), entry["layer_range"])
            for key, entry, _ in walk_entries(merge)
            if "layer_range" in entry
        ]
    except (AttributeError, KeyError, TypeError):
        return  # malformed; mergekit's own validation says where
    for key, given in ranges:
        whole = isinstance(given, list) and [type(end) for end in given] == [int, int]
        if not whole or not 0 <= given[0] < given[1] <= at_most.LAYERS.most:
            text = (
                "two whole numbers were expected, the first layer, from 0, and the one "
                f"behind the last, up to {at_most.LAYERS.most}, got {shown(given)}"
            )
            yield Problem(key, text)
