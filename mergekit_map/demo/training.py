"""A byte-level tokenizer and small Llama models, trained on one CPU thread.

One thread, because two threads on a busy two-core machine run 10 to 100 times slower,
and because the order of a sum then never changes: same seed, same bytes.

The optimizer is Muon: momentum whose update of every matrix is made orthogonal first.
AdamW alone is far behind it after the few hundred steps of a demo. After Keller Jordan
et al., "Muon: an optimizer for hidden layers in neural networks" (2024). PyTorch has
its own from 2.9 on; we support older versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mergekit_map.utils.progress import step

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, from the paper
_ITERATIONS = 5
_MOMENTUM = 0.95


class Muon:
    """Update matrices in place; the caller clears their gradients."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter]) -> None:
        self._momenta = [(matrix, torch.zeros_like(matrix)) for matrix in matrices]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Take one step along the orthogonal factor of the Nesterov momentum."""
        for matrix, momentum in self._momenta:
            assert matrix.grad is not None
            momentum.mul_(_MOMENTUM).add_(matrix.grad)
            update = orthogonalise(matrix.grad + _MOMENTUM * momentum)
            rows, columns = matrix.shape
            matrix.sub_(update, alpha=learning_rate * max(1.0, rows / columns) ** 0.5)


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of a matrix to about 1.

    Newton-Schulz: the values end between about 0.7 and 1.2, and a zero stays zero.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    X: torch.Tensor = matrix.T if tall else matrix
    X = X / X.norm().clamp_min(1e-7)
    first, third, fifth = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = X @ X.T
        X = first * X + (third * gram + fifth * gram @ gram) @ X
    return X.T if tall else X


TokenArray = NDArray[np.int64]  # (tokens,) of one domain, documents joined

_BOS, _EOS, _PAD = "<s>", "</s>", "<pad>"
_WARMUP_SHARE = 0.05


@dataclass(frozen=True)
class ModelSizes:
    """The shape of every model of the family."""

    vocabulary: int = 768
    hidden: int = 64
    intermediate: int = 176
    layers: int = 2
    heads: int = 4
    positions: int = 128  # also the length that is trained, so that all are seen


@dataclass(frozen=True)
class Schedule:
    """The length and the learning rate of one model's training."""

    steps: int
    learning_rate: float  # of embeddings, head and norms, by AdamW
    matrix_learning_rate: float  # of the matrices between them, by Muon
    batch: int = 8  # windows per step


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, and restore the setting afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_tokenizer(
    documents: Iterable[str], sizes: ModelSizes
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE; every digit is a token, so that numbers have a shape."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=sizes.vocabulary,
        special_tokens=[_BOS, _EOS, _PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=_BOS, eos_token=_EOS, pad_token=_PAD
    )


def join_documents(
    tokenizer: PreTrainedTokenizerFast, documents: Iterable[str]
) -> TokenArray:
    """Encode all documents into one array, each between BOS and EOS."""
    encoded = tokenizer([_BOS + text + _EOS for text in documents])["input_ids"]
    return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in encoded])


def new_model(
    seed: int, tokenizer: PreTrainedTokenizerFast, sizes: ModelSizes
) -> LlamaForCausalLM:
    """Draw an untrained model, without touching torch's global generator."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=sizes.positions,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def train_model(
    rng: np.random.Generator,
    model: LlamaForCausalLM,
    streams: Mapping[str, tuple[TokenArray, float]],
    schedule: Schedule,
) -> None:
    """Train ``model`` in place on windows drawn from the streams.

    ``streams`` maps a domain to its tokens and the share of windows drawn from it.
    Weights that require no gradient stay as they are.
    """
    parameters = [weight for weight in model.parameters() if weight.requires_grad]
    layers = {id(weight) for weight in model.model.layers.parameters()}
    others = [w for w in parameters if id(w) not in layers or w.ndim != 2]
    muon = Muon([w for w in parameters if id(w) in layers and w.ndim == 2])
    groups = [{"params": others}]  # none at all in an adapter
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
    length = model.config.max_position_embeddings
    warmup = max(1, round(_WARMUP_SHARE * schedule.steps))
    model.train()
    for done in range(schedule.steps):
        batch = _draw_windows(rng, streams, schedule.batch, length).to(model.device)
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        model.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        decay = 0.5 * (1 + math.cos(math.pi * done / schedule.steps))
        factor = min(1.0, (done + 1) / warmup) * decay
        adam.param_groups[0]["lr"] = factor * schedule.learning_rate
        adam.step()
        muon.step(factor * schedule.matrix_learning_rate)
        step(done + 1, schedule.steps)
    model.train(mode=False)


def _draw_windows(
    rng: np.random.Generator,
    streams: Mapping[str, tuple[TokenArray, float]],
    batch: int,
    length: int,
) -> torch.Tensor:
    tokens = [stream for stream, _ in streams.values()]
    shares = np.array([share for _, share in streams.values()])
    rows = []
    for domain in rng.choice(len(tokens), size=batch, p=shares / shares.sum()):
        start = rng.integers(len(tokens[domain]) - length + 1)
        rows.append(tokens[domain][start : start + length])
    return torch.from_numpy(np.stack(rows))
