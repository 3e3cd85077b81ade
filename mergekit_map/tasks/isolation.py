"""Isolation of other libraries' code: no terminal, randomness of its own."""

from __future__ import annotations

import contextlib
import logging
import random
import warnings
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import torch

from mergekit_map.tasks.lm_eval_patches import without_bars
from mergekit_map.utils.shutdown import check_interrupt

_LEVELS = {
    "lm_eval": logging.ERROR,
    "transformers": logging.ERROR,
    "datasets": logging.CRITICAL,  # what it logs, it raises as well
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, warnings and log lines below errors of other libraries."""
    bars = datasets.is_progress_bar_enabled()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(without_bars())
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        datasets.disable_progress_bars()
        if bars:
            stack.callback(datasets.enable_progress_bars)
        yield


def interruptible(lm: Any) -> contextlib.AbstractContextManager[object]:
    """Check for an interrupt before each forward pass of lm-eval's model."""
    model = getattr(lm, "model", None)
    if not isinstance(model, torch.nn.Module):
        return contextlib.nullcontext()
    return model.register_forward_pre_hook(lambda *_: check_interrupt())


@contextlib.contextmanager
def separate_randomness() -> Iterator[None]:
    """Seed the global generators as lm-eval does inside, and restore them after.

    The seeds are those of the ``lm_eval`` command, so a task that draws from a global
    generator, by sampling from the model or in its own code, draws the same each time.
    """
    python = random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002 - the global state others draw from
    on_cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if on_cuda else ()
    try:
        with torch.random.fork_rng(devices):
            random.seed(0)
            np.random.seed(1234)  # noqa: NPY002
            torch.manual_seed(1234)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
