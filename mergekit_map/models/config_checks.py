"""Checks of config.json: impossible values, and differences between models.

Impossible values are refused before transformers builds the model: a config.json may
ask for a billion layers. The module also checks tensors against config.json.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PretrainedConfig,
)

from mergekit_map.models.diagnostic import Finding, some
from mergekit_map.models.safetensors_headers import TensorHeader

Settings: TypeAlias = Mapping[str, Any]  # what a JSON file of a model holds


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
    r"rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_eps": Finding(
        "norm-epsilon",
        "warning",
        "its norms add another epsilon",
        "the merge adds that of the base model; check that both are of one family",
    ),
    r"(use_)?sliding_window|max_window_layers|layer_types": Finding(
        "sliding-window",
        "warning",
        "its attention reaches back another distance",
        "the merge has the window of the base model; measure texts as long as yours",
    ),
    r"max_position_embeddings|n_positions|seq_length": Finding(
        "context-length",
        "warning",
        "it was made for texts of another length",
        "the merge says what the base model says; measure texts as long as yours",
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
    r"|gradient_checkpointing|is_encoder_decoder|original_max_position_embeddings"
    r"|id2label|label2id|task_specific_params|\w*(dropout|drop|pdrop|unsloth)\w*"
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
    every = [*mine.items(), *base.items()]
    windows = [value for key, value in every if key.endswith("sliding_window")]
    # How far each layer looks back follows from how many there are, and is without
    # meaning where none looks back less than to the beginning.
    looks_back = any(window not in (None, False) for window in windows)
    one_size = not any(rule.code == "size" for rule in differences)
    findings = []
    for rule, texts in differences.items():
        if rule.code != "sliding-window" or (looks_back and one_size):
            cause = f"{rule.cause}: {', '.join(dict.fromkeys(texts))} in {name}"
            findings.append(replace(rule, cause=cause))
    return findings


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


# What there must be one of, by the names of the entries that mean the same thing.
_NEEDED = re.compile(
    r"hidden_size|num_(hidden_|attention_)?(layers|heads)|vocab_size|head_dim"
    r"|num_key_value_heads|intermediate_size|n_(embd|layer|head)|d_model|ffn_dim"
)
_LAYER_COUNTS = re.compile(r"num_\w*(layers|blocks|experts)|n_layers?|n_\w*experts")
_LARGEST = 2**31 - 1  # of what is counted
_MOST_LAYERS = 10_000  # where tensors are not known

_ADVICE = "put it right, or download the model again"

# Tensors of numbers that are counted, not learned.
_COUNTS = re.compile(r"(position_ids|num_batches_tracked|relative_position_index)$")


def impossible(config: Settings, n_tensors: int | None, where: str = "") -> str:
    """Return why no model can have this config.json; empty if one can.

    Layers and experts are at most as many as there are tensors, as far as is known.
    """
    most = max(n_tensors or 0, _MOST_LAYERS)
    for key, value in config.items():
        if isinstance(value, dict) and (found := impossible(value, n_tensors, key)):
            return found
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        name = f"{where}.{key}" if where else key
        if isinstance(value, int) and abs(value) > 2**63 - 1:
            return f"{name} has {len(str(abs(value)))} digits"
        if _NEEDED.fullmatch(key) and not value >= 1:
            return f"{name} must be at least 1, got {value}"
        if _LAYER_COUNTS.fullmatch(key) and not value <= most:
            return f"{name} is {value:.6g}, and there are no more than {most} tensors"
        if _NEEDED.fullmatch(key) and value > _LARGEST:
            return f"{name} must be at most {_LARGEST}, got {value:.6g}"
    return ""


def check_numbers(
    headers: Mapping[str, TensorHeader], weights: Collection[str] | None
) -> Iterator[Finding]:
    """List weights that are not floating-point numbers.

    ``weights`` are the tensors that are merged, where that is known.
    """
    codes = [
        name
        for name, header in headers.items()
        if not header.is_float and _is_weight(name, weights)
    ]
    if codes:
        kinds = ", ".join(sorted({headers[name].dtype for name in codes}))
        what = "complex numbers" if kinds == "C64" else "integers"
        cause = f"{len(codes)} of its weights are {what} ({kinds}: {some(codes)}): "
        cause += "codes, not numbers that can be added up"
        advice = "take the model that it was quantized from"
        yield Finding("integers", "error", cause, advice)


def check_shapes(
    config: PretrainedConfig, headers: Mapping[str, TensorHeader], path: str
) -> Iterator[Finding]:
    """Compare the tensors of a language model with the shapes of its config.json."""
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    try:
        build: Any = AutoModelForCausalLM.from_config
        with torch.device("meta"):
            model = build(config)
    except Exception as error:  # noqa: BLE001 - whatever its code stumbles over
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        cause = f"transformers cannot build what {path} describes: {reason}"
        yield Finding("configuration", "error", cause, _ADVICE)
        return
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    other = [
        f"{name} has shape {list(headers[name].shape)} here and {list(shape)} there"
        for name, shape in wanted.items()
        # Some kinds are stored turned round.
        if name in headers and sorted(headers[name].shape) != sorted(shape)
    ]
    if other:
        cause = f"{len(other)} of its tensors are not what {path} describes: {other[0]}"
        yield Finding("configuration", "error", cause, _ADVICE)


def _is_weight(name: str, weights: Collection[str] | None) -> bool:
    if weights is not None:
        return name in weights
    return name.endswith(".weight") or not _COUNTS.search(name)
