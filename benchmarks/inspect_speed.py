"""Seconds that `inspect` takes for a base and two fine-tunes of 70 B parameters.

    python benchmarks/inspect_speed.py [--layers 80] [--folder FOLDER]

Writes three bfloat16 Llamas of the shapes of Llama 2 70B as sparse files: headers of
full size, and noise where rows are read, so that 0.8 GB of disk stand for 414. What the
operating system keeps of the files is dropped before the clock starts. Then runs the
command as a user does, and its step over the weights alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tokenizers
import torch
import transformers
import yaml

from mergekit_map.models.headers import TensorHeader, read_headers
from mergekit_map.models.vectors import StoredWeights, measure_vectors

WIDTH, INNER, KEYS, TOKENS = 8192, 28672, 1024, 32000
LAYER = {
    "input_layernorm.weight": (WIDTH,),
    "self_attn.q_proj.weight": (WIDTH, WIDTH),
    "self_attn.k_proj.weight": (KEYS, WIDTH),
    "self_attn.v_proj.weight": (KEYS, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, WIDTH),
    "post_attention_layernorm.weight": (WIDTH,),
    "mlp.up_proj.weight": (INNER, WIDTH),
    "mlp.gate_proj.weight": (INNER, WIDTH),
    "mlp.down_proj.weight": (WIDTH, INNER),
}
N_SHARDS = 15
NOISE = {"base": 0.0, "one": 2e-4, "two": 4e-4}


@dataclass
class Recorder:
    """Weights that remember which rows were read of them."""

    headers: Mapping[str, TensorHeader]
    read_rows: list[tuple[str, int, int]] = field(default_factory=list)

    def read(self, name: str, start: int, stop: int) -> torch.Tensor:
        self.read_rows.append((name, start, stop))
        return torch.zeros(stop - start, self.headers[name].width)


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        headers = {name: write_model(folder / name, arguments.layers) for name in NOISE}
        recorder = Recorder(headers["base"])
        measure_vectors(recorder, {})
        for name, noise in NOISE.items():
            fill(headers[name], recorder.read_rows, noise)
        total = sum(h.n_elements for h in headers["base"].values())
        print(f"{len(NOISE)} models of {total / 1e9:.1f} B parameters")
        forget(folder)
        started = time.perf_counter()
        print(run_command(folder))
        print(f"inspect: {time.perf_counter() - started:.1f} s")
        forget(folder)
        started = time.perf_counter()
        stored = {name: StoredWeights(h) for name, h in headers.items()}
        measure_vectors(stored.pop("base"), stored)
        print(f"of which the weights: {time.perf_counter() - started:.1f} s")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--folder", type=Path, default=None)
    return parser.parse_args()


def write_model(folder: Path, layers: int) -> dict[str, TensorHeader]:
    """Write everything of a model but its weights."""
    folder.mkdir()
    config = transformers.LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=TOKENS,
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)
    words = tokenizers.models.WordLevel({f"t{i}": i for i in range(TOKENS)}, "t0")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), unk_token="t0"
    ).save_pretrained(folder)
    shapes = dict(all_shapes(layers))
    names = list(shapes)
    weight_map = {}
    headers: dict[str, TensorHeader] = {}
    for shard in range(N_SHARDS):
        path = folder / f"model-{shard + 1:05}-of-{N_SHARDS:05}.safetensors"
        own = names[shard::N_SHARDS]
        write_sparse(path, {name: shapes[name] for name in own})
        headers |= read_headers(path)
        weight_map |= dict.fromkeys(own, path.name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return headers


def all_shapes(layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (TOKENS, WIDTH)
    for layer in range(layers):
        for name, shape in LAYER.items():
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (TOKENS, WIDTH)


def write_sparse(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write a header and make the file as long as it says, without writing the rest."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        offsets = [end, end + size]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": offsets}
        end += size
    content = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + end)


def fill(
    headers: Mapping[str, TensorHeader], rows: list[tuple[str, int, int]], noise: float
) -> None:
    """Write weights of one base, with noise of one's own, into rows."""
    base = torch.Generator().manual_seed(0)
    own = torch.Generator().manual_seed(int(1e6 * noise))
    for name, start, stop in rows:
        header = headers[name]
        shape = (stop - start, header.width)
        values = 0.02 * torch.randn(shape, generator=base)
        values += noise * torch.randn(shape, generator=own)
        with header.file.open("r+b") as file:
            file.seek(header.start + 2 * start * header.width)
            file.write(values.bfloat16().view(torch.int16).numpy().tobytes())


def forget(folder: Path) -> None:
    """Let the operating system drop what it keeps of the files."""
    for path in folder.rglob("*.safetensors"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_command(folder: Path) -> str:
    (folder / "text.txt").write_text("t1 t2 t3\n" * 100)
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in ("one", "two")],
        "map": {"tasks": {"text": {"perplexity": {"file": "text.txt"}}}},
    }
    (folder / "merge.yml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "mergekit_map", "inspect", "merge.yml"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return result.stdout + result.stderr


if __name__ == "__main__":
    main()
