"""Problems that make a merge impossible or meaningless, found before a search.

One set of rules serves the search, which refuses errors, and ``check``, which also
shows warnings and figures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mergekit.options import MergeOptions

from mergekit_map.config.problems import Problem
from mergekit_map.config.yaml_file import KeyPath, MergeConfig
from mergekit_map.errors import MergeError
from mergekit_map.models.adapters import (
    Adapter,
    ModelWeights,
    check_adapter,
    read_adapter,
)
from mergekit_map.models.compatibility import (
    check_layers,
    check_layout,
    check_left_out,
    compare_models,
    same_rows,
)
from mergekit_map.models.facts import Finding, ModelFacts, has_errors, read_facts
from mergekit_map.models.files import find_model
from mergekit_map.models.references import (
    NO_MODELS,
    Reference,
    referenced_models,
    references_in,
    short_paths,
)
from mergekit_map.models.task_vectors import Figures, measure_vectors, weight_findings

# Findings about models whose tensors are others than those of the base model, and
# about adapters that cannot be merged.
_OTHER_TENSORS = {"architecture", "size"}
_OTHER_MATRICES = {"adapter-kind", "adapter-modules"}


@dataclass(eq=False)
class InspectedModel:
    """A model of a merge, and the findings about it."""

    reference: str
    name: str  # short, for messages and tables
    key: KeyPath  # where it stands
    facts: ModelFacts | None = None  # of the model in front; None if unknown
    adapter: Adapter | None = None
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_here(self) -> bool:
        """Whether the weights of the model in front are on this machine."""
        return self.facts is not None and not self.facts.files.on_the_hub

    @property
    def weights(self) -> ModelWeights | None:
        """Return the weights, if all of them can be read on this machine."""
        if not self.is_here or self.facts is None or "weights" in self.facts.unread:
            return None
        adapted = Reference.parse(self.reference).adapter is not None
        if adapted and (self.adapter is None or self.adapter.obscure):
            return None
        return ModelWeights(self.facts.headers, self.adapter)


@dataclass(frozen=True, eq=False)
class Family:
    """The models of a merge, and all findings about them without loading one."""

    models: Sequence[InspectedModel]  # the one that others are compared with first
    figures: Figures | None  # None where no two models could be read

    @property
    def is_here(self) -> bool:
        """Whether all weights are on this machine."""
        return all(model.is_here for model in self.models)

    @property
    def problems(self) -> list[Problem]:
        """List the errors, where the models stand in the configuration."""
        return [
            Problem(model.key, str(finding))
            for model in self.models
            for finding in model.findings
            if finding.severity == "error"
        ]

    @property
    def warnings(self) -> list[str]:
        """List the warnings, which a search goes on in spite of."""
        return [
            f"warning: {model.name}: {finding}"
            for model in self.models
            for finding in model.findings
            if finding.severity == "warning"
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


def inspect_models(
    merge: MergeConfig, options: MergeOptions, *, download: bool
) -> Family:
    """Inspect every model of a configuration that ``check_merge`` accepts.

    Models are compared with the base model, or with the first one where there is none.
    Without ``download``, only configurations and headers of Hub models are used.
    """
    places = referenced_models(merge)
    names = _names(places)
    models = [InspectedModel(r, names[r], key) for r, key in places.items()]
    for model in models:
        _look_at(model, merge.get("base_model"), options, download=download)
    base, *others = models
    if base.facts is not None:
        base.findings += _check_base(base.facts)
    for model in others:
        if model.facts is None:
            continue
        if base.facts is not None:
            model.findings += compare_models(model.facts, base.facts, merge, options)
        if not _OTHER_TENSORS & {finding.code for finding in model.findings}:
            model.findings += check_layout(model.facts)
    for model in models:
        if model.facts is not None:
            if not has_errors(model.findings):
                known = base.facts if model is not base else None
                model.findings += check_left_out(model.facts, known)
            model.findings += check_layers(model.facts, model.reference, merge)
    figures = _measure(models, has_base=merge.get("base_model") is not None)
    return Family(models, figures)


def _look_at(
    model: InspectedModel, base: str | None, options: MergeOptions, *, download: bool
) -> None:
    reference = Reference.parse(model.reference)
    front = str(reference.model)
    try:
        files = find_model(front, weights=download)
        if files.is_adapter:
            cause, trained_on = f"{front} is a LoRA adapter", files.trained_on
            advice = f"write {trained_on or 'BASE'}+{front}"
            if trained_on and base not in {None, front}:
                cause = f"{cause} of {trained_on}, not of {base}"
                same = f"if these are the same model, write {base}+{front}"
                advice = f"{same}; or else {trained_on}+{front}"
            model.findings.append(Finding("adapter-alone", "error", cause, advice))
        else:
            model.facts, found = read_facts(files, model.name, options)
            model.findings += found
    except MergeError as error:
        model.findings.append(Finding("model", "error", str(error)))
    if reference.adapter is not None:
        model.findings += _look_at_adapter(model, front, str(reference.adapter))


def _look_at_adapter(model: InspectedModel, front: str, lora: str) -> Iterator[Finding]:
    try:
        files = find_model(lora)
        if files.is_adapter:
            model.adapter = read_adapter(files)
    except MergeError as error:
        yield Finding("adapter", "error", str(error))
        return
    if model.adapter is None:
        cause = f"{lora} behind the '+' is a whole model, not an adapter"
        advice = "write a LoRA adapter there, or list the model as one of its own"
        yield Finding("adapter-whole", "error", cause, advice)
    elif model.facts is not None and "weights" not in model.facts.unread:
        yield from check_adapter(model.adapter, front, model.facts.headers)


def _check_base(facts: ModelFacts) -> Iterator[Finding]:
    yield from check_layout(facts)
    has_words = facts.setting("vocab_size") is not None  # unlike models of images
    if has_words and facts.tokenizer is None and "tokenizer" not in facts.unread:
        cause = "it holds no tokenizer, and the merge gets that of this model"
        advice = "copy the files of its tokenizer into its folder"
        yield Finding("tokenizer-missing", "error", cause, advice)


def _measure(models: Sequence[InspectedModel], *, has_base: bool) -> Figures | None:
    """Measure the task vectors, and add the findings that follow from them."""
    base, facts = models[0], models[0].facts
    known = {
        model.reference: model.weights
        for model in models
        if not (_OTHER_TENSORS | _OTHER_MATRICES) & {f.code for f in model.findings}
    }
    readable = {reference: w for reference, w in known.items() if w is not None}
    if facts is None or base.reference not in readable or len(readable) < 2:
        return None
    other_rows = {
        m.reference: facts.vocabulary_tensors
        for m in models[1:]
        if m.facts is not None and not same_rows(m.facts.tokenizer, facts.tokenizer)
    }
    first = readable.pop(base.reference)
    figures = measure_vectors(first, readable, other_rows)
    names = {model.reference: model.name for model in models}
    judged = weight_findings(base.reference, figures, names, has_base=has_base)
    for model in models:
        model.findings += judged.get(model.reference, ())
    if has_base:
        return figures
    models_alone = {
        model: replace(figure, norm_ratio=None)
        for model, figure in figures.models.items()
    }
    return replace(figures, models=models_alone, pairs={})  # there are no task vectors


def _names(references: Collection[str]) -> dict[str, str]:
    """Name models and adapters by as few of their last folders as distinguish them."""
    parts = {reference: Reference.parse(reference).parts for reference in references}
    short = short_paths({part.path for own in parts.values() for part in own})
    return {
        reference: "+".join(str(replace(p, path=short[p.path])) for p in own)
        for reference, own in parts.items()
    }
