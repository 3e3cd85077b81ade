"""How much of a search with perplexity tasks is not the model's forward pass.

    python tests/benchmarks/search_overhead.py FAMILY [--evaluations 30]

FAMILY is the demo's folder of models. Searches in this process with two perplexity
tasks, with clocks around the model's ``forward`` and around the
cross-entropy of its logits. Prints the share of everything else: from the first byte of
the configuration to the last file of the run folder, and, with the imports, of the
whole process.
"""

import time

PROCESS_STARTED = time.perf_counter()

# ruff: noqa: E402 - the imports are part of what is timed
import argparse
import tempfile
from pathlib import Path

import torch
import transformers
import yaml

from mergekit_map import load_project, search_front


class Clock:
    """Counts the seconds spent in one function of an object."""

    def __init__(self, owner: object, name: str) -> None:
        self.seconds = 0.0
        original = getattr(owner, name)

        def timed(*arguments: object, **more: object) -> object:
            started = time.perf_counter()
            try:
                return original(*arguments, **more)
            finally:
                self.seconds += time.perf_counter() - started

        setattr(owner, name, timed)


class Silent:
    def progress(self, progress: object) -> None:
        pass

    def notice(self, text: str) -> None:
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", type=Path)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--evaluations", type=int, default=30)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    forward = Clock(transformers.LlamaForCausalLM, "forward")
    loss = Clock(torch.nn.functional, "cross_entropy")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yml"
        config.write_text(yaml.safe_dump(configuration(**vars(arguments))))
        started = time.perf_counter()
        search_front(load_project(config), Path(folder) / "run", Silent())
        ended = time.perf_counter()
    for name, begin in (("search", started), ("whole process", PROCESS_STARTED)):
        wall = ended - begin
        outside = 100 * (1 - forward.seconds / wall)
        entropy = 100 * loss.seconds / wall
        print(
            f"{name}: {wall:.1f} s, {outside:.1f} % of it outside the forward passes, "
            f"{entropy:.1f} % for the loss of their logits"
        )


def configuration(family: Path, tokens: int, evaluations: int) -> dict[str, object]:
    def text(name: str) -> dict[str, object]:
        source = {"file": str(family / f"{name}.jsonl")}
        return {"perplexity": source, "max_tokens": tokens}

    return {
        "merge_method": "task_arithmetic",
        "base_model": str(family / "base"),
        "models": [{"model": str(family / "code")}, {"model": str(family / "math")}],
        "dtype": "float32",
        "map": {
            "tasks": {"code": text("code"), "math": text("math")},
            "search": {"evaluations": evaluations},
        },
    }


if __name__ == "__main__":
    main()
