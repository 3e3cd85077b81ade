"""A tokenizer of bytes and a few words, and the sizes of models that use it."""

from __future__ import annotations

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WORDS = ["hello", "world", "def", "return", "plus", "one", "two", "three"]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES["num_attention_heads"] = 4
IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def make_tokenizer(extra: list[str]) -> transformers.PreTrainedTokenizerFast:
    """Bytes, and some words as tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {t: i for i, t in enumerate(["<s>", "</s>", "<pad>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([*WORDS, *extra])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
