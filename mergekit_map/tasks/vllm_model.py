"""vLLM as a model of lm-evaluation-harness: opening, requests, release."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from lm_eval.api.registry import get_model
from lm_eval.models.utils import normalize_gen_kwargs

from mergekit_map.errors import ConfigError, MergeError
from mergekit_map.tasks.engines import INSTALL, installed_vllm, is_for_cpus
from mergekit_map.tasks.isolation import quiet
from mergekit_map.tasks.lm_eval_tasks import HarnessTask
from mergekit_map.tasks.loading import LoadedTask

_PROBES, _PROBE_TOKENS, _DECODED = 8, 160, 16
_DEFAULT_ANSWER = 256  # tokens that lm-eval lets a model write unless a task says
_LEAST_LENGTH = 320  # so that probes fill a block of the cache
_CHAT = 1024  # tokens that a chat template adds at most, as examples are turns of it
# Unless the user's environment has them.
_UNLESS_SAID = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # What is answered together, and so how it rounds, must not hang on the clock.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Of builds for CPUs: threads of this process stay where they are.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # gigabytes
}
_AT_ONCE = 1 << 30  # requests that are handed over together


def require_vllm() -> str:
    """Return the version of the installed vLLM.

    Raises:
        ConfigError: it is not installed.
    """
    found = installed_vllm()
    if found is None:
        raise ConfigError(
            "vLLM is to generate the answers of some tasks, and is not installed; "
            f"install it with {INSTALL}, or write 'engine: hf' and measure anew"
        )
    return found


@contextmanager
def vllm_model(folder: Path, **args: Any) -> Iterator[Any]:
    """Open a checkpoint with vLLM, as lm-eval does, and release all of it at the end.

    Raises:
        MergeError: vLLM cannot open it.
    """
    lm = _opened(folder, args)
    from vllm.distributed import cleanup_dist_env_and_memory

    try:
        yield lm
    finally:
        lm.model.llm_engine.engine_core.shutdown()
        del lm.model
        gc.collect()
        cleanup_dist_env_and_memory()


def _opened(folder: Path, args: Mapping[str, Any]) -> Any:
    for name, value in _UNLESS_SAID.items():
        os.environ.setdefault(name, value)
    config = transformers.AutoConfig.from_pretrained(folder)
    dtype = str(config.dtype or torch.float32).removeprefix("torch.")
    given = {
        "dtype": dtype,
        "seed": 0,
        "batch_size": _AT_ONCE,
        "use_tqdm_on_load": False,
        **args,
    }
    if is_for_cpus(require_vllm()):
        # Compiling takes longer than a CPU makes good.
        given.setdefault("enforce_eager", True)
        if given.get("tensor_parallel_size", 1) == 1:
            given.setdefault("distributed_executor_backend", "uni")
    try:
        with quiet():
            return get_model("vllm")(pretrained=str(folder), **given)
    except Exception as error:
        raise MergeError(
            f"vLLM cannot open the merge: {type(error).__name__}: {error}; change what "
            "it is opened with ('args' of 'engine'), or write 'engine: hf'"
        ) from error


@dataclass(frozen=True, eq=False)
class Replies:
    """The answers of an engine to probes: tokens, and their log-probabilities."""

    prefilled: np.ndarray  # (probes, k) log-probabilities of the prompts' tokens
    tokens: np.ndarray  # (probes, l) that it wrote
    decoded: np.ndarray  # (probes, l) their log-probabilities

    def difference(self, other: Replies) -> float:
        """Return the largest difference, up to the place where the tokens differ."""
        parted = np.cumsum(self.tokens != other.tokens, axis=1)
        before = np.hstack([np.zeros((len(parted), 1)), parted[:, :-1]]) == 0
        gaps = np.abs(self.decoded - other.decoded)[before]
        worst = float(np.abs(self.prefilled - other.prefilled).max())
        return max(worst, float(gaps.max()))


def ask_probes(lm: Any) -> Replies:
    """Have an engine score prompts and continue them, deterministically."""
    from vllm import SamplingParams, TokensPrompt

    # More than a block, or nothing of a prompt would be kept that could be stale.
    block = lm.model.llm_engine.vllm_config.cache_config.block_size
    length = max(_PROBE_TOKENS, block + _PROBE_TOKENS // 4)
    room = lm.max_length - _DECODED - 1
    vocabulary = lm.model.llm_engine.model_config.get_vocab_size()
    draw = np.random.default_rng(0).integers
    size = (_PROBES, max(1, min(length, room)))
    rows = draw(0, vocabulary, size).tolist()
    prompts = [TokensPrompt(prompt_token_ids=row) for row in rows]
    # Of two kinds, as what has its prompt scored reuses nothing of earlier prompts.
    score = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    write = SamplingParams(
        temperature=0, max_tokens=_DECODED, logprobs=0, ignore_eos=True
    )
    scored = lm.model.generate(prompts, score, use_tqdm=False)
    written = lm.model.generate(prompts, write, use_tqdm=False)
    answers = [output.outputs[0] for output in written]
    prefilled = [
        _of_tokens(output.prompt_logprobs[1:], row[1:])
        for output, row in zip(scored, rows, strict=True)
    ]
    return Replies(
        np.array(prefilled),
        np.array([list(answer.token_ids) for answer in answers]),
        np.array([_of_tokens(a.logprobs, a.token_ids) for a in answers]),
    )


def _of_tokens(found: Sequence[Any], tokens: Sequence[int]) -> list[float]:
    return [row[token].logprob for row, token in zip(found, tokens, strict=True)]


def longest_input(tasks: Iterable[LoadedTask], tokenizer: Any, most: int) -> int:
    """Return the tokens of the longest prompt and its answer; ``most`` at most.

    vLLM reserves memory for inputs of this length.
    """
    longest = 0
    for task in tasks:
        assert isinstance(task, HarnessTask)
        room = _CHAT if task.spec.apply_chat_template else 0
        for prompt, options in (request.args for request in task.requests):
            answer = normalize_gen_kwargs(options, _DEFAULT_ANSWER)["max_gen_toks"]
            longest = max(longest, len(tokenizer(prompt).input_ids) + answer + room)
    return min(most, max(longest + 1, _LEAST_LENGTH))


def open_merge(lm: Any, recording: Path) -> set[str]:
    """Have the workers open a recorded merge; return the names of its tensors.

    Raises:
        MergeError: they cannot.
    """
    try:
        opened = lm.model.collective_rpc("open_merge", args=(str(recording),))
    except Exception as error:
        raise MergeError(f"vLLM cannot open the recorded merge: {error}") from error
    return set(opened[0])


def write_merge(lm: Any, coefficients: Mapping[str, float], names: set[str]) -> None:
    """Have the workers write a merge, and forget what was computed of the last one.

    Raises:
        MergeError: not all tensors were written, or vLLM keeps what it computed.
    """
    try:
        written = lm.model.collective_rpc("write_merge", args=(dict(coefficients),))
    except Exception as error:
        raise MergeError(f"vLLM cannot take the merge: {error}") from error
    for found in written:
        if set(found) != names or len(found) != len(names):
            raise MergeError(
                f"vLLM took {len(found)} tensors of a merge of {len(names)}; write "
                "'merge: disk' or 'engine: hf'"
            )
    if lm.model.reset_prefix_cache() is not True:
        raise MergeError(
            "vLLM keeps what it computed of the merge before; write 'merge: disk' or "
            "'engine: hf'"
        )
