"""The tokenizer of a model against that of the base model, file by file.

Reads the files that tokenizers are saved as; transformers loads nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mergekit_map.errors import MergeError
from mergekit_map.models.findings import Finding, some
from mergekit_map.models.sources import damaged, read_json_file

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
_ALIGN = "align them with 'tokenizer: {source: union}' or '{source: base}'"

# Parts of tokenizer.json that decide how text is cut, and what they do.
_SECTIONS = {
    "normalizer": "normalizes text",
    "pre_tokenizer": "cuts text into words",
    "merges": "joins the parts of words",
}
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
_SWITCHES = ("add_bos_token", "add_eos_token")

# Aligned by their text, tokens that only one of two models knows are made up from the
# base model's, or left out. Below this share that is most of them.
_LITTLE_IN_COMMON = 0.5


class _AddedToken(BaseModel):
    model_config = ConfigDict(strict=True)

    content: str
    id: int


class _Vocabulary(BaseModel):
    model_config = ConfigDict(strict=True)

    # Ids of tokens, or tokens in the order of their ids, each with its score.
    vocab: (
        dict[str, int] | list[Annotated[list[str | float], Field(min_length=1)]] | None
    ) = None
    merges: list[str | list[str]] | None = None


class _TokenizerFile(BaseModel):
    """What is read of a tokenizer.json and must be so."""

    model: _Vocabulary | None = None
    added_tokens: list[_AddedToken] | None = None


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """What the files of a tokenizer say."""

    ids: Mapping[str, int] | None  # of every token; None without a tokenizer.json
    added: frozenset[str]  # tokens that stand beside the vocabulary
    sections: Mapping[str, Any] = field(default_factory=dict)  # how text is cut
    special: Mapping[str, Any] = field(default_factory=dict)  # by name; None if unset
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
    content = _tokenizer_json(folder / "tokenizer.json")
    special["around a text"] = _surrounding(content.get("post_processor"))
    model = folder / "tokenizer.model"
    return Tokenizer(
        ids=_ids(content) if content else None,
        added=frozenset(t["content"] for t in content.get("added_tokens") or ()),
        sections=_sections(content) if content else {},
        special=special | {key: settings.get(key) for key in _SWITCHES},
        chat_template=_chat_template(folder, settings),
        model_digest=_digest(model) if model.is_file() else None,
    )


def compare_tokenizers(
    mine: Tokenizer | None,
    base: Tokenizer | None,
    name: str,
    rows: tuple[Any, Any],
    *,
    aligned: bool,
) -> list[Finding]:
    """List what differs between the tokenizer of a model and that of the base model.

    Args:
        mine: Of the model.
        base: Of the base model.
        name: Of the base model.
        rows: In the embeddings of the one and the other.
        aligned: Whether mergekit is asked to align these rows.
    """
    if base is None:
        return _compare_rows(name, rows) if not aligned else []
    if mine is None:
        cause = f"it holds no tokenizer, so its token ids are taken for those of {name}"
        advice = (
            "copy the tokenizer of the model that it was tuned from into its folder"
        )
        missing = Finding("tokenizer-missing", "warning", cause, advice)
        return [missing, *(_compare_rows(name, rows) if not aligned else [])]
    found = list(_compare_tokens(mine, base, name, rows, aligned=aligned))
    if any(finding.code == "vocabulary" for finding in found):
        return found  # other differences follow from this one
    found += _compare_sections(mine, base, name)
    found += _compare_chat(mine, base, name)
    return found


def same_rows(mine: Tokenizer | None, base: Tokenizer | None) -> bool:
    """Tell whether rows of the embeddings are the same tokens, as far as is known."""
    if mine is None or base is None or mine.ids is None or base.ids is None:
        return True
    common = mine.ids.keys() & base.ids.keys()
    return all(mine.ids[token] == base.ids[token] for token in common)


def _compare_tokens(
    mine: Tokenizer, base: Tokenizer, name: str, rows: tuple[Any, Any], *, aligned: bool
) -> Iterator[Finding]:
    if mine.ids is None or base.ids is None:
        yield from _compare_models(mine, base, name)
        yield from _compare_rows(name, rows) if not aligned else ()
        return
    here = {index: token for token, index in mine.ids.items()}
    there = {index: token for token, index in base.ids.items()}
    other = [i for i in there.keys() & here.keys() if here[i] != there[i]]
    if other and aligned:
        yield from _compare_aligned(mine.ids, base.ids, name)
    elif any(there[i] not in base.added or here[i] in base.ids for i in other):
        index = min(
            i for i in other if there[i] not in base.added or here[i] in base.ids
        )
        yield Finding(
            "vocabulary",
            "error",
            f"its tokenizer has other tokens or ids than that of {name} ({len(other)} "
            f"of {len(there)}: {index} is {here[index]!r} here and {there[index]!r} "
            "there), so rows of the embeddings mean different tokens",
            _ALIGN,
        )
    elif other:
        yield Finding(
            "special-tokens-renamed",
            "warning",
            f"{len(other)} of the special tokens of {name} have other names here "
            f"({here[min(other)]!r} for {there[min(other)]!r}), so that their rows of "
            "the embeddings mean different things",
            _ALIGN,
        )
    elif not aligned:
        yield from _compare_counts(mine.ids, base.ids, name, rows)


def _compare_counts(
    mine: Mapping[str, int], base: Mapping[str, int], name: str, rows: tuple[Any, Any]
) -> list[Finding]:
    """Compare tokenizers that agree where both have a token."""
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
    cause = (
        f"its embeddings have {rows[0]} rows (vocab_size), those of {name} {rows[1]}"
    )
    return [Finding("vocabulary-size", "error", cause, _ALIGN)]


def _compare_aligned(
    mine: Mapping[str, int], base: Mapping[str, int], name: str
) -> list[Finding]:
    common = len(mine.keys() & base.keys()) / len(base)
    if common >= _LITTLE_IN_COMMON:
        return []
    cause = (
        f"its tokenizer shares only {common:.0%} of the tokens of {name}, so most rows "
        "of the aligned embeddings come from one model alone"
    )
    return [
        Finding("vocabulary-overlap", "warning", cause, "merge models of one family")
    ]


def _compare_models(mine: Tokenizer, base: Tokenizer, name: str) -> list[Finding]:
    """Compare tokenizers of which one has no tokenizer.json."""
    if mine.model_digest is None or base.model_digest is None:
        cause = f"its vocabulary could not be compared with that of {name}: not both "
        advice = "save the tokenizer of each with save_pretrained"
        return [
            Finding(
                "vocabulary-unknown", "note", f"{cause}have a tokenizer.json", advice
            )
        ]
    if mine.model_digest == base.model_digest:
        return []
    cause = f"its tokenizer.model is not that of {name}, so its tokens may be others"
    return [Finding("vocabulary", "error", cause, _ALIGN)]


def _compare_sections(mine: Tokenizer, base: Tokenizer, name: str) -> Iterator[Finding]:
    for section in sorted(mine.sections.keys() & base.sections.keys()):
        if mine.sections[section] != base.sections[section]:
            cause = (
                f"its tokenizer {_SECTIONS[section]} otherwise than that of {name} "
                f"({section}), which the merge gets: the model will see its text in "
                "other tokens than it was trained on"
            )
            advice = "check which tokenizer it was trained with"
            yield Finding(f"tokenizer-{section}", "warning", cause, advice)


def _compare_chat(mine: Tokenizer, base: Tokenizer, name: str) -> Iterator[Finding]:
    if mine.chat_template != base.chat_template:
        cause = f"its chat template is not that of {name}, which the merge gets"
        advice = "choose another with 'chat_template:'"
        yield Finding("chat-template", "note", cause, advice)


def _optional(path: Path) -> dict[str, Any]:
    return read_json_file(path) if path.is_file() else {}


def _tokenizer_json(path: Path) -> dict[str, Any]:
    content = _optional(path)
    try:
        _TokenizerFile.model_validate(content)
    except ValidationError as error:
        raise damaged(path, error) from None
    return content


def _text(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _ids(content: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = (content.get("model") or {}).get("vocab") or {}
    if isinstance(vocabulary, list):  # tokens with their scores
        vocabulary = {entry[0]: index for index, entry in enumerate(vocabulary)}
    added = content.get("added_tokens") or ()
    return {**vocabulary, **{token["content"]: token["id"] for token in added}}


def _sections(content: Mapping[str, Any]) -> dict[str, Any]:
    merges = (content.get("model") or {}).get("merges") or ()
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]
    parts = {
        name: _plain(content.get(name)) for name in ("normalizer", "pre_tokenizer")
    }
    return {**parts, "merges": pairs}


def _plain(part: Any) -> Any:
    """Leave out defaults, and write alike what versions of tokenizers do not."""
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Metaspace":
        old = "always" if part.get("add_prefix_space", True) else "never"
        scheme = part.get("prepend_scheme", old)
        return {"type": "Metaspace", "scheme": scheme, "by": part.get("replacement")}
    plain = {key: _plain(v) for key, v in part.items() if v not in (None, False, "")}
    return {
        key: value
        for key, value in plain.items()
        if (key, value) != ("use_regex", True)
    }


def _surrounding(processor: Any) -> list[Any]:
    """List the special tokens that are put around one text."""
    if not isinstance(processor, dict):
        return []
    parts, pieces = (_list(processor.get(key)) for key in ("processors", "single"))
    inner = [token for part in parts for token in _surrounding(part)]
    special = [p.get("SpecialToken") for p in pieces if isinstance(p, dict)]
    return inner + [token.get("id") for token in special if isinstance(token, dict)]


def _list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else []


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            text = f"{path} is no text: {error}; download it again"
            raise MergeError(text) from None
    template = settings.get("chat_template")
    return None if template is None else str(template)
