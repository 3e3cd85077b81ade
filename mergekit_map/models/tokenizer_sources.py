"""Models of which a merge takes only the tokenizer, or the embedding of a token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mergekit_map.config.parsing import Problem
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.models.references import Reference, referenced_models
from mergekit_map.models.sources import find_model

_NO_MODEL = ("union", "base")


def source_problems(merge: MergeConfig) -> list[Problem]:
    """List the sources of tokenizers that are not there; mergekit asks for them last.

    Those that are merged as well are looked at with their weights.
    """
    merged, problems = referenced_models(merge), []
    for key, source in _sources(merge):
        if source in merged or source in _NO_MODEL:
            continue
        try:
            find_model(str(Reference.parse(source).model), weights=False)
        except MergeError as error:
            problems.append(Problem(key, str(error)))
    return problems


def _sources(merge: MergeConfig) -> Iterator[tuple[KeyPath, str]]:
    found: list[tuple[KeyPath, Any]] = [
        (("tokenizer_source",), merge.get("tokenizer_source"))
    ]
    tokenizer = merge.get("tokenizer") or {}
    found.append((("tokenizer", "source"), tokenizer.get("source")))
    for token, kept in (tokenizer.get("tokens") or {}).items():
        key: KeyPath = ("tokenizer", "tokens", token, "source")
        source = kept.get("source")
        found.append((key, source))
        if isinstance(source, dict):
            found.append(((*key, "model"), source.get("model")))
    for key, source in found:
        if isinstance(source, str):
            yield key, source
