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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars, warnings and log lines below errors of other libraries."""
    bars = datasets.is_progress_bar_enabled()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(without_bars())
        for logger in map(logging.getLogger, ("lm_eval", "transformers")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        data = logging.getLogger("datasets")  # what it logs, it raises as well
        stack.callback(data.setLevel, data.level)
        data.setLevel(logging.CRITICAL)
        datasets.disable_progress_bars()
        if bars:
            stack.callback(datasets.enable_progress_bars)
        yield


@contextlib.contextmanager
def interruptible(lm: Any) -> Iterator[None]:
    """Check for an interrupt before each forward pass of lm-eval's model."""
    model = getattr(lm, "model", None)
    if not isinstance(model, torch.nn.Module):
        yield
        return
    hook = model.register_forward_pre_hook(lambda *_: check_interrupt())
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def separate_randomness() -> Iterator[None]:
    """Seed the global generators as lm-eval does inside, and restore them after.

    The seeds are those of the ``lm_eval`` command, so a task that draws from a global
    generator, by sampling from the model or in its own code, draws the same each time.
    """
    python, torch_cpu = random.getstate(), torch.get_rng_state()
    numpy = np.random.get_state()  # noqa: NPY002 - the global state others draw from
    on_cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = torch.cuda.get_rng_state_all() if on_cuda else None
    try:
        random.seed(0)
        np.random.seed(1234)  # noqa: NPY002
        torch.manual_seed(1234)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(torch_cpu)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)
