"""What the commands that merge share; importing it imports mergekit's options."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import transformers
from mergekit.options import MergeOptions, add_merge_options


def merging(command: Callable[..., None]) -> Any:
    """Add mergekit's own options and keep its libraries quiet unless asked."""

    @functools.wraps(command)
    def quiet(merge_options: MergeOptions, **arguments: Any) -> None:
        merge_options.apply_global_options()
        if merge_options.verbosity == 0:
            _silence_libraries()
            merge_options = merge_options.model_copy(update={"quiet": True})
        command(merge_options, **arguments)

    return add_merge_options(quiet)


def _silence_libraries() -> None:
    """Let warnings through from this program only, and bars from nobody else."""
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("mergekit_map").setLevel(logging.WARNING)
