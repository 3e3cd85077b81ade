"""The engine that generates the answers of a task: its choice, and vLLM.

Tasks that choose or score text are measured by Hugging Face's model in this process:
vLLM runs a whole prompt again for each choice. lm-eval opens vLLM and asks it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from lm_eval.api.registry import get_model
from lm_eval.models.utils import normalize_gen_kwargs

from mergekit_map.config.schema import MapBlock
from mergekit_map.config.tasks import CALLED
from mergekit_map.errors import ConfigError, MergeError
from mergekit_map.tasks.base import fingerprint, quiet
from mergekit_map.tasks.lm_eval_tasks import GENERATED, HarnessTask
from mergekit_map.tasks.loading import LoadedTask

_DRAWS = "it draws its answers, or searches for them, as generate alone does"
HF, VLLM = NAMES = ("hf", "vllm")
# Arguments that change no answer.
_NO_MATTER = frozenset({"gpu_memory_utilization", "disable_log_stats"})
_PROBES, _PROBE_TOKENS, _DECODED = 8, 160, 16
_DEFAULT_ANSWER = 256  # tokens of an answer where a task has no limit: lm-eval's
_LEAST_LENGTH = 320  # so that probes fill a block of the cache
_CHAT = 1024  # tokens that a chat template adds at most, with examples as turns
_ENVIRONMENT = {  # environment variables, where the user has not set them
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    # With a process of its own, batches and their rounding would depend on the clock.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Builds for CPUs would bind the threads of this process to cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # gigabytes
}
_AT_ONCE = 1 << 30  # requests that are handed over together


@dataclass(frozen=True)
class EngineChoice:
    """The engine that measures a task, and the reason for it."""

    name: str  # hf or vllm
    why: str
    args: Mapping[str, Any] = field(default_factory=dict)
    open: bool = False  # whether nobody asked for one

    def in_words(self) -> str:
        """Describe the engine and the reason."""
        return f"{CALLED[self.name]} ({self.why})"

    def definition(self, task: LoadedTask) -> str:
        """Return the digest of a task and its engine, unless that is Hugging Face's."""
        if self.name == HF:
            return task.fingerprint[:16]
        args = {k: v for k, v in self.args.items() if k not in _NO_MATTER}
        return fingerprint("engine", self.name, task.fingerprint, args)[:16]


def choose_engines(
    tasks: Mapping[str, LoadedTask],
    spec: MapBlock,
    *,
    on_gpu: bool,
    used: Mapping[str, str],
) -> dict[str, EngineChoice]:
    """Choose an engine for each task that generates; all others are Hugging Face's.

    ``on_gpu``: where merges are measured. ``used``: the engine of earlier answers, by
    task, as engines are not mixed.
    """
    if spec.backend is not None:
        return {}
    found = {}
    for name, task in tasks.items():
        if not isinstance(task, HarnessTask) or task.kinds != {GENERATED}:
            continue
        if spec.engine.name == "auto" and name in used:
            why = "it generated the answers before"
            found[name] = EngineChoice(used[name], why, open=True)
        else:
            found[name] = _choose(task, spec, on_gpu=on_gpu)
    return found


def _choose(task: HarnessTask, spec: MapBlock, *, on_gpu: bool) -> EngineChoice:
    requested = spec.engine
    with quiet():  # lm-eval logs options that contradict each other
        options = [normalize_gen_kwargs(request.args[1]) for request in task.requests]
    is_random = any(one["do_sample"] or "num_beams" in one for one in options)
    if requested.name != "auto":
        if requested.name != HF and is_random:
            return EngineChoice(HF, _DRAWS)
        return EngineChoice(requested.name, "as asked for", requested.args)
    installed = installed_vllm()
    if is_random:
        why = _DRAWS
    elif spec.merge != "memory":
        why = "merges are loaded from disk, one after the other"
    elif installed is None:
        why = "vLLM is not installed"
    elif not (on_gpu or "+cpu" in installed):
        why = f"vLLM {installed} needs the first GPU (--device cuda)"
    else:
        return EngineChoice(VLLM, f"vLLM {installed} is installed", open=True)
    return EngineChoice(HF, why, open=True)


def installed_vllm() -> str | None:
    """Return the version of vLLM without importing it, which takes seconds.

    Builds for CPUs have "+cpu" in it.
    """
    try:
        return version("vllm")
    except PackageNotFoundError:
        return None


def require_vllm() -> str:
    """Return the version of vLLM; raise ConfigError if it is not installed."""
    if (installed := installed_vllm()) is None:
        raise ConfigError(
            "vLLM is to generate the answers of some tasks, and is not installed; "
            "install it with pip install 'mergekit-map[vllm]', or write 'engine: hf' "
            "and measure anew"
        )
    return installed


@contextmanager
def vllm_model(folder: Path, **args: Any) -> Iterator[Any]:
    """Open a checkpoint as lm-eval does, or raise MergeError; release it at the end."""
    lm = _open_vllm(folder, args)
    from vllm.distributed import cleanup_dist_env_and_memory

    try:
        yield lm
    finally:
        lm.model.llm_engine.engine_core.shutdown()
        del lm.model
        gc.collect()
        cleanup_dist_env_and_memory()


def _open_vllm(folder: Path, args: Mapping[str, Any]) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    trust = args.get("trust_remote_code", False)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust)
    dtype = str(config.dtype or torch.float32).removeprefix("torch.")
    ours = {"seed": 0, "batch_size": _AT_ONCE, "use_tqdm_on_load": False}
    given = {"dtype": dtype, **ours, **args}
    if "+cpu" in require_vllm():
        # Compiling takes longer than it saves on a CPU.
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
    """The answers of an engine to the probes."""

    tokens: np.ndarray  # (probes, k)
    logprobs: np.ndarray  # (probes, k) of these tokens

    def difference(self, other: Replies) -> float:
        """Return the largest difference, up to the first token that differs."""
        differs = self.tokens != other.tokens
        differs_before = np.cumsum(differs, axis=1) > differs
        return float(np.abs(self.logprobs - other.logprobs)[~differs_before].max())


def ask_probes(lm: Any) -> Replies:
    """Have an engine continue prompts of random tokens, deterministically."""
    from vllm import SamplingParams, TokensPrompt

    # The cache keeps whole blocks: only a longer prompt shows that it is stale.
    block = lm.model.llm_engine.vllm_config.cache_config.block_size
    length = max(_PROBE_TOKENS, block + _PROBE_TOKENS // 4)
    room = lm.max_length - _DECODED - 1
    vocabulary = lm.model.llm_engine.model_config.get_vocab_size()
    shape = (_PROBES, max(1, min(length, room)))
    rows = np.random.default_rng(0).integers(0, vocabulary, shape).tolist()
    prompts = [TokensPrompt(prompt_token_ids=row) for row in rows]
    greedy = SamplingParams(
        temperature=0, max_tokens=_DECODED, logprobs=0, ignore_eos=True
    )
    outputs = lm.model.generate(prompts, greedy, use_tqdm=False)
    answers = [output.outputs[0] for output in outputs]
    logprobs = [
        [row[token].logprob for row, token in zip(a.logprobs, a.token_ids, strict=True)]
        for a in answers
    ]
    return Replies(np.array([list(a.token_ids) for a in answers]), np.array(logprobs))


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


def write_merge(lm: Any, coefficients: Mapping[str, float]) -> None:
    """Have the workers write a merge and forget the last one, or raise MergeError."""
    call_workers(lm, "write_merge", dict(coefficients))
    if lm.model.reset_prefix_cache() is not True:
        raise MergeError("vLLM keeps what it computed of the merge before")


def call_workers(lm: Any, method: str, argument: Any) -> None:
    """Have all workers call a method of ``MergeWriter``, or raise MergeError."""
    try:
        lm.model.collective_rpc(method, args=(argument,))
    except Exception as error:
        raise MergeError(f"vLLM failed at {method}: {error}") from error
