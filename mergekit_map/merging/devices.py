"""The device that merges are made and measured on: as asked, or the GPU that is there.

Options without a device (``None``) leave it open; mergekit's own never are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mergekit.options import MergeOptions

from mergekit_map.errors import ConfigError
from mergekit_map.utils.text import bytes_in_words

# Of a device's memory, left to activations.
FOR_ACTIVATIONS = 0.1


def left_open(options: MergeOptions) -> MergeOptions:
    """Let the device be chosen by what is there."""
    return options.model_copy(update={"device": None})


def decided(options: MergeOptions, before: str | None = None) -> MergeOptions:
    """Choose a device where it is open.

    It is the one that was measured on ``before``, if it is there, so that a search goes
    on with what it knows; else mergekit's ``auto``, which knows no MPS.
    """
    if options.device is not None:
        return options
    if before is None or not is_there(before):
        before = best_device()
    return options.model_copy(update={"device": before})


def best_device() -> str:
    """Name the device that is taken where nobody asks and nothing was measured."""
    return str(MergeOptions(device="auto").device)


def is_there(device: str) -> bool:
    """Tell whether torch can put anything on a device here."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):  # the latter where it was built without
        return False
    return True


def check_device(options: MergeOptions) -> None:
    """Refuse a device that is not there.

    Raises:
        ConfigError: torch cannot use it.
    """
    device = str(options.device)
    if not is_there(device):
        raise ConfigError(
            f"--device {device} asks for a device that torch {torch.__version__} "
            "cannot use here; leave the option out for the one that is there, or write "
            "--device cpu"
        )


def shared_out(n_bytes: int, device: str) -> dict[int, int] | None:
    """Give the bytes of each GPU for a model that fits on all of them, and not on one.

    None where it fits on the one, where the device is a certain one, or no GPU.
    """
    if device != "cuda" or not is_there(device):
        return None
    return shares(n_bytes, [_free(i) for i in range(torch.cuda.device_count())])


def _free(gpu: int) -> int:
    """Count the bytes that are free, or that torch keeps for tensors to come."""
    kept = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
    return int(torch.cuda.mem_get_info(gpu)[0]) + kept


def shares(n_bytes: int, free: Sequence[int]) -> dict[int, int] | None:
    """Give what a model may take of each device, by what is free there."""
    usable = [int((1 - FOR_ACTIVATIONS) * each) for each in free]
    if n_bytes <= usable[0] or n_bytes > sum(usable):
        return None
    return dict(enumerate(usable))


def device_in_words(device: str) -> str:
    """Name a device, a GPU with its memory: ``NVIDIA H200 (cuda, 150 GB)``."""
    if device == "cpu":
        return "the CPU"
    if torch.device(device).type != "cuda" or not is_there(device):
        return device
    found = torch.cuda.get_device_properties(device)
    return f"{found.name} ({device}, {bytes_in_words(found.total_memory)})"


def to_device_in_words(device: str) -> str:
    """Say where something goes, if that is not where everything is."""
    return "" if device == "cpu" else f" to {device_in_words(device)}"


def choice_in_words(device: str, best: str, *, was_open: bool) -> str | None:
    """Say which device is used, and how to have another; None where there is none.

    Args:
        device: The one that is used.
        best: The one of ``best_device``.
        was_open: Whether nobody asked for one.
    """
    if device == best == "cpu":
        return None
    used = f"merges are made and measured on {device_in_words(device)}"
    if not was_open:
        return used
    if device == best:
        return f"{used}, since it is there; --device cpu forces the CPU"
    return (
        f"{used}, as they were before; --device {best} measures anew on "
        f"{device_in_words(best)}"
    )
