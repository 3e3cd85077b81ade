"""The choice of the engine that generates the answers of a task.

Tasks that choose or score text are measured by Hugging Face's model in this process:
vLLM runs a whole prompt again for each choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lm_eval.api.registry import MODEL_REGISTRY

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import BackendSpec, MapBlock
from mergekit_map.config.tasks import CALLED
from mergekit_map.errors import nearest
from mergekit_map.tasks.base import fingerprint
from mergekit_map.tasks.lm_eval_tasks import GENERATED, HarnessTask
from mergekit_map.tasks.loading import LoadedTask

INSTALL = "pip install 'mergekit-map[vllm]'"
_DRAWS = "it draws its answers, which generate does alike for every merge"
HF, VLLM = NAMES = ("hf", "vllm")
# What may differ without another answer.
_NO_MATTER = frozenset({"gpu_memory_utilization", "disable_log_stats"})


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
        own = task.fingerprint[:16]
        if self.name == HF:
            return own
        args = {k: v for k, v in self.args.items() if k not in _NO_MATTER}
        return fingerprint("engine", self.name, task.fingerprint, args)[:16]


def backend_problems(backend: BackendSpec | None) -> list[Problem]:
    """List backends that lm-eval does not have, before a merge is written for them."""
    if backend is None or backend.name in MODEL_REGISTRY:
        return []
    hint = nearest(backend.name, list(MODEL_REGISTRY))
    text = f"lm-eval has no model class {backend.name!r}; {hint}"
    return [Problem(("map", "backend", "name"), text)]


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
    asked, draws = spec.engine, _draws(task)
    if asked.name != "auto":
        if asked.name != HF and draws:
            return EngineChoice(HF, _DRAWS)
        return EngineChoice(asked.name, "as asked for", asked.args)
    installed = installed_vllm()
    if draws:
        why = _DRAWS
    elif spec.merge != "memory":
        why = "merges are loaded from disk, one after the other"
    elif installed is None:
        why = "vLLM is not installed"
    elif not (on_gpu or is_for_cpus(installed)):
        why = f"vLLM {installed} needs a GPU"
    else:
        return EngineChoice(VLLM, f"vLLM {installed} is installed", open=True)
    return EngineChoice(HF, why, open=True)


def _draws(task: HarnessTask) -> bool:
    """Whether a task has the model sample its answers, instead of the likeliest."""
    return any(
        bool(options.get("do_sample")) or float(options.get("temperature") or 0) > 0
        for options in (request.args[1] for request in task.requests)
    )


def installed_vllm() -> str | None:
    """Return the version of vLLM without importing it, which takes seconds."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return None


def is_for_cpus(vllm: str) -> bool:
    """Whether this version of vLLM was built for CPUs."""
    return "+cpu" in vllm
