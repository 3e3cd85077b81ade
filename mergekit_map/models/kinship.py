"""Whether models are fine-tunes of their base model, told by their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from mergekit_map.models.findings import Finding, Severity, has_errors, some
from mergekit_map.models.vectors import Figures, VectorFigures, Weights

# About the largest ratio of L1 norms for which we have seen quadratics fit
# (docs/architecture.md). The paper's models have 0.01 to 0.02; models trained apart
# have about 1.4.
LARGEST_RATIO = 0.3

# Task vectors of models that were tuned apart from one base are almost orthogonal.
_ALIKE = 0.9
# Of the parameters in matrices; where fewer are strange, these few were made anew.
_MOST = 0.5

# Rows of a model that are looked for in the base model, in so many matrices.
_N_ROWS = 64
_N_MATRICES = 3
_LARGEST_MATRIX = 1 << 27
_SAME_ROW = 0.9  # cosine


def judge_weights(
    weights: Mapping[str, Weights],
    figures: Figures,
    names: Mapping[str, str],
    same_files: Callable[[str, str], bool],
    *,
    has_base: bool,
) -> dict[str, list[Finding]]:
    """List what the figures say against each model, by reference, the base model first.

    Where no difference was read, and not all was read, ``same_files`` is asked. Where
    the first is no base model, there are no task vectors to be judged.
    """
    base = next(iter(weights))
    found: dict[str, list[Finding]] = {reference: [] for reference in weights}

    def equal(one: str, other: str) -> Finding:
        parts = [figures.models[m].n_read for m in (one, other) if m != base]
        sure = min(parts) == figures.n_parameters or same_files(one, other)
        return _equal(names[one], (min(parts), figures.n_parameters), sure=sure)

    found[base] += _not_finite(figures.base_not_finite)
    for model, figure in figures.models.items():
        found[model] += _not_finite(figure.not_finite)
        if figure.changed == 0:
            found[model].append(equal(base, model))
            continue
        found[model] += _zeroed(figure, names[base])
        if figure.estranged_share > _MOST:
            strange = figure.estranged
            moved = _moved_rows(weights[base], weights[model], strange)
            found[model].append(_unrelated(figure, names[base], moved))
        elif has_base:
            found[model] += _far_away(figure, names[base])
    for (one, other), pair in figures.pairs.items():
        changed = figures.models[one].changed and figures.models[other].changed
        if not changed or has_errors([*found[one], *found[other]]):
            continue
        if pair.equal:
            found[other].append(equal(one, other))
        elif has_base and pair.cosine is not None and pair.cosine > _ALIKE:
            found[other].append(_alike(names[one], names[base], pair.cosine))
    return found


def _not_finite(tensors: Sequence[str]) -> Iterator[Finding]:
    if tensors:
        cause = f"{len(tensors)} of its tensors hold NaN or infinity "
        cause += f"({some(tensors)}), and so would every merge"
        advice = "download the model again, or take an earlier checkpoint of it"
        yield Finding("weights-not-finite", "error", cause, advice)


def _zeroed(figure: VectorFigures, base: str) -> Iterator[Finding]:
    if figure.zeroed:
        cause = f"{len(figure.zeroed)} of its tensors are zero, while those of {base} "
        advice = "check that it was saved whole"
        text = f"{cause}are not ({some(figure.zeroed)})"
        yield Finding("weights-zero", "warning", text, advice)


def _equal(other: str, counts: tuple[int, int], *, sure: bool) -> Finding:
    text = f"it does not differ from {other} in any of the {counts[0]} parameters that "
    text += f"were compared, of {counts[1]}"
    if sure:
        text = f"it has the same content as {other}: no weight differs, so its "
        text += "coefficient changes nothing that can be measured"
    severity: Severity = "error" if sure else "warning"
    return Finding("same-weights", severity, text, "leave one of them out")


def _unrelated(figure: VectorFigures, base: str, moved: str | None) -> Finding:
    if moved is not None:
        cause = f"its hidden units are in another order: the rows of {moved} are those "
        advice = "bring them into one order before merging"
        return Finding("permuted", "error", f"{cause}of {base}, moved", advice)
    cause = f"its weights differ from those of {base} by {figure.norm_ratio:.1f} times "
    text = f"{cause}their norm, so it is not a fine-tune of the same model"
    return Finding("unrelated", "error", text, "merge models of one base")


def _far_away(figure: VectorFigures, base: str) -> Iterator[Finding]:
    if figure.estranged:
        count = len(figure.estranged)
        cause = f"{count} of its matrices have nothing in common with those of {base} "
        advice = "they were made anew; merge them with a filter of their own, or not"
        text = f"{cause}({some(figure.estranged)})"
        yield Finding("matrices-unrelated", "warning", text, advice)
    elif figure.norm_ratio is not None and figure.norm_ratio > LARGEST_RATIO:
        cause = (
            f"its task vector has {figure.norm_ratio:.2f} of the L1 norm of {base}: "
            "quadratics are known to fit up to about "
            f"{LARGEST_RATIO}, and the method was made for 0.01 to 0.02"
        )
        advice = (
            f"check that {base} is the model it was tuned from, and search a smaller "
            "box ('bounds: [0, 0.5]')"
        )
        yield Finding("norm-ratio", "warning", cause, advice)


def _alike(other: str, base: str, cosine: float) -> Finding:
    cause = (
        f"its task vector points where that of {other} does (cosine {cosine:.2f}): "
        "they are much the same model, or both were tuned from another base than "
        f"{base}"
    )
    advice = "leave one out, or write the model that both were tuned from as base_model"
    return Finding("alike", "warning", cause, advice)


def _moved_rows(base: Weights, model: Weights, strange: Sequence[str]) -> str | None:
    """Find a matrix whose rows are those of the base model in another order."""
    sizes = {name: base.headers[name].n_elements for name in strange}
    small = [name for name in strange if sizes[name] <= _LARGEST_MATRIX]
    small.sort(key=sizes.__getitem__)
    for name in small[:_N_MATRICES]:
        header = base.headers[name]
        count = min(_N_ROWS, header.n_rows)
        starts = [i * header.n_rows // count for i in range(count)]
        rows = torch.cat([model.read(name, start, start + 1) for start in starts])
        others = base.read(name, 0, header.n_rows)
        rows, others = (torch.nn.functional.normalize(m, dim=1) for m in (rows, others))
        best = (rows @ others.T).max(dim=1).values
        if best.median() > _SAME_ROW:
            return name
    return None
