"""What the files of a tokenizer say; transformers loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from transformers import AutoTokenizer

from mergekit_map.errors import MergeError
from mergekit_map.files import read_whole, sha256_of_file
from mergekit_map.models.findings import Finding
from mergekit_map.models.found_files import damaged, is_there, read_json_file
from mergekit_map.models.settings import Settings

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
    model: _Vocabulary | None = None
    added_tokens: list[_AddedToken] | None = None
    normalizer: Any = None
    pre_tokenizer: Any = None
    post_processor: Any = None

    @property
    def ids(self) -> dict[str, int]:
        """Number every token."""
        tokens = (self.model and self.model.vocab) or {}
        if isinstance(tokens, list):  # with their scores
            tokens = {str(entry[0]): index for index, entry in enumerate(tokens)}
        return {**tokens, **{t.content: t.id for t in self.added_tokens or ()}}

    @property
    def sections(self) -> Settings:
        """Say how text is cut."""
        merges = (self.model and self.model.merges) or ()
        return {
            "normalizer": _plain(self.normalizer),
            "pre_tokenizer": _plain(self.pre_tokenizer),
            "merges": [m.split(" ") if isinstance(m, str) else m for m in merges],
        }


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """What the files of a tokenizer say."""

    ids: Mapping[str, int] | None  # of every token; None without a tokenizer.json
    added: frozenset[str]  # tokens that stand beside the vocabulary
    sections: Settings = field(default_factory=dict)  # how text is cut
    special: Settings = field(default_factory=dict)  # by name; None if unset
    chat_template: str | None = None
    model_digest: str | None = None  # of a tokenizer.model


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a model; None where there is none.

    Raises:
        MergeError: a file is damaged.
    """
    if not any([is_there(folder / name) for name in _FILES]):  # all are looked at
        return None
    settings = _optional(folder / "tokenizer_config.json")
    names = {**_optional(folder / "special_tokens_map.json"), **settings}
    special = {key: _text(names.get(key)) for key in _SPECIAL}
    file = _tokenizer_file(folder / "tokenizer.json")
    special["around a text"] = _surrounding(file.post_processor if file else None)
    model = folder / "tokenizer.model"
    return Tokenizer(
        ids=file.ids if file else None,
        added=frozenset(t.content for t in (file and file.added_tokens) or ()),
        sections=file.sections if file else {},
        special=special | {key: settings.get(key) for key in _SWITCHES},
        chat_template=_chat_template(folder, settings),
        model_digest=sha256_of_file(model) if model.is_file() else None,
    )


def check_tokenizer(folder: Path, *, trust_code: bool) -> Iterator[Finding]:
    """Say why the tokenizer of a folder cannot be used, if so.

    One without a tokenizer.json is made as transformers makes it.
    """
    path = folder / "tokenizer.json"
    try:
        if path.is_file():
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
            known = tokenizer.get_vocab_size(with_added_tokens=False) > 0
        else:
            made = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_code)
            # From no file at all some are made, with special tokens alone.
            known = bool(made.get_vocab().keys() - made.get_added_vocab().keys())
    except Exception as error:  # noqa: BLE001 - of Rust, or whatever its code raises
        place = path if path.is_file() else folder
        reason = " ".join(str(error).split())[:300]
        cause = f"its tokenizer, {place}, cannot be loaded: {reason}"
        yield Finding("tokenizer", "error", cause, "save the tokenizer again")
    else:
        if not known:
            cause = f"its tokenizer in {folder} knows no tokens of texts"
            yield Finding("tokenizer", "error", cause, "save the tokenizer again")


def _optional(path: Path) -> Settings:
    return read_json_file(path) if is_there(path) else {}


def _tokenizer_file(path: Path) -> _TokenizerFile | None:
    try:
        content = _optional(path)
        return _TokenizerFile.model_validate(content) if content else None
    except ValidationError as error:
        raise damaged(path, error) from None


def _text(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


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
    return {
        key: _plain(value)
        for key, value in part.items()
        if value not in (None, False, "") and (key, value) != ("use_regex", True)
    }


def _surrounding(processor: Any) -> list[Any]:
    if not isinstance(processor, dict):
        return []
    parts, pieces = (_list(processor.get(key)) for key in ("processors", "single"))
    inner = [token for part in parts for token in _surrounding(part)]
    special = [p.get("SpecialToken") for p in pieces if isinstance(p, dict)]
    return inner + [token.get("id") for token in special if isinstance(token, dict)]


def _list(part: Any) -> list[Any]:
    return part if isinstance(part, list) else []


def _chat_template(folder: Path, settings: Settings) -> str | None:
    path = folder / "chat_template.jinja"
    if is_there(path):
        try:
            return read_whole(path, _LARGEST_TEMPLATE).decode("utf-8")
        except (ValueError, OSError) as error:
            text = f"{path} is no text: {error}; download it again"
            raise MergeError(text) from None
    template = settings.get("chat_template")
    return None if template is None else str(template)
