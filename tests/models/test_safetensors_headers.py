"""Headers of tensors, as safetensors writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mergekit_map.models.safetensors_headers import read_headers


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
