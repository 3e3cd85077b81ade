"""Merges in vLLM: written into one engine in place, where a check allows it.

The check compares two engines before anything is measured: one started from a
checkpoint of a merge, and one started from another checkpoint that had the same merge
written into it. The same prompts must get the same answers, to the last bit, or as
close as the first engine comes to itself. Equal parameters would not suffice: engines
keep packed copies and caches. Where answers differ, each merge gets an engine of its
own, started from mergekit's checkpoint, and its values are the same.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import transformers

from mergekit_map.errors import MergeError
from mergekit_map.evaluation.merges import InPlace, MergeFunction, merged_on_disk
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.devices import engine_share
from mergekit_map.merging.in_memory import MERGE_WRITER
from mergekit_map.merging.recording import GENERIC, open_recorded, record
from mergekit_map.tasks.engines import (
    Replies,
    ask_probes,
    call_workers,
    longest_input,
    require_vllm,
    vllm_model,
    write_merge,
)
from mergekit_map.tasks.loading import Generations, prepare_generating
from mergekit_map.types import Measures
from mergekit_map.utils.progress import stage

LOG = logging.getLogger(__name__)

# Of the merge that an engine is started from, which is not the recorded one.
_START = 0.3819660112501051


@contextmanager
def merges_in_vllm(project: Project) -> Iterator[MergeFunction]:
    """Open the merges of a project in vLLM, in place if the check allows it.

    Raises ConfigError without vLLM, and MergeError if merges cannot be made or opened.
    """
    require_vllm()
    with ExitStack() as stack:
        if project.spec.merge == "memory" and (engine := _in_place(project, stack)):
            yield engine
            return
        last = stack.enter_context(ExitStack())

        def from_disk(coefficients: Mapping[str, float]) -> Measures:
            """Start an engine from the checkpoint that mergekit writes."""
            last.close()  # before the next one wants its memory
            with merged_on_disk(project, coefficients) as folder:
                merges = last.enter_context(checkpoint_in_vllm(project, folder))
                return merges(coefficients)

        yield from_disk


@contextmanager
def checkpoint_in_vllm(project: Project, folder: Path) -> Iterator[MergeFunction]:
    """Open the checkpoint in a folder in vLLM, whatever the coefficients."""
    args = engine_args(project, folder)
    with ExitStack() as stack:
        with stage("starting vLLM"):
            lm = stack.enter_context(vllm_model(folder, **args))
        measures = project.as_searched(prepare_generating(project.tasks, lm, {}))
        yield lambda _: measures


def engine_args(project: Project, checkpoint: Path) -> dict[str, Any]:
    """Return the arguments of vLLM for the tasks of a project."""
    trust = {"trust_remote_code": project.options.trust_remote_code}
    config = transformers.AutoConfig.from_pretrained(checkpoint, **trust)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, **trust)
    most = getattr(config.get_text_config(), "max_position_embeddings", 1 << 30)
    length = longest_input(project.tasks.values(), tokenizer, most)
    is_alone = project.engines.keys() >= project.spec.tasks.keys()
    share = engine_share(project.space, project.spec, project.options, alone=is_alone)
    memory = {} if share is None else {"gpu_memory_utilization": share}
    return {"max_model_len": length, **trust, **memory, **project.spec.engine.args}


def _in_place(project: Project, stack: ExitStack) -> InPlace | None:
    """Open an engine for writing merges in place; None where the check fails."""
    folder = record(project.space, project.options)
    recorded = open_recorded(folder)
    args = engine_args(project, recorded.checkpoint)
    asking = stage("asking vLLM what a checkpoint says")
    with asking, vllm_model(recorded.checkpoint, **args) as lm:
        expected = (ask_probes(lm), ask_probes(lm))
    with ExitStack() as starting:
        try:
            engine = _open_engine(project, starting, folder, args)
            with stage("asking vLLM what a merge says that was written into it"):
                merge = project.space.generic(GENERIC)
                reason = _difference_in_words(engine, merge, expected)
        except MergeError as error:
            reason = str(error)
        if reason is None:
            stack.enter_context(starting.pop_all())
            return engine
    LOG.warning(
        "vLLM is started anew for each merge, from disk: %s; 'engine: hf' may be "
        "faster for small models",
        reason,
    )
    return None


def _open_engine(
    project: Project, stack: ExitStack, folder: Path, args: dict[str, Any]
) -> InPlace:
    """Start an engine from another merge than the recorded one."""
    other = project.space.generic(_START)
    merging = merged_on_disk(project, other, "merging to disk, for vLLM to start from")
    with merging as start, stage("starting vLLM"):
        model = vllm_model(start, worker_extension_cls=MERGE_WRITER, **args)
        lm = stack.enter_context(model)
    call_workers(lm, "open_merge", str(folder))
    generations = Generations()
    measures = project.as_searched(prepare_generating(project.tasks, lm, generations))
    return InPlace(lm, functools.partial(write_merge, lm), measures, generations)


def _difference_in_words(
    engine: InPlace, merge: Mapping[str, float], expected: tuple[Replies, Replies]
) -> str | None:
    """Write a merge into an engine, and describe how its answers differ.

    ``expected`` has two runs of an engine with the checkpoint of the merge. None where
    the answers come as close to the first run as the second does.
    """
    ask_probes(engine.resident)  # of another merge, so that it has something to forget
    engine(merge)
    once, again = expected
    allowed = once.difference(again)
    if (gap := once.difference(ask_probes(engine.resident))) <= allowed:
        return None
    return (
        f"what it says of a merge that was written into it is up to {gap:.2g} nats "
        f"from what it says of the checkpoint, and {allowed:.2g} are its own"
    )
