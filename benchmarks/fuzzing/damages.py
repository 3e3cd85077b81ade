"""Ways to damage a file of a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from tiny_models import read_tensors, write_tensors

Change: TypeAlias = Callable[[Path], Any]  # of a folder


def put(name: str, content: bytes) -> Change:
    """Write a file."""
    return lambda folder: (folder / name).write_bytes(content)


def of_bytes(name: str, make: Callable[[bytes], bytes]) -> Change:
    """Change the bytes of a file."""
    return lambda folder: (folder / name).write_bytes(
        make((folder / name).read_bytes())
    )


def bent(name: str, bend: Callable[[dict[str, Any]], Any]) -> Change:
    """Change the JSON of a file, or the header of a file of tensors."""

    def change(folder: Path) -> None:
        path = folder / name
        if path.suffix == ".safetensors":
            content, data = read_tensors(path)
            bend(content)
            write_tensors(path, content, data)
        else:
            content = json.loads(path.read_text())
            bend(content)
            path.write_text(json.dumps(content))

    return change


def rewritten(name: str, bend: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    """Change tensors, and write them as they should be written."""

    def change(folder: Path) -> None:
        tensors = load_file(folder / name)
        bend(tensors)
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(tensors, folder / name, {"format": "pt"})

    return change


def places_taken(name: str) -> dict[str, Change]:
    """Put something that is no file where one is to be."""

    def instead(make: Callable[[Path], Any]) -> Change:
        def change(folder: Path) -> None:
            (folder / name).unlink(missing_ok=True)
            make(folder / name)

        return change

    return {
        "a folder": instead(Path.mkdir),
        "a pipe": instead(os.mkfifo),
        "a link to nowhere": instead(lambda p: p.symlink_to("nowhere")),
        "a link to itself": instead(lambda p: p.symlink_to(p.name)),
        "endless": instead(lambda p: p.symlink_to("/dev/zero")),
        "a terminal": instead(lambda p: p.symlink_to("/dev/tty")),
    }
