"""The tokenizer of a model against that of the base model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mergekit_map.models.findings import Finding, some
from mergekit_map.models.tokenizers import Tokenizer

_ALIGN = "align them with 'tokenizer: {source: union}' or '{source: base}'"

# Parts of tokenizer.json that decide how text is cut, and what they do.
_SECTIONS = {
    "normalizer": "normalizes text",
    "pre_tokenizer": "cuts text into words",
    "merges": "joins the parts of words",
}

# Aligned by their text, tokens that only one of two models knows are made up from the
# base model's, or left out. Below this share that is most of them.
_LITTLE_IN_COMMON = 0.5


def compare_tokenizers(
    mine: Tokenizer | None,
    base: Tokenizer | None,
    name: str,
    rows: tuple[Any, Any],
    *,
    aligned: bool,
) -> list[Finding]:
    """List what differs between the tokenizer of a model and that of the base model.

    ``rows`` are those of the embeddings of each, which mergekit may be asked to align.
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
    findings += _compare_sections(mine, base, name)
    if mine.chat_template != base.chat_template:
        cause = f"its chat template is not that of {name}, which the merge gets"
        advice = "choose another with 'chat_template:'"
        findings.append(Finding("chat-template", "note", cause, advice))
    return findings


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
        yield from _compare_rows(name, rows)
        return
    here = {index: token for token, index in mine.ids.items()}
    there = {index: token for token, index in base.ids.items()}
    other = sorted(i for i in there.keys() & here.keys() if here[i] != there[i])
    grave = [i for i in other if there[i] not in base.added or here[i] in base.ids]
    if other and aligned:
        common = len(mine.ids.keys() & base.ids.keys()) / len(base.ids)
        if common < _LITTLE_IN_COMMON:
            cause = (
                f"its tokenizer shares only {common:.0%} of the tokens of {name}, so "
                "most rows of the aligned embeddings come from one model alone"
            )
            advice = "merge models of one family"
            yield Finding("vocabulary-overlap", "warning", cause, advice)
    elif grave:
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
    cause = f"its embeddings have {rows[0]} rows (vocab_size), those of {name} "
    return [Finding("vocabulary-size", "error", f"{cause}{rows[1]}", _ALIGN)]


def _compare_models(mine: Tokenizer, base: Tokenizer, name: str) -> list[Finding]:
    """Compare tokenizers of which one has no tokenizer.json."""
    if mine.model_digest is None or base.model_digest is None:
        cause = f"its vocabulary could not be compared with that of {name}: not both "
        cause += "have a tokenizer.json"
        advice = "save the tokenizer of each with save_pretrained"
        return [Finding("vocabulary-unknown", "note", cause, advice)]
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
