"""What makes a merge meaningless or impossible, found before anything is evaluated."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.config import Problem
from mergekit_map.errors import MergeError
from mergekit_map.merging.entries import referenced_models
from mergekit_map.merging.models import ModelFiles, find_model, fingerprint
from mergekit_map.yamlfile import KeyPath

_SAMPLED_TENSORS = 5
_SAMPLED_ROWS = 256


def check_models(merge: Mapping[str, Any], options: MergeOptions) -> list[Problem]:
    """List what stands against merging these models.

    ``merge`` is a configuration that ``check_merge`` accepts. Every model is looked at,
    so that all problems are found at once.
    """
    found: dict[str, ModelFiles] = {}
    problems: list[Problem] = []
    places = referenced_models(merge)
    for reference, key in places.items():
        try:
            found[reference] = _check_one(reference)
        except MergeError as error:
            problems.append(Problem(key, str(error)))
    if problems or not found:
        return problems
    first, *others = found
    for reference in others:
        pair = (found[first], found[reference])
        for message in _mismatches(merge, pair, (first, reference), options):
            problems.append(Problem(places[reference], message))
    return problems or _identical(found, places)


def _check_one(reference: str) -> ModelFiles:
    model, *lora = reference.split("+")
    files = find_model(model)
    if files.is_adapter:
        raise MergeError(
            f"{model} is a LoRA adapter; write the model it was trained on in front of "
            "it: 'model: base+adapter'"
        )
    if lora:
        adapter = find_model(lora[0])
        if not adapter.is_adapter:
            raise MergeError(
                f"{lora[0]} behind the '+' is a whole model, not an adapter"
            )
    if not any(files.folder.glob("*.safetensors")):
        if not any(files.folder.glob("*.bin")):
            raise MergeError(f"{model} holds no weights (*.safetensors)")
        raise MergeError(
            f"{model} has pickled weights (*.bin), which can run code when loaded; "
            "convert it with save_pretrained first"
        )
    files.shapes()
    files.vocabulary()
    return files


def _mismatches(
    merge: Mapping[str, Any],
    pair: tuple[ModelFiles, ModelFiles],
    names: tuple[str, str],
    options: MergeOptions,
) -> Iterator[str]:
    one, other = pair
    for key in ("model_type", "architectures"):
        if one.config.get(key) != other.config.get(key) and not options.allow_crimes:
            yield (
                f"{key} is {other.config.get(key)} here and {one.config.get(key)} in "
                f"{names[0]}; only fine-tunes of one base model can be merged"
            )
            return
    thetas = (one.rope_theta, other.rope_theta)
    if None not in thetas and thetas[0] != thetas[1]:
        yield (
            f"its positions are encoded with rope_theta {thetas[1]:g}, those of "
            f"{names[0]} with {thetas[0]:g}; attention of the one means nothing to the "
            "other, so choose models of one family"
        )
        return
    aligned = merge.get("tokenizer") or merge.get("tokenizer_source")
    advice = "align them with 'tokenizer: {source: union}' or '{source: base}'"
    if not aligned and one.vocabulary() != other.vocabulary():
        yield (
            f"its tokenizer has other tokens or ids than that of {names[0]}, so rows "
            f"of the embeddings mean different tokens; {advice}"
        )
        return
    if "slices" in merge or "modules" in merge:
        return  # layers are combined as the user says
    mismatches = list(_shape_mismatches(pair, names, aligned=bool(aligned)))
    yield from mismatches or _unrelated(pair, names)


def _shape_mismatches(
    pair: tuple[ModelFiles, ModelFiles], names: tuple[str, str], *, aligned: bool
) -> Iterator[str]:
    shapes, others = pair[0].shapes(), pair[1].shapes()
    for name in sorted(shapes.keys() & others.keys()):
        ours, theirs = shapes[name], others[name]
        if ours != theirs and not (aligned and ours[1:] == theirs[1:]):
            yield (
                f"{name} has shape {list(theirs)} here and {list(ours)} in {names[0]}; "
                "these are not fine-tunes of one model"
            )
            return


def _unrelated(
    pair: tuple[ModelFiles, ModelFiles], names: tuple[str, str]
) -> Iterator[str]:
    """Compare a few matrices; those trained apart differ by more than their norm.

    Fine-tunes of one model differ by a few percent, rarely by half of it.
    """
    shapes, others = pair[0].shapes(), pair[1].shapes()
    common = [
        n for n, s in sorted(shapes.items()) if len(s) == 2 and others.get(n) == s
    ]
    sample = common[:: max(1, len(common) // _SAMPLED_TENSORS)][:_SAMPLED_TENSORS]
    ratios = []
    for name in sample:
        ours, theirs = (files.rows(name, _SAMPLED_ROWS) for files in pair)
        ratios.append(float((theirs - ours).norm() / ours.norm().clamp(min=1e-12)))
    if ratios and statistics.median(ratios) > 1:
        yield (
            f"its weights differ from those of {names[0]} by "
            f"{statistics.median(ratios):.1f} times their norm, so it is not a "
            "fine-tune of the same model; merge models of one base"
        )


def _identical(
    found: Mapping[str, ModelFiles], places: Mapping[str, KeyPath]
) -> list[Problem]:
    """Refuse two references to the same weights: their task vector is zero."""
    seen: dict[str, str] = {}
    problems = []
    for reference in found:
        digest = fingerprint(reference)
        if digest in seen:
            text = (
                f"{reference} has the same content as {seen[digest]}, so its weight "
                "changes nothing that can be measured; leave one of them out"
            )
            problems.append(Problem(places[reference], text))
        seen.setdefault(digest, reference)
    return problems
