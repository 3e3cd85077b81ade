"""Whether a model can be merged with a base model: one rule for each cause.

The rules use headers, configurations and tokenizers; no weight is read. The
consequences of a cause are not reported again: tensors of other shapes in a model of
another size, or other special tokens in another vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from mergekit.architecture import WeightInfo
from mergekit.architecture.conversion import can_convert_checkpoint_keys
from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.models.config_checks import Finding, compare_settings, some
from mergekit_map.models.facts import ModelFacts
from mergekit_map.models.tokenizers import compare_tokenizers, same_rows

# Constants that older versions of transformers saved; no merge needs them.
_CONSTANTS = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias)$")

# Findings that explain rows of the embeddings.
_ROWS = {"vocabulary", "vocabulary-size", "added-tokens"}

_ADVICE = "merge fine-tunes of one model"


def check_layout(model: ModelFacts) -> Iterator[Finding]:
    """List the tensors that mergekit needs of a model and that it lacks."""
    if "headers" in model.unread or model.weights is None:
        return
    missing = [
        weight.name
        for weight in model.weights.values()
        # A head is optional for mergekit, which takes the embeddings in its place.
        if (not weight.optional or weight.tied_names) and not _is_there(weight, model)
    ]
    if missing:
        cause = f"it lacks {len(missing)} tensors that its configuration asks for "
        advice = "download the model, or save it, again"
        yield Finding("tensors-missing", "error", f"{cause}({some(missing)})", advice)


def check_left_out(model: ModelFacts) -> Iterator[Finding]:
    """List the tensors of a base model that mergekit does not know."""
    if model.weights is None or any(n not in model.headers for n in model.weights):
        return  # its names are inferred, or converted
    weights = model.weights.values()
    known = {name for w in weights for name in (w.name, *(w.aliases or ()))}
    yield from _left_out(_tensors(model) - known)


def check_layers(model: ModelFacts, end: int) -> Iterator[Finding]:
    """Yield a finding where a model has fewer layers than ``end``, a range's end."""
    nested = model.settings.get("text_config.num_hidden_layers")
    layers = model.settings.get("num_hidden_layers", nested)
    if isinstance(layers, int) and end > layers:
        cause = f"a layer_range of it ends at {end}, and it has {layers} layers"
        advice = "write the one behind the last that is wanted"
        yield Finding("layers", "error", cause, advice)


def compare_layouts(
    mine: ModelFacts, base: ModelFacts, explained: Collection[str], *, aligned: bool
) -> Iterator[Finding]:
    """List tensors that only one of two models has, or that differ in shape.

    Tensors that the ``explained`` codes of findings account for are left out.
    """
    if "headers" in mine.unread | base.unread:
        return
    tensors, others = _tensors(mine), _tensors(base)
    if "tied-embeddings" in explained:
        heads = mine.vocabulary_tensors | base.vocabulary_tensors
        tensors, others = tensors - heads, others - heads
    if "bias" in explained:
        biases = {name for name in tensors | others if name.endswith(".bias")}
        tensors, others = tensors - biases, others - biases
    if mine.weights is None and others - tensors:
        fewer = sorted(others - tensors)
        cause = f"it lacks {len(fewer)} tensors that {base.name} has ({some(fewer)})"
        yield Finding("tensors-missing", "error", cause, _ADVICE)
    yield from _compare_surplus(mine, base, tensors - others)
    free_rows = mine.vocabulary_tensors if aligned or _ROWS & {*explained} else ()
    yield from _compare_shapes(mine, base, sorted(tensors & others), free_rows)


def main_dtype(model: ModelFacts) -> str | None:
    """Return the type of most bytes of a model."""
    sizes: Counter[str] = Counter()
    for header in model.headers.values():
        sizes[header.dtype] += header.n_bytes
    return sizes.most_common(1)[0][0] if sizes else None


def _compare_surplus(
    mine: ModelFacts, base: ModelFacts, names: Collection[str]
) -> Iterator[Finding]:
    weights = mine.weights or {}
    bare = sorted(n for n in names if n in weights and not _is_there(weights[n], base))
    if bare:
        cause = f"{base.name} has nothing that {len(bare)} of its tensors could be a "
        cause += f"change of ({some(bare)})"
        yield Finding("tensors-extra", "error", cause, _ADVICE)
    yield from _left_out({name for name in names if name not in weights})


def _compare_shapes(
    mine: ModelFacts, base: ModelFacts, names: list[str], free_rows: Collection[str]
) -> Iterator[Finding]:
    other = []
    for name in names:
        ours, theirs = mine.headers[name].shape, base.headers[name].shape
        if ours != theirs and not (name in free_rows and ours[1:] == theirs[1:]):
            text = f"{name} has shape {list(ours)} here and {list(theirs)} in"
            other.append(f"{text} {base.name}")
    if other:
        many = f"{len(other)} of its tensors have another shape: "
        cause = f"{many if len(other) > 1 else ''}{other[0]}"
        advice = "these are not fine-tunes of one model"
        yield Finding("tensor-shapes", "error", cause, advice)


def _left_out(names: Collection[str]) -> Iterator[Finding]:
    if names:
        cause = f"mergekit leaves {len(names)} of its tensors out of the merge "
        advice = "what they do is not in the merge; check that it is not needed"
        text = f"{cause}({some(sorted(names))})"
        yield Finding("tensors-left-out", "warning", text, advice)


def _tensors(model: ModelFacts) -> set[str]:
    return {name for name in model.headers if not _CONSTANTS.search(name)}


def _is_there(weight: WeightInfo, model: ModelFacts) -> bool:
    names = [weight.name, *(weight.aliases or ())]
    if model.ties_embeddings:
        names += weight.tied_names or ()
    if any(name in model.headers for name in names):
        return True
    kind = model.config.model_type
    found: bool = can_convert_checkpoint_keys(kind, set(model.headers), weight.name)
    return found


# Tokens that fill, or stand for what is unknown: what texts say does not need them.
_HARMLESS_TOKENS = ("pad_token", "unk_token")

# Errors that --allow-crimes takes upon itself; the others end in mergekit, or in noise.
_CRIMES = frozenset({"rope-theta", "rope-scaling", "activation", "bias"})


def compare_models(
    mine: ModelFacts, base: ModelFacts, merge: MergeConfig, options: MergeOptions
) -> list[Finding]:
    """List the problems of merging a model with the base model, by cause."""
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
    """Compare the tokens that begin, end and pad texts, or their ids."""
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
