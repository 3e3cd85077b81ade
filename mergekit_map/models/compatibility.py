"""Whether a model can be merged with a base model: one rule for each cause.

All of it is told by headers, configurations and tokenizers; no weight is read. What
follows from a cause that was found is not found again: tensors of other shapes in a
model of another size, or other special tokens in another vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.models.facts import ModelFacts
from mergekit_map.models.findings import Finding
from mergekit_map.models.layout import compare_dtypes, compare_layouts
from mergekit_map.models.settings import compare_settings
from mergekit_map.models.vocabularies import compare_tokenizers, same_rows

# Tokens that fill, or stand for what is unknown: what texts say does not need them.
_HARMLESS_TOKENS = ("pad_token", "unk_token")

# Errors that --allow-crimes takes upon itself; the others end in mergekit, or in noise.
_CRIMES = frozenset({"rope-theta", "rope-scaling", "activation", "bias"})


def compare_models(
    mine: ModelFacts, base: ModelFacts, merge: MergeConfig, options: MergeOptions
) -> list[Finding]:
    """List what stands against merging a model with the base model, by cause."""
    architecture = _compare_architectures(mine, base)
    if architecture and not options.allow_crimes:
        return architecture  # everything else follows from it
    layered = "slices" in merge or "modules" in merge  # combined as the user says
    found = compare_settings(mine.settings, base.settings, base.name, layered=layered)
    found += _compare_ties(mine, base)
    found += _compare_vocabularies(mine, base, merge, options)
    codes = {finding.code for finding in found}
    if not layered and "size" not in codes:
        found += compare_layouts(mine, base, codes, aligned=_is_aligned(merge))
        found += compare_dtypes(mine, base) if "dtype" not in merge else []
    if options.allow_crimes:
        found = [
            replace(finding, severity="warning") if finding.code in _CRIMES else finding
            for finding in found
        ]
    return found


def _is_aligned(merge: MergeConfig) -> bool:
    return bool(merge.get("tokenizer") or merge.get("tokenizer_source"))


def _compare_architectures(mine: ModelFacts, base: ModelFacts) -> list[Finding]:
    for key in ("model_type", "architectures"):
        one, other = mine.settings[key], base.settings[key]
        if one != other:
            cause = f"{key} is {one} here and {other} in {base.name}"
            advice = "only fine-tunes of one base model can be merged"
            return [Finding("architecture", "error", cause, advice)]
    return []


def _compare_ties(mine: ModelFacts, base: ModelFacts) -> list[Finding]:
    if mine.ties_embeddings == base.ties_embeddings:
        return []
    if mine.ties_embeddings:
        cause = (
            f"its head is its embeddings once more (tie_word_embeddings), while "
            f"{base.name} has a head of its own, which it cannot be a change of"
        )
        advice = "merge fine-tunes of one model"
        return [Finding("tied-embeddings", "error", cause, advice)]
    cause = (
        f"it has a head of its own, while {base.name} uses its embeddings once more "
        "(tie_word_embeddings), and the merge says that it does, too"
    )
    advice = "programs that believe that will lose the merged head"
    return [Finding("tied-embeddings", "warning", cause, advice)]


def _compare_vocabularies(
    mine: ModelFacts, base: ModelFacts, merge: MergeConfig, options: MergeOptions
) -> list[Finding]:
    rows = (mine.vocabulary_size, base.vocabulary_size)
    if options.unsafe_truncate_embeddings:
        rows = (rows[1], rows[1])  # mergekit cuts off what only one of them has
    if "tokenizer" in mine.unread | base.unread:
        return []
    found = compare_tokenizers(
        mine.tokenizer, base.tokenizer, base.name, rows, aligned=_is_aligned(merge)
    )
    if not any(finding.code == "vocabulary" for finding in found):
        found += _compare_special_tokens(mine, base)
    hidden = "chat-template" if merge.get("chat_template") else ""
    return [finding for finding in found if finding.code != hidden]


def _compare_special_tokens(mine: ModelFacts, base: ModelFacts) -> list[Finding]:
    """Compare what begins, ends and fills texts: in the tokenizer, else by its id."""
    ours = mine.tokenizer.special if mine.tokenizer else {}
    theirs = base.tokenizer.special if base.tokenizer else {}
    pairs = {key: (ours[key], theirs[key]) for key in ours.keys() & theirs.keys()}
    comparable = same_rows(mine.tokenizer, base.tokenizer)  # else ids are others anyway
    for key in ("bos_token", "eos_token", "pad_token") if comparable else ():
        if key not in pairs or pairs[key][0] == pairs[key][1]:
            one, other = (model.settings.get(f"{key}_id") for model in (mine, base))
            pairs[f"{key}_id"] = (one, other)
    keys = sorted(k for k, (a, b) in pairs.items() if a != b and None not in (a, b))
    if not keys:
        return []
    texts = [f"{key} is {pairs[key][0]!r} here and {pairs[key][1]!r}" for key in keys]
    grave = any(not key.startswith(_HARMLESS_TOKENS) for key in keys)
    cause = f"its special tokens are others: {', '.join(texts)} in {base.name}"
    advice = f"the merge has those of {base.name}; see that it begins and ends texts"
    return [Finding("special-tokens", "warning" if grave else "note", cause, advice)]
