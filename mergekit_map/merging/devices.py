"""The device for merging and evaluation: the requested one, or an available GPU.

Options without a device (``None``) leave the choice open; mergekit's own never do.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil
import torch
from mergekit.options import MergeOptions

from mergekit_map.errors import ConfigError
from mergekit_map.utils.text import bytes_in_words

# Of a device's memory, left to activations.
FOR_ACTIVATIONS = 0.1


def left_open(options: MergeOptions) -> MergeOptions:
    """Leave the choice of the device open."""
    return options.model_copy(update={"device": None})


def decided(options: MergeOptions, before: str | None = None) -> MergeOptions:
    """Return options with a device, chosen if it was open.

    The device of earlier measurements, ``before``, is chosen if it is available, so
    that a search can continue; otherwise mergekit's ``auto``, which does not know MPS.
    """
    if options.device is not None:
        return options
    if before is None or not is_there(before):
        before = best_device()
    return options.model_copy(update={"device": before})


def best_device() -> str:
    """Return the default device, for a search without a request or measurements."""
    return str(MergeOptions(device="auto").device)


def is_there(device: str) -> bool:
    """Return whether torch can compute on a device of this machine."""
    try:
        torch.zeros(1, device=device).item()  # ``meta`` has shapes and no values
    except (RuntimeError, AssertionError):  # the latter where it was built without
        return False
    return True


def check_device(options: MergeOptions) -> None:
    """Refuse a device that is not available.

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
    """Return the bytes per GPU for a model that fits on all GPUs but not on one.

    None where it fits on one, where one certain device was requested, or without a GPU.
    """
    if device != "cuda" or not is_there(device):
        return None
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    return shares(n_bytes, [free_memory(gpu) or 0 for gpu in gpus])


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that are free on a device; None where that is not known."""
    if device.type == "cuda" and torch.cuda.is_available():
        # With what torch reserves for new tensors.
        reserved = torch.cuda.memory_reserved(device)
        kept = reserved - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type != "cpu":
        return None
    return int(psutil.virtual_memory().available)


def shares(n_bytes: int, free: Sequence[int]) -> dict[int, int] | None:
    """Return the bytes that a model may take of each device.

    None where it fits on the first, or not on all together.
    """
    usable = [int((1 - FOR_ACTIVATIONS) * each) for each in free]
    if n_bytes <= usable[0] or n_bytes > sum(usable):
        return None
    return dict(enumerate(usable))


def device_in_words(device: str) -> str:
    """Describe a device, a GPU with its memory: ``NVIDIA H200 (cuda, 150 GB)``."""
    if device == "cpu":
        return "the CPU"
    if torch.device(device).type != "cuda" or not is_there(device):
        return device
    found = torch.cuda.get_device_properties(device)
    return f"{found.name} ({device}, {bytes_in_words(found.total_memory)})"


def choice_in_words(options: MergeOptions, *, was_open: bool) -> str | None:
    """Describe the device in use and the alternative; None where there is none.

    Args:
        options: With the device in use.
        was_open: Whether nobody requested a device.
    """
    device, best = str(options.device), best_device()
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
