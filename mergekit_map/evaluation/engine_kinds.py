"""Kinds of vLLM engines, and whether merges can be written into them.

What a check found of a kind is stored for later searches of this user.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from mergekit.common import dtype_from_name
from mergekit.options import MergeOptions
from pydantic import Field, ValidationError

from mergekit_map.errors import ArtifactError, MapError
from mergekit_map.merging.space import MergeSpace
from mergekit_map.models.files import find_model
from mergekit_map.models.references import Reference, referenced_models
from mergekit_map.results.records import Record, read_record
from mergekit_map.tasks.engines import InstalledVllm
from mergekit_map.utils.files import cache_home, write_atomically

# What vLLM is opened with that decides nothing of how weights are taken.
_NO_MATTER = ("max_model_len", "gpu_memory_utilization")


def kind_of_checkpoint(
    vllm: InstalledVllm, folder: Path, args: Mapping[str, Any]
) -> str:
    """Return the kind of an engine for a checkpoint."""
    config = transformers.AutoConfig.from_pretrained(folder)
    return _kind(vllm, config, config.dtype, args)


def known_against(
    vllm: InstalledVllm, space: MergeSpace, options: MergeOptions
) -> str | None:
    """Return why earlier checks forbid writing these merges into an engine.

    The engine is one with default arguments. None where nothing is known against it.
    """
    merge = space.template
    front = next(iter(referenced_models(merge)))
    try:
        found = find_model(str(Reference.parse(front).model), weights=False)
        config = transformers.AutoConfig.from_pretrained(
            found.folder, trust_remote_code=options.trust_remote_code
        )
    except (OSError, ValueError, MapError):
        return None  # which is told elsewhere
    dtype = dtype_from_name(merge.get("out_dtype") or merge.get("dtype"))
    verdict = known_check(_kind(vllm, config, dtype or config.dtype, {}))
    return None if verdict is None or verdict.equal else verdict.why


def _kind(
    vllm: InstalledVllm,
    config: transformers.PretrainedConfig,
    dtype: Any,
    args: Mapping[str, Any],
) -> str:
    tied = getattr(config.get_text_config(), "tie_word_embeddings", False)
    own = {k: v for k, v in sorted(args.items()) if k not in _NO_MATTER}
    parts = [
        str(vllm),
        "for CPUs" if vllm.on_cpu else "for GPUs",
        *(config.architectures or ["?"]),
        str(dtype),
        "tied" if tied else "not tied",
        *(f"{key} {value}" for key, value in own.items()),
    ]
    return ", ".join(parts)


class EngineCheck(Record):
    """The result of checking one kind of engine."""

    equal: bool
    """Whether a merge written into it answers as its checkpoint does."""
    why: str
    """The reason against it."""
    gap: float | None = None
    """The largest difference of log-probabilities."""


class _Verdicts(Record):
    kinds: dict[str, EngineCheck] = Field(default_factory=dict)


def known_check(kind: str) -> EngineCheck | None:
    """Return the stored result for a kind of engine; None where it was not checked."""
    return _read().kinds.get(kind)


def remember(kind: str, verdict: EngineCheck) -> None:
    """Store a result for later searches of this user."""
    found = _Verdicts(kinds={**_read().kinds, kind: verdict})
    path = cache_home() / "engines.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, found.model_dump_json(indent=1) + "\n")


def _read() -> _Verdicts:
    path = cache_home() / "engines.json"
    if not path.exists():
        return _Verdicts()
    try:
        return read_record(path, _Verdicts, "list of engines")
    except (ArtifactError, ValidationError):
        return _Verdicts()  # they are seen again
