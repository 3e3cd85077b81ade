"""How much memory this program uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mergekit_map.words import bytes_in_words


def memory_in_words() -> str:
    """Say what is used of the host's memory, and of the accelerator's if that is."""
    words = bytes_in_words(_resident())
    torch = sys.modules.get("torch")  # never imported for this
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        words += f", GPU {bytes_in_words(torch.cuda.memory_allocated())}"
    return words


def _resident() -> int:
    """Give what is resident now; where nobody says, the most that it was."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return pages * os.sysconf("SC_PAGE_SIZE")
