"""The description that an index shows: the README, its links leading somewhere there.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _found(pattern: str, name: str) -> str:
    match = re.search(pattern, _read(name), re.M)
    if match is None:
        raise SystemExit(f"{name} has no line that matches {pattern}")
    return match[1]


def description() -> str:
    """Lead what is relative to the repository, as it is at the release."""
    source = _found(r'^Source = "(.*)"$', "pyproject.toml")
    version = _found(r'^__version__ = "(.*)"$', "mergekit_map/_version.py")

    def absolute(link: re.Match[str]) -> str:
        picture, label, target = link.groups()
        if re.match(r"https?:|#", target):
            return link[0]
        kind = "raw" if picture else "blob"
        return f"{picture}[{label}]({source}/{kind}/v{version}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", absolute, _read("README.md"))


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
)
