"""How much of a GPU an engine may take beside the model of this process."""

from __future__ import annotations

import math

import torch
from mergekit.options import MergeOptions

from mergekit_map.config.specs import MapBlock
from mergekit_map.errors import MergeError
from mergekit_map.merging.footprint import device_bytes
from mergekit_map.merging.space import MergeSpace
from mergekit_map.words import bytes_in_words

_MOST = 0.9  # what vLLM takes when it is alone
_ACTIVATIONS = 0.1  # of the GPU, left to what this process computes


def share_beside(total: int, free: int, wanted: int) -> float:
    """Give the share of a GPU that is left, rounded down to a hundredth.

    Args:
        total: Bytes that the GPU has.
        free: Bytes that are free now.
        wanted: Bytes that this process will want besides those it holds.
    """
    left = (free - wanted) / total - _ACTIVATIONS
    return max(0.0, min(_MOST, math.floor(100 * left) / 100))


def engine_share(
    space: MergeSpace, spec: MapBlock, options: MergeOptions, *, alone: bool
) -> float | None:
    """Give the share for an engine on the device of the merges; None on a CPU.

    ``alone`` says that no task is measured by the model of this process.

    Raises:
        MergeError: what is left does not hold the merge.
    """
    device = torch.device(str(options.device))
    if device.type != "cuda" or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(device)
    held, merge = device_bytes(space, spec, options)
    here = torch.cuda.memory_reserved(device)
    share = share_beside(total, free, 0 if alone else max(0, held - here))
    if share * total <= merge:
        raise MergeError(
            f"vLLM would have {bytes_in_words(int(share * total))} of {device}, and a "
            f"merge alone takes {bytes_in_words(merge)}; set 'task_vectors: memory' or "
            "'merge: disk' in the map block, or 'engine: hf', or use a GPU of its own"
        )
    return share
