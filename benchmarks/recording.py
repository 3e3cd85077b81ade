"""What recording a merge takes, what opening it again saves, and memory by storage.

    python benchmarks/recording.py [--hidden 768] [--layers 12] [--tuned 3]

Builds a random bfloat16 Llama (134 M parameters by default) and fine-tunes of it, and
measures each step in processes of its own, in one run: the peak of anonymous memory of
recording to files and of holding replays in memory, seconds to the first merge of a
first and of a second search, memory of one and of two processes by where task vectors
lie, and seconds to write a merge. Anonymous memory is what a process holds for itself;
the proportional share (PSS) counts pages of files, too, divided among who maps them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from merge_in_place import anonymous_bytes, tokenizer
from mergekit.options import MergeOptions

from mergekit_map.config.specs import SearchSpec
from mergekit_map.merging.recorded import (
    open_recorded,
    record,
    recorded_bytes,
    recorded_in_memory,
)
from mergekit_map.merging.recording_key import recording_key
from mergekit_map.merging.resident import resident_merge
from mergekit_map.merging.space import MergeSpace, build_space
from mergekit_map.merging.stored_replays import with_tensors

OPTIONS = MergeOptions(random_seed=0, quiet=True)
GB = 1e9
PLACES = ("mapped", "memory")


def main() -> None:
    arguments = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        folder = Path(scratch)
        names = ["base", *(f"tuned{i}" for i in range(arguments.tuned))]
        in_new_process(build_models, folder, names, arguments.hidden, arguments.layers)
        size = (folder / "base" / "model.safetensors").stat().st_size
        space = make_space(folder, names, arguments.method)
        os.environ["MERGEKIT_MAP_HOME"] = str(folder / "home")
        print(
            f"{size / 2e6:.0f} M parameters, {arguments.tuned} fine-tunes, "
            f"{arguments.method}; a model has {size / GB:.2f} GB, "
            f"its recording {recorded_bytes(space) / GB:.2f} GB"
        )
        compare_recordings(space, size)
        compare_starts(space)
        compare_storage(space, size, arguments.repeats)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tuned", type=int, default=3)
    parser.add_argument("--method", default="task_arithmetic")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scratch", type=Path)
    return parser.parse_args()


def build_models(folder: Path, names: list[str], hidden: int, layers: int) -> None:
    """Save base and fine-tunes, each of random numbers."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 64,
        vocab_size=32000,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    for index, name in enumerate(names):
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.empty_like(parameter).uniform_(-0.02, 0.02)
                parameter.copy_(noise if index == 0 else parameter + noise / 20)
        model.save_pretrained(folder / name, max_shard_size="100GB")
        tokenizer().save_pretrained(folder / name)


def make_space(folder: Path, names: list[str], method: str) -> MergeSpace:
    models = [{"model": str(folder / name)} for name in names[1:]]
    merge = {"merge_method": method, "base_model": str(folder / "base")}
    if method != "task_arithmetic":
        models = [{**model, "parameters": {"density": 0.5}} for model in models]
    space, problems = build_space({**merge, "models": models}, SearchSpec())
    assert space is not None, problems
    return space


def compare_recordings(space: MergeSpace, size: int) -> None:
    print("\nrecording                    s   processor s   peak anonymous GB   copies")
    for name, action in (("held in memory", hold), ("to files", to_files)):
        wall, processor, peak = in_new_process(watched, action, space)
        shown = f"{wall:9.1f} {processor:13.1f} {peak / GB:19.2f} {peak / size:8.2f}"
        print(f"{name:20} {shown}")


def hold(space: MergeSpace) -> None:
    with recorded_in_memory(space, OPTIONS):
        pass


def to_files(space: MergeSpace) -> None:
    record(space, OPTIONS)


def watched(action: Callable[..., None], space: MergeSpace) -> tuple[float, float, int]:
    """Do something; gives seconds, and the peak of anonymous memory beyond before."""
    before, peak, done = anonymous_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started, used = time.perf_counter(), time.process_time()
    action(space)
    took = time.perf_counter() - started, time.process_time() - used
    done.set()
    watcher.join()
    return *took, peak - before


def compare_starts(space: MergeSpace) -> None:
    shutil.rmtree(os.environ["MERGEKIT_MAP_HOME"])
    print("\nto the first merge           s   processor s   of it for the key s")
    for name in ("a first search", "a second search", "a third search"):
        wall, processor, key = in_new_process(start, space)
        print(f"{name:20} {wall:9.1f} {processor:13.1f} {key:21.1f}")


def start(space: MergeSpace) -> tuple[float, float, float]:
    started, used = time.perf_counter(), time.process_time()
    recording_key(space, OPTIONS)
    key = time.perf_counter() - started
    with resident_merge(space, OPTIONS) as merge:
        merge.write(point(space))
        return time.perf_counter() - started, time.process_time() - used, key


def point(space: MergeSpace, shift: float = 0.0) -> dict[str, float]:
    return {name: 0.3 + shift for name in space.names}


def compare_storage(space: MergeSpace, size: int, repeats: int) -> None:
    print("\ntask vectors    processes   anonymous GB, each   PSS GB, all of them")
    for place in PLACES:
        for count in (1, 2):
            wanted = count * (len(space.names) + 2) * size
            if place == "memory" and wanted > 0.7 * free():
                print(f"{place:15} {count:9}   left out: {free() / GB:.0f} GB are free")
                continue
            found = at_once(count, use, space, place)
            anonymous = max(one for one, _ in found) / GB
            total = sum(share for _, share in found) / GB
            print(f"{place:15} {count:9} {anonymous:20.2f} {total:21.2f}")
    print("\nwriting a merge, processor s, best of", repeats)
    times = in_new_process(write_times, space, repeats)
    for name, took in times.items():
        print(f"{name:15} {took:9.3f}")


def use(space: MergeSpace, place: str, barrier: Any) -> tuple[int, int]:
    before = anonymous_bytes(), share_bytes()
    with resident_merge(space, OPTIONS, place) as merge:
        merge.write(point(space))
        barrier.wait()
        found = anonymous_bytes() - before[0], share_bytes() - before[1]
        barrier.wait()
    return found


def write_times(space: MergeSpace, repeats: int) -> dict[str, float]:
    """Write a merge from mapped tensors and from memory, tensor by tensor in turn.

    Each is merged once before it is timed, so that its pages are there.
    """
    mapped = open_recorded(record(space, OPTIONS))
    times = dict.fromkeys(PLACES, 0.0)
    for name, replay in mapped.replays.items():
        weights = mapped.weights.of(name, replay.models, point(space))
        target = torch.empty_like(replay.base)
        held = {"mapped": replay, "memory": with_tensors(replay, torch.clone)}
        took: dict[str, list[float]] = {place: [] for place in PLACES}
        for _ in range(1 + repeats):
            for place in PLACES:
                started = time.process_time()
                held[place].write(weights, target)
                took[place].append(time.process_time() - started)
        for place in PLACES:
            times[place] += min(took[place][1:])
    return times


def at_once(count: int, action: Callable[..., Any], *arguments: Any) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(count) as pool:
        barrier = manager.Barrier(count)
        asked = [pool.apply_async(action, (*arguments, barrier)) for _ in range(count)]
        return [one.get() for one in asked]


def in_new_process(action: Callable[..., Any], *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(action, arguments)


def share_bytes() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"Pss:\s+(\d+) kB", rollup).group(1)) * 1024


def free() -> int:
    meminfo = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable:\s+(\d+) kB", meminfo).group(1)) * 1024


if __name__ == "__main__":
    main()
