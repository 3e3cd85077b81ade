"""Whether a model can be merged with a base model: one rule for each cause.

The rules use headers, configurations and tokenizers; no weight is read. The
consequences of a cause are not reported again: tensors of other shapes in a model of
another size, or other special tokens in another vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from mergekit.architecture import WeightInfo
from mergekit.architecture.conversion import can_convert_checkpoint_keys
from mergekit.options import MergeOptions

from mergekit_map.config.yaml_file import MergeConfig
from mergekit_map.models.facts import Finding, ModelFacts, Tokenizer, some
from mergekit_map.models.files import Settings
from mergekit_map.models.references import walk_entries

# Constants that older versions of transformers saved; no merge needs them.
_CONSTANTS = re.compile(r"(inv_freq|masked_bias|attn\.bias|attention\.bias)$")

# Findings that explain other tensors, and other rows of the embeddings.
_TENSORS = {"bias", "tied-embeddings"}
_ROWS = {"vocabulary", "vocabulary-size", "added-tokens"}

_ADVICE = "merge fine-tunes of one model"


def check_layout(model: ModelFacts) -> Iterator[Finding]:
    """List the tensors that mergekit needs of a model and that it lacks."""
    if "weights" in model.unread or model.weights is None:
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


def check_left_out(model: ModelFacts, base: ModelFacts | None) -> Iterator[Finding]:
    """List tensors of a model that mergekit does not know, other than of its base."""
    weights = (model.weights or {}).values()
    if any(w.name not in model.headers for w in weights if not w.optional):
        return  # its names are converted
    known = {name for w in weights for name in (w.name, *(w.aliases or ()))}
    known |= _tensors(base) if known and base is not None else set()
    if known and (names := sorted(_tensors(model) - known)):
        cause = f"mergekit leaves {len(names)} of its tensors out of the merge "
        advice = "what they do is not in the merge; check that it is not needed"
        yield Finding("tensors-left-out", "warning", f"{cause}({some(names)})", advice)


def check_layers(
    model: ModelFacts, reference: str, merge: MergeConfig
) -> Iterator[Finding]:
    """Yield a finding where a layer range of a model ends behind its layers."""
    ends = [
        entry.get("layer_range", (0, 0))[1]
        for _, entry, _ in walk_entries(merge)
        if entry["model"] == reference
    ]
    end, layers = max(ends, default=0), model.setting("num_hidden_layers")
    if isinstance(layers, int) and end > layers:
        cause = f"a layer_range of it ends at {end}, and it has {layers} layers"
        advice = "write the one behind the last that is wanted"
        yield Finding("layers", "error", cause, advice)


def compare_layouts(
    mine: ModelFacts, base: ModelFacts, explained: Collection[str], *, aligned: bool
) -> Iterator[Finding]:
    """List tensors that only the base model has, or that differ in shape.

    Those that the ``explained`` codes of findings account for are left out.
    """
    if "weights" in mine.unread | base.unread:
        return
    tensors, others = _tensors(mine), _tensors(base)
    fewer = sorted(others - tensors)
    if mine.weights is None and fewer and not _TENSORS & {*explained}:
        cause = f"it lacks {len(fewer)} tensors that {base.name} has ({some(fewer)})"
        yield Finding("tensors-missing", "error", cause, _ADVICE)
    free_rows = mine.vocabulary_tensors if aligned or _ROWS & {*explained} else ()
    yield from _compare_shapes(mine, base, sorted(tensors & others), free_rows)


def main_dtype(model: ModelFacts) -> str | None:
    """Return the type of most bytes of a model."""
    sizes: Counter[str] = Counter()
    for header in model.headers.values():
        sizes[header.dtype] += header.n_bytes
    return sizes.most_common(1)[0][0] if sizes else None


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


def _compare_ties(mine: ModelFacts, base: ModelFacts) -> Iterator[Finding]:
    if mine.ties_embeddings and not base.ties_embeddings:
        cause = (
            f"its head is its embeddings once more (tie_word_embeddings), while "
            f"{base.name} has a head of its own, which it cannot be a change of"
        )
        yield Finding("tied-embeddings", "error", cause, _ADVICE)
    elif base.ties_embeddings and not mine.ties_embeddings:
        cause = (
            f"it has a head of its own, while {base.name} uses its embeddings once "
            "more (tie_word_embeddings), and the merge says that it does, too"
        )
        advice = "programs that believe that will lose the merged head"
        yield Finding("tied-embeddings", "warning", cause, advice)


def _compare_vocabularies(
    mine: ModelFacts, base: ModelFacts, merge: MergeConfig, options: MergeOptions
) -> list[Finding]:
    if "tokenizer" in mine.unread | base.unread:
        return []
    rows = (mine.setting("vocab_size"), base.setting("vocab_size"))
    if options.unsafe_truncate_embeddings:
        rows = (rows[1], rows[1])  # mergekit cuts off what only one of them has
    found = compare_tokenizers(
        mine.tokenizer, base.tokenizer, base.name, rows, aligned=_is_aligned(merge)
    )
    if not any(finding.code == "vocabulary" for finding in found):
        found += _compare_special_tokens(mine, base)
    hidden = "chat-template" if merge.get("chat_template") else ""
    return [finding for finding in found if finding.code != hidden]


def _compare_special_tokens(mine: ModelFacts, base: ModelFacts) -> Iterator[Finding]:
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
    texts = [f"{key} is {pairs[key][0]!r} here and {pairs[key][1]!r}" for key in keys]
    grave = any(not key.startswith(_HARMLESS_TOKENS) for key in keys)
    cause = f"its special tokens are others: {', '.join(texts)} in {base.name}"
    advice = f"the merge has those of {base.name}; see that it begins and ends texts"
    if keys:
        yield Finding("special-tokens", "warning" if grave else "note", cause, advice)


# What differences mean, by the names of entries, or of the parts that they are in. The
# first name that fits counts.
_RULES: dict[str, Finding | None] = {
    r"hidden_size|head_dim|(moe_|shared_expert_)?intermediate_size|ffn_dim"
    r"|num_\w*(heads|layers|experts)|num_heads|n_(embd|layer|head|inner)"
    r"|n_(routed|shared)_experts|d_(model|ff)|(q|kv)_lora_rank"
    r"|(v|qk_rope|qk_nope)_head_dim": Finding(
        "size",
        "error",
        "it is a model of another size",
        "merge fine-tunes of one model",
    ),
    r"rope_theta|rope_local_base_freq|rotary_emb_base": Finding(
        "rope-theta",
        "error",
        "its positions are encoded otherwise",
        "attention of the one means nothing to the other, so choose models of one "
        "family",
    ),
    r"hidden_act|hidden_activation|activation_function": Finding(
        "activation",
        "error",
        "its activation function is another one",
        "its weights mean nothing behind that of the base model; leave it out",
    ),
    r"(attention_|mlp_|qkv_)?bias|use_(qkv_)?bias": Finding(
        "bias",
        "error",
        "its layers do not have the same biases",
        "the merge has those of the base model alone; merge models that agree",
    ),
    r"rope_(parameters|scaling)|partial_rotary_factor|rotary_(dim|pct)": Finding(
        "rope-scaling",
        "error",
        "its positions are scaled otherwise",
        "the merge reads all positions as the base model does; choose models that "
        "agree",
    ),
    # On these the weights do not depend, or something else than a rule is about them.
    r"_name_or_path|transformers_version|(torch_)?dtype|architectures|model_type"
    r"|(use_cache|use_return_dict|return_dict|torchscript|max_length)"
    r"|initializer_(range|factor)|problem_type|pretraining_tp|finetuning_task"
    r"|output_(attentions|hidden_states|router_logits)|chunk_size_feed_forward"
    r"|(bos|eos|pad|unk|sep|decoder_start)_token_id|vocab_size|tie_word_embeddings"
    r"|quantization_config|auto_map|router_(aux_loss_coef|jitter_noise)"
    r"|gradient_checkpointing|max_window_layers|is_encoder_decoder|original_max_position_embeddings"
    r"|id2label|label2id|task_specific_params|\w*(dropout|drop|pdrop|unsloth)\w*": None,
}
_OTHER = Finding(
    "configuration-differs",
    "warning",
    "its configuration differs in what may matter",
    "the merge has that of the base model; check that both are of one family",
)
_LAYERS = r"num_(hidden_)?layers|n_layer|layer_types"


def compare_settings(
    mine: Settings, base: Settings, name: str, *, layered: bool
) -> list[Finding]:
    """Return one finding for all differences to the base with the same cause.

    The settings are without nesting; ``layered`` means that the user selects layers.
    """
    differences: dict[Finding, list[str]] = {}
    for key in sorted(mine.keys() & base.keys()):
        last, rule = key.split(".")[-1], _rule(key)
        if mine[key] == base[key] or rule is None:
            continue
        if not (layered and re.fullmatch(_LAYERS, last)):
            text = f"{last} is {_written(mine[key])} here and {_written(base[key])}"
            differences.setdefault(rule, []).append(text)
    return [
        replace(
            rule, cause=f"{rule.cause}: {', '.join(dict.fromkeys(texts))} in {name}"
        )
        for rule, texts in differences.items()
    ]


def _rule(key: str) -> Finding | None:
    for names, rule in _RULES.items():
        if any(re.fullmatch(names, part) for part in key.split(".")):
            return rule
    return _OTHER


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


_ALIGN = "align them with 'tokenizer: {source: union}' or '{source: base}'"
# Findings that explain another number of rows.
_TOKENS = {"vocabulary", "special-tokens-renamed", "added-tokens"}


def compare_tokenizers(
    mine: Tokenizer | None,
    base: Tokenizer | None,
    name: str,
    rows: tuple[Any, Any],
    *,
    aligned: bool,
) -> list[Finding]:
    """List the differences of a model's tokenizer to that of the base model.

    ``rows`` are those of the embeddings of each, which mergekit can align.
    """
    found: list[Finding] = []
    if mine is not None and base is not None:
        if not aligned:
            found += _compare_tokens(mine.ids, base.ids, base.added, name, rows)
    elif base is not None:
        cause = f"it holds no tokenizer, so its token ids are taken for those of {name}"
        advice = (
            "copy the tokenizer of the model that it was tuned from into its folder"
        )
        found.append(Finding("tokenizer-missing", "warning", cause, advice))
    codes = {finding.code for finding in found}
    if rows[0] != rows[1] and not aligned and not codes & _TOKENS:
        cause = f"its embeddings have {rows[0]} rows (vocab_size), those of {name} "
        found.append(Finding("vocabulary-size", "error", f"{cause}{rows[1]}", _ALIGN))
    if mine is None or base is None or "vocabulary" in codes:
        return found
    if mine.chat_template != base.chat_template:
        cause = f"its chat template is not that of {name}, which the merge gets"
        advice = "choose another with 'chat_template:'"
        found.append(Finding("chat-template", "note", cause, advice))
    return found


def same_rows(mine: Tokenizer | None, base: Tokenizer | None) -> bool:
    """Whether rows of the embeddings are the same tokens, as far as is known."""
    if mine is None or base is None:
        return True
    common = mine.ids.keys() & base.ids.keys()
    return all(mine.ids[token] == base.ids[token] for token in common)


def _compare_tokens(
    mine: Mapping[str, int],
    base: Mapping[str, int],
    added: Collection[str],
    name: str,
    rows: tuple[Any, Any],
) -> Iterator[Finding]:
    """Compare the ids of tokens; ``added`` are those beside the base's vocabulary."""
    here, there = ({i: t for t, i in ids.items()} for ids in (mine, base))
    other = sorted(i for i in there.keys() & here.keys() if here[i] != there[i])
    grave = [i for i in other if there[i] not in added or here[i] in base]
    if grave:
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
    elif mine.keys() != base.keys():
        words = []
        for one, two, than in ((mine, base, "more"), (base, mine, "fewer")):
            if tokens := sorted(one.keys() - two.keys(), key=one.__getitem__):
                words.append(
                    f"{len(tokens)} tokens {than} than {name} ({some(tokens)})"
                )
        what = f"its tokenizer has {' and '.join(words)}"
        if rows[0] != rows[1]:
            what += f", and its embeddings {rows[0]} rows, not {rows[1]}"
            yield Finding("added-tokens", "error", what, _ALIGN)
        else:
            what += ", whose rows of the embeddings one of the two has not trained"
            yield Finding("added-tokens", "warning", what, _ALIGN)
