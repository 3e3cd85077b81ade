"""Names and shapes of the tensors of a model, as mergekit will look for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

from mergekit.architecture import WeightInfo
from mergekit.architecture.conversion import can_convert_checkpoint_keys

from mergekit_map.models.facts import ModelFacts
from mergekit_map.models.findings import Finding, some

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
    """Say where a ``layer_range`` ends, ``end``, if the model has fewer layers."""
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

    Those that follow from findings with the codes ``explained`` are left out.
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


def compare_dtypes(mine: ModelFacts, base: ModelFacts) -> Iterator[Finding]:
    """Say where two models are stored in different types."""
    one, other = (main_dtype(model) for model in (mine, base))
    if one != other and "headers" not in mine.unread | base.unread:
        cause = f"its weights are stored as {one}, those of {base.name} as {other}"
        advice = "set 'dtype:' to choose the one that the merge is computed in"
        yield Finding("dtype", "note", cause, advice)


def main_dtype(model: ModelFacts) -> str | None:
    """Name the type that most bytes of a model are stored in."""
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
