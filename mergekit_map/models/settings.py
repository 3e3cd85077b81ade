"""Entries of config.json that differ between models, and what each difference means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mergekit_map.models.findings import Finding, Severity

Settings: TypeAlias = Mapping[str, Any]  # what a JSON file of a model holds


@dataclass(frozen=True)
class _Rule:
    """Entries that mean the same thing, and what it is."""

    code: str
    severity: Severity
    names: str  # a regular expression
    meaning: str
    advice: str


_WINDOW = _Rule(
    "sliding-window",
    "warning",
    r"(use_)?sliding_window|max_window_layers|layer_types",
    "its attention reaches back another distance",
    "the merge has the window of the base model; measure texts as long as yours",
)
_RULES = (
    _Rule(
        "size",
        "error",
        r"hidden_size|head_dim|(moe_|shared_expert_)?intermediate_size|ffn_dim"
        r"|num_\w*(heads|layers|experts)|num_heads|n_(embd|layer|head|inner)"
        r"|n_(routed|shared)_experts|d_(model|ff)|(q|kv)_lora_rank"
        r"|(v|qk_rope|qk_nope)_head_dim",
        "it is a model of another size",
        "merge fine-tunes of one model",
    ),
    _Rule(
        "rope-theta",
        "error",
        r"rope_theta|rope_local_base_freq|rotary_emb_base",
        "its positions are encoded otherwise",
        "attention of the one means nothing to the other, so choose models of one "
        "family",
    ),
    _Rule(
        "activation",
        "error",
        r"hidden_act|hidden_activation|activation_function",
        "its activation function is another one",
        "its weights mean nothing behind that of the base model; leave it out",
    ),
    _Rule(
        "bias",
        "error",
        r"(attention_|mlp_|qkv_)?bias|use_(qkv_)?bias",
        "its layers do not have the same biases",
        "the merge has those of the base model alone; merge models that agree",
    ),
    _Rule(
        "norm-epsilon",
        "warning",
        r"rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_eps",
        "its norms add another epsilon",
        "the merge adds that of the base model; check that both are of one family",
    ),
    _WINDOW,
    _Rule(
        "context-length",
        "warning",
        r"max_position_embeddings|n_positions|seq_length",
        "it was made for texts of another length",
        "the merge says what the base model says; measure texts as long as yours",
    ),
)

# Entries without a rule: those in a part of one of these names, and all others.
_SCALING = _Rule(
    "rope-scaling",
    "error",
    r"rope_parameters|rope_scaling|partial_rotary_factor|rotary_dim|rotary_pct",
    "its positions are scaled otherwise",
    "the merge reads all positions as the base model does; choose models that agree",
)
_OTHER = _Rule(
    "configuration-differs",
    "warning",
    "",
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
    r"|gradient_checkpointing|is_encoder_decoder|original_max_position_embeddings"
    r"|id2label|label2id|task_specific_params|\w*(dropout|drop|pdrop|unsloth)\w*"
)

_LAYERS = r"num_(hidden_)?layers|n_layer|layer_types"


def compare_settings(
    mine: Settings, base: Settings, name: str, *, layered: bool
) -> list[Finding]:
    """Say in one finding all differences to the base model that have one cause.

    The settings are without nesting; ``layered`` combines layers as the user says.
    """
    differences: dict[_Rule, list[str]] = {}
    for key in sorted(mine.keys() & base.keys()):
        last, rule = key.split(".")[-1], _rule(key)
        if mine[key] == base[key] or rule is None:
            continue
        if not (layered and re.fullmatch(_LAYERS, last)):
            text = f"{last} is {_written(mine[key])} here and {_written(base[key])}"
            differences.setdefault(rule, []).append(text)
    if any(rule.code == "size" for rule in differences) or not _windows(mine, base):
        # How far each layer looks back follows from how many there are, and is
        # without meaning where none looks back less than to the beginning.
        differences.pop(_WINDOW, None)
    findings = []
    for rule, texts in differences.items():
        cause = f"{rule.meaning}: {', '.join(dict.fromkeys(texts))} in {name}"
        findings.append(Finding(rule.code, rule.severity, cause, rule.advice))
    return findings


def _windows(*models: Settings) -> list[Any]:
    """List the sliding windows of models that have one."""
    windows = [v for m in models for k, v in m.items() if k.endswith("sliding_window")]
    return [window for window in windows if window not in (None, False)]


def _rule(key: str) -> _Rule | None:
    """Find the rule for a key; None where a difference changes nothing."""
    parts = key.split(".")
    for rule in _RULES:
        if re.fullmatch(rule.names, parts[-1]):
            return rule
    if any(re.fullmatch(_SCALING.names, part) for part in parts):
        return _SCALING
    if any(re.fullmatch(_IGNORED, part) for part in parts):
        return None
    return _OTHER


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
