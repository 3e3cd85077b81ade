"""Headers of tensors: what the format's own reader refuses is refused here."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mergekit_map.errors import MergeError
from mergekit_map.models.safetensors_headers import read_headers

_ODD: list[Any] = [
    *(-1, 0, 1, 4, 8, 12, 16, 2**31, 2**63, 2**64, 0.5, 8.0, 1e400, float("nan")),
    *(None, True, False, "", "8", "F32", "F16", "I32", "BOOL", "F33", [], {}),
    *([0, 8], [8, 0], [8, 16], [0, 16], [2], [2, 1], [1, 2, 1], [-2, -1], {"a": "b"}),
]


def bent(header: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Put something odd in one or two places of a header."""
    made: dict[str, Any] = json.loads(json.dumps(header))
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(made))
        if rng.random() < 0.1 or not isinstance(made[name], dict):
            made[name] = rng.choice(_ODD)
            continue
        key = rng.choice([*made[name], "more"])
        value = made[name].get(key)
        if isinstance(value, list) and value and rng.random() < 0.5:
            value[rng.randrange(len(value))] = rng.choice(_ODD)
        else:
            made[name][key] = rng.choice(_ODD)
    return made


def accepted_by_its_own_reader(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt") as file:
            return bool(list(file.keys()))
    except (SafetensorError, OSError):
        return False


def test_what_the_formats_own_reader_refuses_is_refused(tmp_path: Path) -> None:
    rng, path = random.Random(0), tmp_path / "model.safetensors"
    good = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [8, 16]},
    }
    refused = 0
    for _ in range(2000):
        content = json.dumps(bent(good, rng)).encode()
        path.write_bytes(len(content).to_bytes(8, "little") + content + b"\0" * 16)
        if not accepted_by_its_own_reader(path):
            refused += 1
            with pytest.raises(MergeError, match="cannot be read as safetensors"):
                read_headers(path)
    assert refused > 1000


@pytest.mark.parametrize("dtype", ["F32", "BF16", "I64", "BOOL", "F8_E4M3"])
def test_what_it_writes_is_read(tmp_path: Path, dtype: str) -> None:
    kinds = {
        "F32": torch.float32,
        "BF16": torch.bfloat16,
        "I64": torch.int64,
        "BOOL": torch.bool,
        "F8_E4M3": torch.float8_e4m3fn,
    }
    tensors = {
        "a": torch.zeros(3, 5).to(kinds[dtype]),
        "empty": torch.zeros(0, 4).to(kinds[dtype]),
        "one": torch.tensor(1.0).to(kinds[dtype]),
    }
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "pt"})

    found = read_headers(path)

    assert {n: h.shape for n, h in found.items()} == {
        "a": (3, 5),
        "empty": (0, 4),
        "one": (),
    }
