"""Findings about a model before it is merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mergekit_map.utils.text import listed

# An error makes the merge impossible or meaningless. A warning may make it worse than
# expected. A note is good to know.
Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One problem, and what to do about it."""

    code: str  # names the cause for programs: rope-theta
    severity: Severity
    cause: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.cause}; {self.advice}" if self.advice else self.cause


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of the findings is an error."""
    return any(finding.severity == "error" for finding in findings)


def some(names: Sequence[str], shown: int = 3) -> str:
    """List the first of many names: ``'a', 'b' and 5 more``."""
    more = [f"{len(names) - shown} more"] if len(names) > shown else []
    return listed([*(f"{name!r:.200}" for name in names[:shown]), *more])
