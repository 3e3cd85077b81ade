"""Configurations made from command-line options, recognised by their first lines.

While nobody has edited such a file, a mistake in it is a mistake in an option, and the
error message names that option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mergekit_map.utils.files import sha256

if TYPE_CHECKING:
    from mergekit_map.config.yaml_file import KeyPath

WRITTEN = "Written by mergekit-map from options; edit it, and name it in their place."
PASSING = "What the options of one command stand for, there as long as it runs."
_SIGNATURE = re.compile(r"^# \(as written: \w+\)\n", re.M)
_OPTIONS = {
    "merge_method": "--method",
    "parameters": "--method",
    "base_model": "--base",
    "models": "--model",
    "dtype": "--dtype",
}


def signed(text: str) -> str:
    """Add a digest of the text to its first comments, which shows later edits."""
    comments = re.match(r"(#.*\n)*", text)
    end = comments.end() if comments else 0
    return f"{text[:end]}# (as written: {sha256(text)[:8]})\n{text[end:]}"


def is_unedited(text: str) -> bool:
    """Whether a file is as ``signed`` returned it."""
    return signed(_SIGNATURE.sub("", text, count=1)) == text


def place_in_options(
    place: str, text: str, key: KeyPath, content: Mapping[str, Any]
) -> str:
    """Return the option that a key of a file comes from, with the key's place."""
    passing = text.startswith(f"# {PASSING}\n")
    if not passing and not (text.startswith(f"# {WRITTEN}\n") and is_unedited(text)):
        return place
    option = _OPTIONS.get(str(key[0])) if key else None
    if key[:2] == ("map", "tasks") and len(key) > 2:
        task = content["map"]["tasks"][key[2]]
        option = "--text" if "perplexity" in task else "--task"
    if passing:
        return option or "the options"
    return f"{place} ({option})" if option else place
