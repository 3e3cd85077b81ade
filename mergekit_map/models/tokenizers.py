"""Tokenizers of models, and their comparison with the base model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers

from mergekit_map.errors import MergeError
from mergekit_map.models.config_checks import Finding, Settings, some
from mergekit_map.models.files import LARGEST_JSON, read_json_file
from mergekit_map.utils.files import read_whole, sha256_of_file

# Any of them is enough for transformers to load a tokenizer.
_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
    "tokenizer_config.json",
)
_LARGEST_TEMPLATE = 1 << 22  # bytes
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_SWITCHES = ("add_bos_token", "add_eos_token")


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The content of the files of a tokenizer."""

    ids: Mapping[str, int] | None  # of every token; None without a tokenizer.json
    added: frozenset[str]  # tokens that stand beside the vocabulary
    special: Settings = field(default_factory=dict)  # by name; None if unset
    chat_template: str | None = None
    model_digest: str | None = None  # of a tokenizer.model


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a model; None where there is none.

    Raises:
        MergeError: a file is damaged.
    """
    if not any((folder / name).is_file() for name in _FILES):
        return None
    settings = _optional(folder / "tokenizer_config.json")
    names = {**_optional(folder / "special_tokens_map.json"), **settings}
    special = {key: _text(names.get(key)) for key in _SPECIAL}
    file = _read_tokenizer_file(folder / "tokenizer.json")
    content: Settings = json.loads(file.to_str()) if file else {}
    special["around a text"] = _surrounding(content.get("post_processor"))
    model = folder / "tokenizer.model"
    return Tokenizer(
        ids=file.get_vocab() if file else None,
        added=frozenset(t["content"] for t in content.get("added_tokens", ())),
        special=special | {key: settings.get(key) for key in _SWITCHES},
        chat_template=_chat_template(folder, settings),
        model_digest=sha256_of_file(model) if model.is_file() else None,
    )


def _read_tokenizer_file(path: Path) -> tokenizers.Tokenizer | None:
    """Read a tokenizer.json; what it holds is then spelt as by one version."""
    if not path.is_file():
        return None
    try:
        return tokenizers.Tokenizer.from_buffer(read_whole(path, LARGEST_JSON))
    except Exception as error:  # noqa: BLE001 - of Rust
        reason = " ".join(str(error).split())
        raise MergeError(
            f"{path} cannot be loaded: {reason!r:.300}; save the tokenizer again"
        ) from None


def _optional(path: Path) -> Settings:
    return read_json_file(path) if path.is_file() else {}


def _text(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _surrounding(processor: Any) -> list[str]:
    """Return the special tokens that a processor puts around a text."""
    if not processor:
        return []
    inner = [t for part in processor.get("processors", ()) for t in _surrounding(part)]
    pieces = processor.get("single", ())
    return inner + [p["SpecialToken"]["id"] for p in pieces if "SpecialToken" in p]


def _chat_template(folder: Path, settings: Settings) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_whole(path, _LARGEST_TEMPLATE).decode("utf-8")
        except (ValueError, OSError) as error:
            text = f"{path} is no text: {error}; download it again"
            raise MergeError(text) from None
    template = settings.get("chat_template")
    return None if template is None else str(template)


_ALIGN = "align them with 'tokenizer: {source: union}' or '{source: base}'"


def compare_tokenizers(
    mine: Tokenizer | None,
    base: Tokenizer | None,
    name: str,
    rows: tuple[Any, Any],
    *,
    aligned: bool,
) -> list[Finding]:
    """List the differences of a model's tokenizer to that of the base model.

    ``rows`` are those of the embeddings of each, which mergekit can align.
    """
    if aligned:
        rows = (rows[1], rows[1])
    if base is None:
        return _compare_rows(name, rows)
    if mine is None:
        cause = f"it holds no tokenizer, so its token ids are taken for those of {name}"
        advice = "copy the tokenizer of the model that it was tuned from into its "
        missing = Finding("tokenizer-missing", "warning", cause, f"{advice}folder")
        return [missing, *_compare_rows(name, rows)]
    findings = list(_compare_tokens(mine, base, name, rows, aligned=aligned))
    if any(finding.code == "vocabulary" for finding in findings):
        return findings  # other differences follow from this one
    if mine.chat_template != base.chat_template:
        cause = f"its chat template is not that of {name}, which the merge gets"
        advice = "choose another with 'chat_template:'"
        findings.append(Finding("chat-template", "note", cause, advice))
    return findings


def same_rows(mine: Tokenizer | None, base: Tokenizer | None) -> bool:
    """Whether rows of the embeddings are the same tokens, as far as is known."""
    if mine is None or base is None or mine.ids is None or base.ids is None:
        return True
    common = mine.ids.keys() & base.ids.keys()
    return all(mine.ids[token] == base.ids[token] for token in common)


def _compare_tokens(
    mine: Tokenizer, base: Tokenizer, name: str, rows: tuple[Any, Any], *, aligned: bool
) -> Iterator[Finding]:
    if mine.ids is None or base.ids is None:
        yield from _compare_models(mine, base, name)
        yield from _compare_rows(name, rows)
        return
    here = {index: token for token, index in mine.ids.items()}
    there = {index: token for token, index in base.ids.items()}
    other = sorted(i for i in there.keys() & here.keys() if here[i] != there[i])
    grave = [i for i in other if there[i] not in base.added or here[i] in base.ids]
    if aligned:
        return
    if grave:
        index = grave[0]
        cause = (
            f"its tokenizer has other tokens or ids than that of {name} ({len(other)} "
            f"of {len(there)}: {index} is {here[index]!r} here and {there[index]!r} "
            "there), so rows of the embeddings mean different tokens"
        )
        yield Finding("vocabulary", "error", cause, _ALIGN)
    elif other:
        cause = (
            f"{len(other)} of the special tokens of {name} have other names here "
            f"({here[other[0]]!r} for {there[other[0]]!r}), so that their rows of "
            "the embeddings mean different things"
        )
        yield Finding("special-tokens-renamed", "warning", cause, _ALIGN)
    else:
        yield from _compare_counts(mine.ids, base.ids, name, rows)


def _compare_counts(
    mine: Mapping[str, int], base: Mapping[str, int], name: str, rows: tuple[Any, Any]
) -> list[Finding]:
    """Compare tokenizers that agree on their common tokens."""
    more, fewer = (
        sorted(one.keys() - other.keys(), key=one.__getitem__)
        for one, other in ((mine, base), (base, mine))
    )
    words = [
        f"{len(tokens)} tokens {than} than {name} ({some(tokens)})"
        for tokens, than in ((more, "more"), (fewer, "fewer"))
        if tokens
    ]
    if not words:
        return _compare_rows(name, rows)
    what = f"its tokenizer has {' and '.join(words)}"
    if rows[0] != rows[1]:
        what += f", and its embeddings {rows[0]} rows, not {rows[1]}"
        return [Finding("added-tokens", "error", what, _ALIGN)]
    what += ", whose rows of the embeddings one of the two has not trained"
    return [Finding("added-tokens", "warning", what, _ALIGN)]


def _compare_rows(name: str, rows: tuple[Any, Any]) -> list[Finding]:
    if rows[0] == rows[1]:
        return []
    cause = f"its embeddings have {rows[0]} rows (vocab_size), those of {name} "
    return [Finding("vocabulary-size", "error", f"{cause}{rows[1]}", _ALIGN)]


def _compare_models(mine: Tokenizer, base: Tokenizer, name: str) -> list[Finding]:
    """Compare tokenizers where one has no tokenizer.json."""
    if mine.model_digest is None or base.model_digest is None:
        cause = f"its vocabulary could not be compared with that of {name}: not both "
        cause += "have a tokenizer.json"
        advice = "save the tokenizer of each with save_pretrained"
        return [Finding("vocabulary-unknown", "note", cause, advice)]
    if mine.model_digest == base.model_digest:
        return []
    cause = f"its tokenizer.model is not that of {name}, so its tokens may be others"
    return [Finding("vocabulary", "error", cause, _ALIGN)]
