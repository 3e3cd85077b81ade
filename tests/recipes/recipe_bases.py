"""How many parameters the base models of the recipes have, counted without weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers

# The classes of transformers, and what differs from the defaults of their settings.
BASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "meta-llama/Meta-Llama-3-8B-Instruct": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
        },
    ),
    "meta-llama/Llama-2-13b-hf": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "hidden_size": 5120,
            "intermediate_size": 13824,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
        },
    ),
    "meta-llama/Llama-3.2-3B": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 28,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
        },
    ),
    "google/gemma-2-2b": ("Gemma2ForCausalLM", "Gemma2Config", {}),
    "mistralai/Mistral-7B-v0.1": ("MistralForCausalLM", "MistralConfig", {}),
    "clip-models/base": ("CLIPVisionModel", "CLIPVisionConfig", {}),
    "resnet-models/base": (
        "ResNetModel",
        "ResNetConfig",
        {
            "hidden_sizes": [64, 128, 256, 512],
            "depths": [2, 2, 2, 2],
            "layer_type": "basic",
        },
    ),
}


def count_parameters(base_model: str) -> int:
    model_class, config_class, settings = BASES[base_model]
    config = getattr(transformers, config_class)(**settings)
    with torch.device("meta"):
        model = getattr(transformers, model_class)(config)
    return sum(parameter.numel() for parameter in model.parameters())
