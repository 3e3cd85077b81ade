"""Headers of safetensors files, and single rows of the tensors behind them.

A header says where each tensor lies, so that a few rows of a model of any size are read
in milliseconds, and a file that was cut short is known without reading it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mergekit_map.errors import MergeError

_LENGTH = 8  # bytes that hold the length of the header
_LONGEST = 100_000_000  # bytes of a header, as the format has it

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
    """Shape, type and place of one tensor."""

    dtype: str  # as the format writes it: BF16
    shape: tuple[int, ...]
    start: int  # first byte in the file
    stop: int
    file: Path | None  # None where only the header is here

    @property
    def n_elements(self) -> int:
        """Count the elements."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Count the bytes on disk."""
        return self.stop - self.start

    @property
    def is_float(self) -> bool:
        """Tell weights from codes, masks and counters."""
        return self.dtype in _FLOATS

    @property
    def torch_dtype(self) -> torch.dtype:
        """Name the type of a floating-point tensor as torch does."""
        return _FLOATS[self.dtype]

    @property
    def width(self) -> int:
        """Count the elements of a row; every vector is a column."""
        return self.shape[-1] if len(self.shape) > 1 else 1

    @property
    def n_rows(self) -> int:
        """Count the rows, of all matrices where there are more than one."""
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


def read_headers(path: Path) -> dict[str, TensorHeader]:
    """Read what a file says of its tensors.

    Raises:
        MergeError: the file is damaged, or was cut short.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            if not 2 <= length <= min(size - _LENGTH, _LONGEST):
                raise _damaged(path, "it does not begin with a header")
            content = json.loads(file.read(length))
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    headers = parse_headers(content, path, _LENGTH + length)
    end = max((h.stop for h in headers.values()), default=_LENGTH + length)
    if size < end:
        raise _damaged(
            path, f"it ends after {size} of {end} bytes, so its download was cut short"
        )
    return headers


def parse_headers(
    content: Any, path: Path, offset: int, *, here: bool = True
) -> dict[str, TensorHeader]:
    """Read the tensors of a header's JSON; their bytes are counted from ``offset``.

    Raises:
        MergeError: it is not the header of a file of tensors.
    """
    headers = {}
    try:
        for name, entry in content.items():
            if name == "__metadata__":
                continue
            start, stop = (offset + int(o) for o in entry["data_offsets"])
            shape = tuple(int(n) for n in entry["shape"])
            file = path if here else None
            header = TensorHeader(entry["dtype"], shape, start, stop, file)
            count = header.n_elements
            if header.is_float and stop - start != count * header.torch_dtype.itemsize:
                raise _damaged(path, f"the size of {name} is not that of its shape")
            headers[name] = header
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(path, "its header does not describe tensors") from None
    return headers


def _damaged(path: Path, reason: str) -> MergeError:
    return MergeError(
        f"{path} cannot be read as safetensors: {reason}; download or save the model "
        "again"
    )
