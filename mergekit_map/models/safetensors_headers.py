"""Headers of safetensors files, and single rows of the tensors behind them.

A header says where each tensor lies. So a few rows of a model of any size are read in
milliseconds, and a truncated file is noticed without reading it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from mergekit_map.errors import MergeError

_LENGTH = 8  # bytes that hold the length of the header
_LONGEST = 100_000_000  # bytes of a header, as the format has it
_LARGEST = 1 << 63  # elements, and bytes of a file
_MOST_AXES = 64  # as NumPy has it

_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
# Bits of an element, of all types that the format has.
_BITS = {
    **{name: dtype.itemsize * 8 for name, dtype in _FLOATS.items()},
    **{f"{sign}{bits}": bits for sign in "UI" for bits in (8, 16, 32, 64)},
    **dict(F4=4, F6_E2M3=6, F6_E3M2=6, F8_E8M0=8, C64=64, BOOL=8),
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


def read_headers(path: Path) -> dict[str, TensorHeader]:
    """Read the headers of all tensors in a file, as strictly as its loaders will.

    Raises:
        MergeError: the file is damaged or truncated.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            if not 2 <= length <= min(size - _LENGTH, _LONGEST):
                raise _damaged(path, "it does not begin with a header")
            content = _parsed(file.read(length))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    headers = parse_headers(content, path, _LENGTH + length)
    _check_metadata(content.get("__metadata__"), path)
    _check_places(headers, path, _LENGTH + length, size)
    return headers


def parse_headers(
    content: Any, path: Path, offset: int, *, here: bool = True
) -> dict[str, TensorHeader]:
    """Read the tensors of a header's JSON; their bytes are counted from ``offset``.

    Raises:
        MergeError: it is not the header of a file of tensors.
    """
    if not isinstance(content, Mapping):
        raise _damaged(path, "its header does not describe tensors")
    headers = {}
    for name, entry in content.items():
        if name == "__metadata__":
            continue
        try:
            headers[name] = _read_entry(entry, path if here else None, offset)
        except ValueError as error:
            raise _damaged(path, f"{name!r:.200} {error}") from None
    return headers


def _parsed(data: bytes) -> Any:
    """Parse JSON by the rules of the format: UTF-8, unique names, finite numbers."""
    if not data.startswith(b"{"):
        raise ValueError("its header does not describe tensors")
    return json.loads(
        data.decode("utf-8"), object_pairs_hook=_each_once, parse_constant=_refused
    )


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header has a name twice")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"its header has {constant}, which is no number")


def _read_entry(entry: Any, file: Path | None, offset: int) -> TensorHeader:
    """Read the header of one tensor.

    Raises:
        ValueError: it is not one, with the reason.
    """
    if not isinstance(entry, Mapping):
        raise ValueError("has no description")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    places: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"has a type that the format lacks, {dtype!r:.100}")
    if not _are_counts(shape, _MOST_AXES) or math.prod(shape) >= _LARGEST:
        raise ValueError(f"has no shape, but {shape!r:.100}")
    if not _are_counts(places, 2) or len(places) != 2:
        raise ValueError(f"has no place in the file, but {places!r:.100}")
    if (places[1] - places[0]) * 8 != math.prod(shape) * _BITS[dtype]:
        raise ValueError("has a size that is not that of its shape")
    start, stop = (offset + place for place in places)
    return TensorHeader(dtype, tuple(shape), start, stop, file)


def _are_counts(values: Any, most: int) -> bool:
    """Return whether this is a list of at most ``most`` non-negative integers."""
    return (
        isinstance(values, list | tuple)
        and len(values) <= most
        and all(type(value) is int and 0 <= value < _LARGEST for value in values)
    )


def _check_metadata(metadata: Any, path: Path) -> None:
    if metadata is None:
        return
    texts = metadata.values() if isinstance(metadata, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _damaged(path, "its __metadata__ does not map names to texts")


def _check_places(
    headers: Mapping[str, TensorHeader], path: Path, first: int, size: int
) -> None:
    """Refuse tensors that overlap, leave holes, or reach beyond the end."""
    end = max((h.stop for h in headers.values()), default=first)
    if size < end:
        raise _damaged(
            path, f"it ends after {size} of {end} bytes, so its download was cut short"
        )
    names: Iterable[str] = sorted(
        headers, key=lambda n: (headers[n].start, headers[n].stop)
    )
    place = first
    for name in names:
        if headers[name].start != place:
            what = "lies on another" if headers[name].start < place else "lies apart"
            raise _damaged(path, f"the tensor {name!r:.200} {what}")
        place = headers[name].stop
    if size != place:
        raise _damaged(path, f"it has {size} bytes, and its header tells of {place}")


def _damaged(path: Path, reason: str) -> MergeError:
    return MergeError(
        f"{path} cannot be read as safetensors: {reason}; download or save the model "
        "again"
    )
