"""How many parameters the base models of the recipes have, counted without weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers


def _llama(**config: object) -> transformers.PreTrainedModel:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))


def _llama_3_8b() -> transformers.PreTrainedModel:
    return _llama(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    )


def _llama_2_13b() -> transformers.PreTrainedModel:
    return _llama(
        vocab_size=32000,
        hidden_size=5120,
        intermediate_size=13824,
        num_hidden_layers=40,
        num_attention_heads=40,
    )


def _llama_3_2_3b() -> transformers.PreTrainedModel:
    return _llama(
        vocab_size=128256,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )


def _gemma_2_2b() -> transformers.PreTrainedModel:
    config = transformers.Gemma2Config(
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
    )
    return transformers.Gemma2ForCausalLM(config)


def _mistral_7b() -> transformers.PreTrainedModel:
    return transformers.MistralForCausalLM(transformers.MistralConfig())


def _clip_vit_b_32() -> transformers.PreTrainedModel:
    return transformers.CLIPVisionModel(transformers.CLIPVisionConfig())


def _resnet_18() -> transformers.PreTrainedModel:
    config = transformers.ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    return transformers.ResNetModel(config)


BASES: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "meta-llama/Meta-Llama-3-8B-Instruct": _llama_3_8b,
    "meta-llama/Llama-2-13b-hf": _llama_2_13b,
    "meta-llama/Llama-3.2-3B": _llama_3_2_3b,
    "google/gemma-2-2b": _gemma_2_2b,
    "mistralai/Mistral-7B-v0.1": _mistral_7b,
    "clip-models/base": _clip_vit_b_32,
    "resnet-models/base": _resnet_18,
}


def count_parameters(base_model: str) -> int:
    with torch.device("meta"):
        model = BASES[base_model]()
    return sum(parameter.numel() for parameter in model.parameters())
