"""Whether the models of a merge can be merged: problems found before a search.

One set of rules serves the search, which refuses errors, and ``inspect``, which also
shows warnings and figures. There is a rule for each cause, on headers, configurations
and tokenizers; no weight is read for it. The consequences of a cause are not reported
again: tensors of other shapes in a model of another size, or other special tokens in
another vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mergekit.architecture import WeightInfo, arch_info_for_config
from mergekit.architecture.conversion import can_convert_checkpoint_keys
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
from mergekit_map.models.facts import (
    Finding,
    ModelFacts,
    Tokenizer,
    compare_settings,
    has_errors,
    read_facts,
    some,
)
from mergekit_map.models.files import find_model
from mergekit_map.models.references import (
    Reference,
    referenced_models,
    references_in,
    short_paths,
    walk_entries,
)
from mergekit_map.models.task_vectors import Figures, measure_vectors, weight_findings

# Findings about models whose tensors cannot be compared with those of the base model.
_OTHER_WEIGHTS = {
    *("architecture", "size", "tied-embeddings", "tensor-shapes", "tensors-missing"),
    *("adapter-kind", "adapter-modules"),
}
_AGAIN = (
    "download the model again; if it is complete, mergekit cannot merge models of this "
    "architecture as they are saved now"
)
_HEAD, _TIED = "lm_head.weight", "tie_word_embeddings"
# Constants that older versions of transformers saved; no merge needs them.
_CONSTANTS = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias)$")
_UNRELATED = "these are not fine-tunes of one model"
_ALIGN = "align them with 'tokenizer: {source: union}' or '{source: base}'"


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
        found = ((m, f) for m in self.models for f in m.findings)
        return [Problem(m.key, str(f)) for m, f in found if f.severity == "error"]

    @property
    def warnings(self) -> list[str]:
        """List the warnings, which a search goes on in spite of."""
        found = ((m, f) for m in self.models for f in m.findings)
        return [f"warning: {m.name}: {f}" for m, f in found if f.severity == "warning"]


def check_tokenizer_sources(merge: MergeConfig) -> Iterator[Problem]:
    """Yield the models that only the tokenizer names and that cannot be found."""
    key = "tokenizer" if "tokenizer" in merge else "tokenizer_source"
    known = referenced_models(merge)
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
        _look_at(model, options, download=download)
    base = models[0]
    for model in models:
        if model.facts is None:
            continue
        if not _selects_layers(merge):
            model.findings += _check_tensors(model.facts)
        model.findings += _check_layers(model.facts, model.reference, merge)
        if model is base:
            model.findings += _check_left_out(model.facts)
            model.findings += _check_tokenizer(model.facts)
        elif base.facts is not None:
            model.findings += _compare_models(model.facts, base.facts, merge, options)
    return Family(models, _measure(models, merge))


def _look_at(model: InspectedModel, options: MergeOptions, *, download: bool) -> None:
    reference = Reference.parse(model.reference)
    front = str(reference.model)
    try:
        files = find_model(front, weights=download)
        if files.is_adapter:  # or it looks so without its weights
            files = find_model(front)
        if files.is_adapter:
            trained_on = files.trained_on or "a model that it does not name"
            cause = f"{front} is a LoRA adapter of {trained_on}"
            advice = f"write that model, where it is here, in front: MODEL+{front}"
            model.findings.append(Finding("adapter-alone", "error", cause, advice))
        elif reference.adapter and (files.folder / "adapter_config.json").exists():
            cause = f"{front} holds an adapter, too, which transformers would load"
            advice = "remove its adapter_config.json"
            model.findings.append(Finding("adapter-beside", "error", cause, advice))
        else:
            model.facts, found = read_facts(files, model.name, options)
            model.findings += found
    except MergeError as error:
        model.findings.append(Finding("model", "error", str(error)))
    if reference.adapter is not None:
        model.findings += _look_at_adapter(model, front, str(reference.adapter))


def _look_at_adapter(model: InspectedModel, front: str, lora: str) -> Iterator[Finding]:
    try:
        model.adapter = read_adapter(find_model(lora))
    except MergeError as error:
        yield Finding("adapter", "error", str(error))
        return
    if model.facts is not None and "weights" not in model.facts.unread:
        headers = dict(model.facts.headers)
        names: dict[str, str] = {}  # GPT-2 of the Hub has no prefix, its adapters have
        for weight in _weights(model.facts):
            known = (weight.name, *(weight.aliases or ()))
            names |= {n: there for there in known if there in headers for n in known}
        model.adapter = model.adapter.renamed(names)
        whole = model.adapter.whole
        embedded = any(name.endswith("lora_embedding_A") for name in whole)
        if model.facts.setting(_TIED) and (embedded or _HEAD in model.adapter.matrices):
            text = f"its adapter changes the head or the embeddings, which {front} ties"
            advice = "merged, it would change both: train an adapter without them"
            yield Finding("adapter-tied", "error", text, advice)
        for embeddings in model.facts.vocabulary_tensors:  # a head, too, if tied
            headers.setdefault(_HEAD, headers[embeddings])
        yield from check_adapter(model.adapter, front, headers)


def _measure(models: Sequence[InspectedModel], merge: MergeConfig) -> Figures | None:
    base, facts = models[0], models[0].facts
    compared = {
        model.reference: weights
        for model in models
        if not _OTHER_WEIGHTS & {finding.code for finding in model.findings}
        and (weights := model.weights) is not None
    }
    depths = {m.facts.setting("num_hidden_layers") for m in models if m.facts}
    if _selects_layers(merge) and len(depths) > 1:
        return None  # tensors of one name are of other layers
    if facts is None or base.reference not in compared or len(compared) < 2:
        return None
    known = [m.facts for m in models if m.facts and m.reference in compared]
    same_rows = all(_same_rows(of.tokenizer, facts.tokenizer) for of in known)
    left_out = frozenset[str]() if same_rows else facts.vocabulary_tensors
    figures = measure_vectors(compared.pop(base.reference), compared, left_out)
    names = {model.reference: model.name for model in models}
    found = weight_findings(base.reference, figures, names)
    if merge.get("base_model") is None:  # there are no task vectors to judge
        found = {m: [f for f in of if f.severity == "error"] for m, of in found.items()}
        figures = replace(figures, pairs={})
    for model in models:
        model.findings += found.get(model.reference, ())
    return figures


def _names(references: Collection[str]) -> dict[str, str]:
    """Name models and adapters by as few of their last folders as distinguish them."""
    parts = {reference: Reference.parse(reference).parts for reference in references}
    short = short_paths({part.path for own in parts.values() for part in own})
    return {
        reference: "+".join(str(replace(p, path=short[p.path])) for p in own)
        for reference, own in parts.items()
    }


def _check_tokenizer(base: ModelFacts) -> Iterator[Finding]:
    has_words = base.setting("vocab_size") is not None  # unlike models of images
    if has_words and base.tokenizer is None and "tokenizer" not in base.unread:
        cause = "it holds no tokenizer, and the merge gets that of this model"
        advice = "copy the files of its tokenizer into its folder"
        yield Finding("tokenizer-missing", "error", cause, advice)


def _check_tensors(model: ModelFacts) -> Iterator[Finding]:
    missing = [
        weight.name
        for weight in (() if "weights" in model.unread else _weights(model))
        # For a head that is not there it takes the embeddings, as if they were tied.
        if (not weight.optional or weight.tied_names) and not _is_there(weight, model)
    ]
    if missing:
        cause = f"it lacks {len(missing)} of the tensors that mergekit asks for"
        cause += f" ({some(missing)})"
        yield Finding("tensors-missing", "error", cause, _AGAIN)


def _check_left_out(model: ModelFacts) -> Iterator[Finding]:
    known = {name for w in _weights(model) for name in (w.name, *(w.aliases or ()))}
    others = sorted(model.headers.keys() - known - {_HEAD})
    others = [name for name in others if not _CONSTANTS.search(name)]
    # If any that it knows are not there, it may convert names.
    if known and others and known - {_HEAD} <= model.headers.keys():
        cause = f"mergekit leaves out {len(others)} of its tensors ({some(others)})"
        advice = "the search ends when the merge is loaded if transformers needs them"
        yield Finding("tensors-left-out", "warning", cause, advice)


def _weights(model: ModelFacts) -> list[WeightInfo]:
    """Return the tensors that mergekit knows of a model; none where it infers them."""
    architecture = arch_info_for_config(model.config)
    return architecture.all_weights(model.config) if architecture else []


def _is_there(weight: WeightInfo, model: ModelFacts) -> bool:
    tied = weight.tied_names if model.setting(_TIED) else None
    names = [weight.name, *(weight.aliases or ()), *(tied or ())]
    if any(name in model.headers for name in names):
        return True
    # Names of other layers do not matter, and to convert those of all takes minutes.
    layer = re.search(r"\.\d+\.", weight.name)
    beside = {name for name in model.headers if layer is None or layer[0] in name}
    kind = model.config.model_type
    return bool(can_convert_checkpoint_keys(kind, beside, weight.name))


def _check_layers(
    model: ModelFacts, reference: str, merge: MergeConfig
) -> Iterator[Finding]:
    entries = [e for _, e, _ in walk_entries(merge) if e["model"] == reference]
    end = max((int(e.get("layer_range", (0, 0))[1]) for e in entries), default=0)
    layers = model.setting("num_hidden_layers")
    if isinstance(layers, int) and end > layers:
        cause = f"its layer_range ends at {end}, but it has {layers} layers"
        advice = "the end is one more than the last wanted layer"
        yield Finding("layers", "error", cause, advice)


def _compare_models(
    mine: ModelFacts, base: ModelFacts, merge: MergeConfig, options: MergeOptions
) -> list[Finding]:
    has_base = merge.get("base_model") is not None  # else no task vectors
    if has_base and mine.setting(_TIED) and not base.setting(_TIED):
        cause = f"its head is its embeddings; {base.name} has a head of its own"
        return [Finding("tied-embeddings", "error", cause, _UNRELATED)]
    layered = _selects_layers(merge)
    one, other = mine.settings, base.settings
    found = [*compare_settings(one, other, base.name, layered=layered)]
    architecture = [f for f in found if f.code == "architecture"]
    if options.allow_crimes:
        found = [
            f if f.code == "size" else replace(f, severity="warning") for f in found
        ]
    elif architecture:
        return architecture  # everything else follows from it
    if base.tokenizer is not None and "tokenizer" not in mine.unread:
        found += compare_tokenizers(mine.tokenizer, base.tokenizer, base.name, merge)
    if not layered and "size" not in {finding.code for finding in found}:
        cuts = options.unsafe_truncate_embeddings
        found += _compare_tensors(mine, base, cuts=cuts, any_rows=_is_aligned(merge))
    return found


def _selects_layers(merge: MergeConfig) -> bool:
    return bool(merge.get("slices") or merge.get("modules"))


def _is_aligned(merge: MergeConfig) -> bool:
    """Whether mergekit aligns the rows of the embeddings."""
    return bool(merge.get("tokenizer") or merge.get("tokenizer_source"))


def _compare_tensors(
    mine: ModelFacts, base: ModelFacts, *, cuts: bool, any_rows: bool
) -> Iterator[Finding]:
    """List the tensors that one of both lacks, or that have other shapes.

    Where each has names that the other lacks, they were saved by other versions of
    transformers, whose names mergekit converts.
    """
    known = {name for w in _weights(base) for name in (w.name, *(w.aliases or ()))}
    texts: list[str] = []
    rows: list[str] = []
    heads = {_HEAD} if mine.setting(_TIED) or base.setting(_TIED) else set[str]()
    one, other = (
        {n for n in model.headers if n not in heads and not _CONSTANTS.search(n)}
        for model in (mine, base)
    )
    weights = {w.name: w.tied_names for w in _weights(base)}
    is_tied = weights.get(_HEAD, bool(weights and mine.setting(_TIED)))
    is_alone = (_HEAD in mine.headers) != (_HEAD in base.headers)
    if one and other and is_alone and not is_tied:
        cause = f"only one of it and {base.name} stores {_HEAD}, which mergekit does "
        cause += "not know to be the embeddings"
        advice = "save both with transformers' save_pretrained, and merge the folders"
        yield Finding("head", "error", cause, advice)
    for name in sorted(one & other):
        ours, theirs = mine.headers[name].shape, base.headers[name].shape
        if ours != theirs:
            is_rows = name in mine.vocabulary_tensors and ours[1:] == theirs[1:]
            # mergekit cuts the rows of all, but not the size in the base's config.json.
            if is_rows and (any_rows or (cuts and ours > theirs)):
                continue
            here, there = f"{[*ours]!s:.60}", f"{[*theirs]!s:.60}"
            text = f"{name} has shape {here} here and {there} in {base.name}"
            (rows if is_rows else texts).append(text)
    odd = sorted((one ^ other) - known)  # of others each model is asked for
    if odd and one and other and (one < other or other < one):
        cause = f"{base.name} lacks {len(odd)} of its tensors ({some(odd)})"
        if one < other:
            cause = f"it lacks {len(odd)} of the tensors of {base.name} ({some(odd)})"
        advice = "mergekit leaves them out; check that they are not needed"
        yield Finding("tensors-left-out", "warning", cause, advice)
    if texts:
        cause = f"{len(texts)} of its tensors have another shape: {texts[0]}"
        yield Finding("tensor-shapes", "error", cause, _UNRELATED)
    if rows:
        cause = f"its vocabulary has another size: {rows[0]}"
        yield Finding("vocabulary-size", "error", cause, _ALIGN)


def compare_tokenizers(
    mine: Tokenizer | None, base: Tokenizer, name: str, merge: MergeConfig
) -> Iterator[Finding]:
    """List the differences to the base model's tokenizer that matter to a merge."""
    if mine is None:
        cause = f"it holds no tokenizer, so its token ids are taken for those of {name}"
        hint = "copy the tokenizer of the model that it was tuned from into its folder"
        yield Finding("tokenizer-missing", "warning", cause, hint)
        return
    ids = [] if _is_aligned(merge) else [*_compare_ids(mine, base, name)]
    yield from ids
    if has_errors(ids):
        return  # the rest follows from it
    others = [key for key in base.special if mine.special[key] != base.special[key]]
    texts = [f"{k} is {mine.special[k]!r} here and {base.special[k]!r}" for k in others]
    if texts:
        cause = f"its special tokens are others: {', '.join(texts)} in {name}"
        advice = "all merges, and parents beside them, have the same ones; see that "
        advice += "they begin and end texts"
        yield Finding("special-tokens", "warning", cause, advice)


def _compare_ids(mine: Tokenizer, base: Tokenizer, name: str) -> Iterator[Finding]:
    here, there = ({i: t for t, i in one.ids.items()} for one in (mine, base))
    other = sorted(i for i in there.keys() & here.keys() if here[i] != there[i])
    # A token beside the vocabulary may have a new name.
    grave = [i for i in other if there[i] not in base.added or here[i] in base.ids]
    if other:
        index = (grave or other)[0]
        cause = (
            f"{len(other)} of the {len(there)} tokens of {name} have other names or "
            f"ids here ({index} is {here[index]!r} here and {there[index]!r} there), "
            "so that rows of the embeddings mean different tokens"
        )
        yield Finding("vocabulary", "error" if grave else "warning", cause, _ALIGN)
        return
    if tokens := sorted(mine.ids.keys() ^ base.ids.keys()):
        cause = (
            f"{len(tokens)} tokens are only in its tokenizer or only in that of {name} "
            f"({some(tokens)}); one of the two has not trained their rows of the "
            "embeddings"
        )
        yield Finding("added-tokens", "warning", cause, _ALIGN)


def _same_rows(mine: Tokenizer | None, base: Tokenizer | None) -> bool:
    if mine is None or base is None:
        return True
    return all(base.ids.get(token, i) == i for token, i in mine.ids.items())
