"""Findings about a model before it is merged, above all by entries of config.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from mergekit_map.utils.text import listed

# An error makes the merge impossible or meaningless. A warning may make it worse than
# expected. A note is good to know.
Severity: TypeAlias = Literal["error", "warning", "note"]
Settings: TypeAlias = Mapping[str, Any]  # what a JSON file of a model holds


@dataclass(frozen=True)
class Finding:
    """One problem, and what to do about it."""

    code: str  # names the cause for programs: rope-theta
    severity: Severity
    cause: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.cause}; {self.advice}" if self.advice else self.cause


# What differences mean, by the names of the entries that mean the same thing.
_RULES = {
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
}
# Entries without a rule: those in a part of one of these names, and all others.
_SCALING = r"rope_parameters|rope_scaling|partial_rotary_factor|rotary_dim|rotary_pct"
_SCALED = Finding(
    "rope-scaling",
    "error",
    "its positions are scaled otherwise",
    "the merge reads all positions as the base model does; choose models that agree",
)
_OTHER = Finding(
    "configuration-differs",
    "warning",
    "its configuration differs in what may matter",
    "the merge has that of the base model; check that both are of one family",
)
# On these the weights do not depend, or something else than a rule is about them.
_IGNORED = (
    r"_name_or_path|transformers_version|(torch_)?dtype|architectures|model_type"
    r"|(use_cache|use_return_dict|return_dict|torchscript|max_length)"
    r"|initializer_(range|factor)|problem_type|pretraining_tp|finetuning_task"
    r"|output_(attentions|hidden_states|router_logits)|chunk_size_feed_forward"
    r"|(bos|eos|pad|unk|sep|decoder_start)_token_id|vocab_size|tie_word_embeddings"
    r"|quantization_config|auto_map|router_(aux_loss_coef|jitter_noise)"
    r"|gradient_checkpointing|max_window_layers|is_encoder_decoder|original_max_position_embeddings"
    r"|id2label|label2id|task_specific_params|\w*(dropout|drop|pdrop|unsloth)\w*"
)
_LAYERS = r"num_(hidden_)?layers|n_layer|layer_types"


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of the findings is an error."""
    return any(finding.severity == "error" for finding in findings)


def some(names: Sequence[str], shown: int = 3) -> str:
    """List the first of many names: ``'a', 'b' and 5 more``."""
    more = [f"{len(names) - shown} more"] if len(names) > shown else []
    return listed([*(f"{name!r:.200}" for name in names[:shown]), *more])


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
    parts = key.split(".")
    for names, rule in _RULES.items():
        if re.fullmatch(names, parts[-1]):
            return rule
    if any(re.fullmatch(_SCALING, part) for part in parts):
        return _SCALED
    if any(re.fullmatch(_IGNORED, part) for part in parts):
        return None
    return _OTHER


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
