"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Give ``$MERGEKIT_MAP_HOME``, or the user's cache folder for this program."""
    own = os.environ.get("MERGEKIT_MAP_HOME")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "mergekit-map"
