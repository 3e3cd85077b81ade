"""mergekit and its libraries, set up for a command; importing this takes seconds."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import transformers
from mergekit.common import parse_kmb
from mergekit.options import MergeOptions


def quiet_options(given: Mapping[str, Any]) -> MergeOptions:
    """Apply what was given on the command line; libraries are quiet unless asked."""
    size = parse_kmb(given["out_shard_size"])
    options = MergeOptions(**{**given, "out_shard_size": size})
    options.apply_global_options()
    if options.verbosity > 0:
        return options
    _silence_libraries()
    return options.model_copy(update={"quiet": True})


def _silence_libraries() -> None:
    """Let warnings through from this program only, and bars from nobody else."""
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("mergekit_map").setLevel(logging.WARNING)
