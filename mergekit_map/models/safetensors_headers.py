"""Headers of safetensors files, and single rows of the tensors behind them.

A header says where each tensor lies. So a few rows of a model of any size are read in
milliseconds, and a truncated file is noticed without reading it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from mergekit_map.errors import MergeError

_LENGTH = 8  # bytes that hold the length of the header

_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


@dataclass(frozen=True)
class TensorHeader:
    """Shape, type and position of one tensor."""

    dtype: str  # as the format writes it: BF16
    shape: tuple[int, ...]
    start: int  # first byte in the file
    stop: int
    file: Path | None  # None where only the header is here

    @property
    def n_elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Return the size in bytes."""
        return self.stop - self.start

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point numbers, not codes, masks or counters."""
        return self.dtype in _FLOATS

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return torch's name of the type of a floating-point tensor."""
        return _FLOATS[self.dtype]

    @property
    def width(self) -> int:
        """Return the elements of a row; every vector is a column."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def n_rows(self) -> int:
        """Return the number of rows, of all matrices where there are several."""
        return self.n_elements // self.width if self.n_elements else 0

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Read rows of a floating-point tensor, as float32; (stop - start, width)."""
        if self.file is None:
            raise ValueError("the weights are not here")
        row = self.width * self.torch_dtype.itemsize
        with self.file.open("rb") as file:
            file.seek(self.start + start * row)
            data = bytearray(file.read((stop - start) * row))
        stored = torch.frombuffer(data, dtype=self.torch_dtype)
        return stored.float().view(stop - start, self.width)

    def read_all(self) -> torch.Tensor:
        """Read all rows, as ``read`` does."""
        return self.read(0, self.n_rows)


def read_headers(path: Path) -> dict[str, TensorHeader]:
    """Read the headers of all tensors in a file that safetensors accepts.

    Raises:
        MergeError: it refuses the file, which is damaged or truncated.
    """
    try:
        with safe_open(path, framework="np"), path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            content = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        raise MergeError(
            f"{path} cannot be read as safetensors: {str(error)!r:.300}; its download "
            "may have been cut short: download or save the model again"
        ) from None
    content.pop("__metadata__", None)
    first = _LENGTH + length
    headers = {}
    for name, entry in content.items():
        start, stop = (first + place for place in entry["data_offsets"])
        shape = tuple(entry["shape"])
        headers[name] = TensorHeader(entry["dtype"], shape, start, stop, path)
    return headers
