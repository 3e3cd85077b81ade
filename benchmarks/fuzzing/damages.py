"""Ways to damage a file: its bytes, its JSON, its tensors, what stands in its place."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from tiny_models import read_tensors, write_tensors

Change: TypeAlias = Callable[[Path], Any]  # of a file


def put(content: bytes) -> Change:
    """Write a file."""
    return lambda path: path.write_bytes(content)


def of_bytes(make: Callable[[bytes], bytes]) -> Change:
    """Change the bytes of a file."""
    return lambda path: path.write_bytes(
        make(path.read_bytes() if path.exists() else b"")
    )


def bent(bend: Callable[[dict[str, Any]], Any]) -> Change:
    """Change the JSON of a file, or the header of a file of tensors."""

    def change(path: Path) -> None:
        if path.suffix == ".safetensors":
            content, data = read_tensors(path)
            bend(content)
            write_tensors(path, content, data)
        else:
            content = json.loads(path.read_text())
            bend(content)
            path.write_text(json.dumps(content))

    return change


def rewritten(bend: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    """Change tensors, and write them as they should be written."""

    def change(path: Path) -> None:
        tensors = load_file(path)
        bend(tensors)
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(tensors, path, {"format": "pt"})

    return change


# Bytes in the place of a file, by what they are.
BYTES: dict[str, Change] = {
    "empty": put(b""),
    "spaces": put(b" " * 1000),
    "cut in the middle": of_bytes(lambda b: b[: len(b) // 2 + 3]),
    "without its end": of_bytes(lambda b: b[:-3]),
    "UTF-16": of_bytes(lambda b: b.decode(errors="replace").encode("utf-16")),
    "with a byte order mark": of_bytes(lambda b: b"\xef\xbb\xbf" + b),
    "no UTF-8 within": of_bytes(lambda b: b[:40] + b"\xff\xfe\xe4" + b[40:]),
    "a zero byte within": of_bytes(lambda b: b[:40] + b"\0" + b[40:]),
    "zeros alone": of_bytes(lambda b: bytes(len(b))),
    "a list": put(b"[]\n"),
    "an empty object": put(b"{}\n"),
    "deep lists": put(b"[" * 100_000 + b"\n"),
    "twice": of_bytes(lambda b: b + b),
    "HTML": put(b"<html><body>404 Not Found</body></html>\n"),
    "a pointer of Git LFS": put(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    ),
    "marks of a conflict": of_bytes(lambda b: b"<<<<<<< HEAD\n" + b + b">>>>>>> x\n"),
    "a number of 5000 digits": put(b"1" * 5000 + b"\n"),
    "a line of 20 MB": put(b'"' + b"a" * 20_000_000 + b'"\n'),
    "a pickle": put(pickle.dumps({"a": 1})),
}
# What a kill may leave of a log: its first lines, and the beginning of one.
TORN = {"empty", "cut in the middle", "without its end", "spaces", "zeros alone"}
# What commands may do without, or take as it is.
NOT_WRONG = {"with a byte order mark", "twice", "not there"}


def instead(make: Callable[[Path], Any]) -> Change:
    """Put something else in the place of a file."""

    def change(path: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return change


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # paths of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


# Something that is no file of its own where one is to be.
PLACES: dict[str, Change] = {
    "not there": instead(lambda _: None),
    "a folder": instead(Path.mkdir),
    "a pipe": instead(os.mkfifo),
    "a socket": instead(_socket),
    "a link to nowhere": instead(lambda p: p.symlink_to("nowhere")),
    "a link to itself": instead(lambda p: p.symlink_to(p.name)),
    "a link to /dev/zero": instead(lambda p: p.symlink_to("/dev/zero")),
    "a link to /dev/tty": instead(lambda p: p.symlink_to("/dev/tty")),
    "a link to /etc/passwd": instead(lambda p: p.symlink_to("/etc/passwd")),
    "a terabyte of zeros": instead(_endless),
}
