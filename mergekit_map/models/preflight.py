"""Problems that make a merge impossible or meaningless, found before a search.

One set of rules serves the search, which refuses errors, and ``check``, which also
shows warnings and figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mergekit.options import MergeOptions

from mergekit_map.config.problems import Problem
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.models.adapters import (
    AdaptedWeights,
    Adapter,
    check_adapter,
    read_adapter,
)
from mergekit_map.models.compatibility import (
    check_layers,
    check_layout,
    check_left_out,
    compare_models,
)
from mergekit_map.models.config_checks import Finding
from mergekit_map.models.facts import ModelFacts, read_facts
from mergekit_map.models.files import find_model, weights_fingerprint
from mergekit_map.models.references import (
    NO_MODELS,
    Reference,
    referenced_models,
    references_in,
    walk_entries,
)
from mergekit_map.models.task_vectors import (
    Figures,
    StoredWeights,
    Weights,
    measure_vectors,
    weight_findings,
)
from mergekit_map.models.tokenizers import same_rows

# Findings about models whose tensors are others than those of the base model, and
# about adapters that cannot be merged.
_OTHER_TENSORS = {"architecture", "size"}
_OTHER_MATRICES = {"adapter-kind", "adapter-modules", "adapter-shapes"}


@dataclass(frozen=True, eq=False)
class InspectedModel:
    """A model of a merge, and the findings about it."""

    reference: str
    name: str  # short, for messages and tables
    key: KeyPath  # where it stands
    facts: ModelFacts | None  # of the model in front, for an adapter; None if unknown
    adapter: Adapter | None
    findings: tuple[Finding, ...]

    @property
    def weights(self) -> Weights | None:
        """Return the weights, if all of them can be read on this machine."""
        if self.facts is None or "headers" in self.facts.unread:
            return None
        if any(header.file is None for header in self.facts.headers.values()):
            return None
        if Reference.parse(self.reference).adapter is None:
            return StoredWeights(self.facts.headers)
        if self.adapter is None or self.adapter.obscure:
            return None
        return AdaptedWeights(self.facts.headers, self.adapter)


@dataclass(frozen=True, eq=False)
class Family:
    """The models of a merge, and all findings about them without loading one."""

    models: tuple[InspectedModel, ...]  # the one that others are compared with first
    figures: Figures | None  # None where no two models could be read

    @property
    def is_here(self) -> bool:
        """Whether all weights are on this machine."""
        found = [model.facts for model in self.models]
        return all(of is not None and not of.files.on_the_hub for of in found)

    @property
    def problems(self) -> list[Problem]:
        """List the errors, where the models stand in the configuration."""
        return [
            Problem(model.key, str(finding))
            for model in self.models
            for finding in model.findings
            if finding.severity == "error"
        ]


def check_tokenizer_sources(merge: MergeConfig) -> Iterator[Problem]:
    """Yield the models that only the tokenizer names and that cannot be found."""
    key = "tokenizer" if "tokenizer" in merge else "tokenizer_source"
    known = referenced_models(merge).keys() | NO_MODELS
    for reference in dict.fromkeys(references_in(merge)):
        if reference not in known:
            try:
                find_model(reference, weights=False)
            except MergeError as error:
                yield Problem((key,), str(error))


def warn_of_ratios(family: Family) -> list[str]:
    """Return a line about models that are far from the base model, if there are any."""
    figures = family.figures.models if family.figures is not None else {}
    far = [
        f"{model.name} {figures[model.reference].norm_ratio:.2f}"
        for model in family.models
        if any(finding.code == "norm-ratio" for finding in model.findings)
    ]
    if not far:
        return []
    return [
        f"warning: far from the base (norm of the task vector: {', '.join(far)} of the "
        "base's): "
        "predictions may be poor, and merges may keep little of each model; "
        "'mergekit-map inspect' says what to do"
    ]


def inspect_models(
    merge: MergeConfig, options: MergeOptions, *, download: bool
) -> Family:
    """Inspect every model of a configuration that ``check_merge`` accepts.

    Models are compared with the base model, or with the first one where there is none.
    Without ``download``, only configurations and headers of Hub models are used.
    """
    places = referenced_models(merge)
    names = _names(list(places))
    base, *others = (
        _look_at(reference, names[reference], key, options, download=download)
        for reference, key in places.items()
    )
    models = [
        _check_base(base),
        *(_compare(m, base, merge, options) for m in others),
    ]
    models = [_check_layers(model, merge) for model in models]
    has_base = merge.get("base_model") is not None
    figures, judged = _measure(models, has_base=has_base)
    models = [_with(model, judged.get(model.reference, ())) for model in models]
    return Family(tuple(models), figures)


def _look_at(
    reference: str, name: str, key: KeyPath, options: MergeOptions, *, download: bool
) -> InspectedModel:
    parsed, facts = Reference.parse(reference), None
    front = str(parsed.model)
    try:
        files = find_model(front, weights=download)
        if files.is_adapter:
            cause = f"{front} is a LoRA adapter"
            advice = "write the model it was trained on in front: 'model: base+adapter'"
            found = [Finding("adapter-alone", "error", cause, advice)]
        else:
            facts, found = read_facts(files, name, options)
    except MergeError as error:
        found = [Finding("model", "error", str(error))]
    model = InspectedModel(reference, name, key, facts, None, tuple(found))
    if parsed.adapter is None:
        return model
    return _look_at_adapter(model, front, str(parsed.adapter))


def _look_at_adapter(model: InspectedModel, front: str, lora: str) -> InspectedModel:
    try:
        files = find_model(lora)
        if not files.is_adapter:
            cause = f"{lora} behind the '+' is a whole model, not an adapter"
            advice = "write a LoRA adapter there, or list the model as one of its own"
            return _with(model, [Finding("adapter-whole", "error", cause, advice)])
        adapter = read_adapter(files)
    except MergeError as error:
        return _with(model, [Finding("adapter", "error", str(error))])
    model = replace(model, adapter=adapter)
    if model.facts is None or "headers" in model.facts.unread:
        return model
    return _with(model, check_adapter(adapter, front, model.facts.headers))


def _check_base(base: InspectedModel) -> InspectedModel:
    if base.facts is None:
        return base
    facts = base.facts
    found = [*check_layout(facts), *check_left_out(facts)]
    has_words = facts.vocabulary_size is not None  # unlike models of images
    if has_words and facts.tokenizer is None and "tokenizer" not in facts.unread:
        cause = "it holds no tokenizer, and the merge gets that of this model"
        advice = "copy the files of its tokenizer into its folder"
        found.append(Finding("tokenizer-missing", "error", cause, advice))
    return _with(base, found)


def _check_layers(model: InspectedModel, merge: MergeConfig) -> InspectedModel:
    ends = [
        entry["layer_range"][1]
        for _, entry, _ in walk_entries(merge)
        if entry["model"] == model.reference and "layer_range" in entry
    ]
    if model.facts is None or not ends:
        return model
    return _with(model, check_layers(model.facts, max(ends)))


def _compare(
    model: InspectedModel,
    base: InspectedModel,
    merge: MergeConfig,
    options: MergeOptions,
) -> InspectedModel:
    if model.facts is None:
        return model
    found = []
    if base.facts is not None:
        found = compare_models(model.facts, base.facts, merge, options)
    if not _OTHER_TENSORS & {finding.code for finding in found}:
        found += check_layout(model.facts)
    return _with(model, found)


def _measure(
    models: Sequence[InspectedModel], *, has_base: bool
) -> tuple[Figures | None, Mapping[str, list[Finding]]]:
    base, facts = models[0], models[0].facts
    weights = {
        model.reference: model.weights
        for model in models
        if not (_OTHER_TENSORS | _OTHER_MATRICES) & {f.code for f in model.findings}
    }
    known = {key: value for key, value in weights.items() if value is not None}
    if facts is None or base.reference not in known or len(known) < 2:
        return None, {}
    vocabulary = facts.vocabulary_tensors
    figures = measure_vectors(
        known[base.reference],
        {key: value for key, value in known.items() if key != base.reference},
        vocabulary,
        {
            m.reference: vocabulary
            for m in models[1:]
            if m.facts is not None and not same_rows(m.facts.tokenizer, facts.tokenizer)
        },
    )
    names = {model.reference: model.name for model in models}
    judged = weight_findings(
        base.reference, figures, names, _have_same_files, has_base=has_base
    )
    if not has_base:  # nor are there task vectors
        models_alone = {
            model: replace(figure, norm_ratio=None)
            for model, figure in figures.models.items()
        }
        figures = replace(figures, models=models_alone, pairs={})
    return figures, judged


def _have_same_files(*references: str) -> bool:
    one, other = (
        [weights_fingerprint(find_model(str(p))) for p in Reference.parse(r).parts]
        for r in references
    )
    return one == other


def _with(model: InspectedModel, findings: Iterable[Finding]) -> InspectedModel:
    return replace(model, findings=(*model.findings, *findings))


def _names(references: Sequence[str]) -> dict[str, str]:
    """Name folders by their last part, unless two have the same."""
    short = {
        reference: "+".join(
            Path(str(part)).name if part.is_folder else str(part)
            for part in Reference.parse(reference).parts
        )
        for reference in references
    }
    names = list(short.values())
    return {r: name if names.count(name) == 1 else r for r, name in short.items()}
