"""Facts about a model without its weights, its problems, and differing settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest.mock import patch

from mergekit.options import MergeOptions
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
)

from mergekit_map.errors import MergeError
from mergekit_map.models.files import ModelFiles, Settings, TensorHeader
from mergekit_map.utils.text import listed

T = TypeVar("T")

_LAYERS = re.compile(r"\b(n(um)?|(en|de)coder)_\w*(layers?|blocks|experts|labels)$")
_MOST_LAYERS = 10_000  # where the tensors cannot be read
_MOST_LABELS = 1 << 20
_VOCABULARY = re.compile(r"(tokenizer|tekken)\.json|vocab.*|.+\.(model|spm|tiktoken)")
_SPECIAL = ("bos_token", "eos_token")
_OTHER_HEADS = (
    *("SequenceClassification", "TokenClassification"),
    *("QuestionAnswering", "MaskedLM"),
)
_SHOWN = 3  # of many names

# An error makes the merge impossible or meaningless. A warning may make it worse than
# expected. A note is good to know.
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One problem, and what to do about it."""

    code: str  # names the cause for programs: tensor-shapes
    severity: Severity
    cause: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.cause}; {self.advice}" if self.advice else self.cause


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of the findings is an error."""
    return any(finding.severity == "error" for finding in findings)


def some(names: Sequence[str]) -> str:
    """List the first of many names: ``'a', 'b', 'c' and 5 more``."""
    words = [f"{name!r:.200}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        words.append(f"{len(names) - _SHOWN} more")
    return listed(words)


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A tokenizer as transformers loads it."""

    ids: Mapping[str, int]  # of every token
    added: frozenset[str]  # tokens that stand beside the vocabulary
    special: Settings  # by name; None if unset


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """Configuration, tokenizer and tensors of a model, as far as they can be read."""

    name: str  # short, for messages
    files: ModelFiles
    config: PretrainedConfig  # as transformers reads it, defaults filled in
    tokenizer: Tokenizer | None
    headers: Mapping[str, TensorHeader]
    unread: frozenset[str]  # of "tokenizer" and "weights"

    @property
    def dtype(self) -> str | None:
        """Return the type of the largest tensor; None without tensors."""
        headers = self.headers.values()
        return max(headers, key=lambda h: h.n_bytes).dtype if headers else None

    @cached_property
    def settings(self) -> Settings:
        """Return the configuration without nesting: ``rope_parameters.rope_theta``."""
        return dict(_flat(self.config.to_dict()))

    def setting(self, key: str) -> Any:
        """Return an entry of the configuration, or of its part about text."""
        return getattr(self.config.get_text_config(), key, None)

    @cached_property
    def vocabulary_tensors(self) -> frozenset[str]:
        """Return the names of the tensors whose rows are tokens."""
        rows = {n: h.shape for n, h in self.headers.items() if len(h.shape) == 2}
        size = self.setting("vocab_size")
        return frozenset(n for n, shape in rows.items() if shape[0] == size)


def read_facts(
    files: ModelFiles, name: str, options: MergeOptions
) -> tuple[ModelFacts | None, list[Finding]]:
    """Read what is known of a whole model, and list what cannot be read.

    The facts are None where the model could not be compared with any other.
    """
    if quantization := files.config.get("quantization_config"):
        known = isinstance(quantization, dict) and quantization.get("quant_method")
        cause = f"its weights are quantized ({known or 'quantization_config'}): codes, "
        cause += "not numbers that can be added up"
        advice = "take the model that it was quantized from"
        return None, [Finding("quantized", "error", cause, advice)]
    findings: list[Finding] = []

    def attempt(code: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except MergeError as error:
            findings.append(Finding(code, "error", str(error)))
            return None

    headers = attempt("weights", files.headers)
    config = attempt("configuration", lambda: _read_config(files, options, headers))
    if config is None:
        return None, findings  # transformers reads it for a tokenizer, too
    tokenizer = attempt("tokenizer", lambda: read_tokenizer(files.folder, options))
    kind = str((config.architectures or [""])[0])
    # transformers knows some models, such as T5, but no causal one of them.
    is_known = type(config) in MODEL_MAPPING
    has_causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or not is_known
    has_other = config.is_encoder_decoder or not has_causal
    is_other = has_other and kind.endswith("ForConditionalGeneration")
    if is_other or kind.endswith(_OTHER_HEADS):
        cause = f"it is a {kind}, which is no causal language model"
        advice = "take the language model that it was trained from"
        return None, [*findings, Finding("head", "error", cause, advice)]
    unread = frozenset(finding.code for finding in findings)
    return ModelFacts(name, files, config, tokenizer, headers or {}, unread), findings


def _read_config(
    files: ModelFiles, options: MergeOptions, headers: Mapping[str, TensorHeader] | None
) -> PretrainedConfig:
    path = files.folder / "config.json"
    _refuse_layers(files.config, len(headers or ()) or _MOST_LAYERS, path)
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(
            files.folder, trust_remote_code=options.trust_remote_code
        )
    except Exception as error:  # noqa: BLE001 - whatever its code stumbles over
        reason = " ".join(str(error).split())[:300]
        raise MergeError(
            f"transformers cannot use {path}: {reason}; put right what it names, or "
            "download the model again"
        ) from None
    match config.architectures:
        case [str()]:
            return config
    raise MergeError(
        f"{path} must name one architecture, got {config.architectures!r:.100}; add "
        "for example 'architectures: [LlamaForCausalLM]'"
    )


def _refuse_layers(config: Settings, most: int, path: Path) -> None:
    """Refuse more layers than tensors, or too many experts, which may share tensors."""
    for key, count in _flat(config):
        limit = max(most, _MOST_LAYERS) if key.endswith("experts") else most
        limit = _MOST_LABELS if key.endswith("labels") else limit
        counted = _LAYERS.search(key) and isinstance(count, int | float)
        if counted and not count <= limit:
            raise MergeError(
                f"{path} cannot be that of a model: {key} is {count!r:.20}, at most "
                f"{limit} can be; download the model again"
            )


def _flat(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def no_tekken() -> AbstractContextManager[object]:
    """Let no tekken.json have mistral_common read a tokenizer: merges have none."""
    return patch(
        "transformers.models.auto.tokenization_auto._use_mistral_format",
        lambda *_, **__: False,
        create=True,  # the first transformers 5 had none
    )


def has_tokenizer(folder: Path) -> bool:
    """Whether there is a vocabulary: without one transformers loads no tokenizer."""
    return any(_VOCABULARY.fullmatch(path.name) for path in folder.iterdir())


def read_tokenizer(folder: Path, options: MergeOptions) -> Tokenizer | None:
    """Load the tokenizer of a model; None where there is none."""
    if not has_tokenizer(folder):
        return None
    try:
        with no_tekken():
            found = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=options.trust_remote_code
            )
        special = {key: getattr(found, key) for key in _SPECIAL}
        around = found.convert_ids_to_tokens(found("").input_ids)
    except Exception as error:  # noqa: BLE001 - whatever its files make of it
        reason = " ".join(str(error).split())[:300]
        raise MergeError(
            f"the tokenizer of {folder} (tokenizer.json, tokenizer_config.json, ...) "
            f"cannot be loaded: {reason}; save it again"
        ) from None
    return Tokenizer(
        ids=found.get_vocab(),
        added=frozenset(found.get_added_vocab()),
        special=special | {"around a text": around},
    )


# Settings in which fine-tunes of one model agree, by the code of a finding.
_DIFFERENCES: dict[str, tuple[re.Pattern[str], Severity, str, str]] = {
    "architecture": (
        re.compile("model_type|architectures"),
        "error",
        "it is of another architecture",
        "only fine-tunes of one base model can be merged",
    ),
    "size": (
        re.compile(
            r"hidden_size|(moe_|shared_expert_)?intermediate_size|ffn_dim"
            r"|num_\w*(heads|layers|experts)|num_heads|n_(embd|layer|head|inner)"
            r"|n_(routed|shared)_experts|d_(model|ff)|(q|kv)_lora_rank"
            r"|(v|qk_rope|qk_nope)_head_dim"
        ),
        "error",
        "it is a model of another size",
        "merge fine-tunes of one model",
    ),
    "rope": (  # the attention of one model means nothing to the other
        re.compile(
            r"rope_(theta|local_base_freq|parameters|scaling)"
            r"|rotary_(emb_base|dim|pct)|partial_rotary_factor"
        ),
        "error",
        "its positions are encoded otherwise",
        "choose models that agree in it",
    ),
    "configuration-differs": (
        re.compile(r"hidden_act\w*|activation_function|\w*norm\w*eps\w*|\w+_bias"),
        "warning",
        "its configuration differs in what may matter",
        "the merge has that of the base model; check that both are of one family",
    ),
    "tied-embeddings": (
        re.compile(r"tie_word_embeddings"),
        "warning",
        "one of both has its embeddings for a head",
        "the merge has a head of its own",
    ),
}
# Versions write these or leave them out; the shapes of tensors tell the size of heads.
_LEGACY = {"original_max_position_embeddings", "head_dim", "type"}
_DEPTH = re.compile(r"num_(hidden_)?layers|n_layer|layer_types")


def compare_settings(
    mine: Settings, base: Settings, name: str, *, layered: bool
) -> Iterator[Finding]:
    """Yield a finding for other sizes, for other positions, and for a head of its own.

    The settings are without nesting; ``layered`` means that the user selects layers.
    """
    differences: dict[str, dict[str, None]] = {}
    for key in sorted(mine.keys() & base.keys()):
        *around, last = key.split(".")
        if mine[key] == base[key] or last in _LEGACY:
            continue
        if layered and _DEPTH.fullmatch(last):
            continue
        text = f"{last} is {_written(mine[key])} here and {_written(base[key])}"
        for code, (keys, *_) in _DIFFERENCES.items():
            if any(map(keys.fullmatch, (*around, last))):
                differences.setdefault(code, {})[text] = None
    for code, texts in differences.items():
        _, severity, cause, advice = _DIFFERENCES[code]
        yield Finding(code, severity, f"{cause}: {', '.join(texts)} in {name}", advice)


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
