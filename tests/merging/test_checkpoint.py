"""What stops mergekit from writing a checkpoint is said, also where it goes on."""

from __future__ import annotations

import logging
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_in_memory import OPTIONS, config, space_of

from mergekit_map.errors import MergeError
from mergekit_map.merging.checkpoint import write_checkpoint

MB = 1 << 20


def test_a_tokenizer_that_does_not_fit_on_the_disk_is_an_error_and_no_traceback(
    family: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = shutil.copytree(family["base"], tmp_path / "base")
    tokenizer = base / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " " * 2 * MB)
    space = space_of(config("task_arithmetic", {**family, "base": base}))
    out, merge = tmp_path / "out", space.config({"a": 0.3, "b": 0.7})

    with (
        caplog.at_level(logging.ERROR),
        files_of_at_most(MB),
        pytest.raises(MergeError, match=r"out cannot be written: .*File too large"),
    ):
        write_checkpoint(merge, out, OPTIONS)

    assert (out / "model.safetensors").stat().st_size < MB
    assert not caplog.records


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file be larger, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
