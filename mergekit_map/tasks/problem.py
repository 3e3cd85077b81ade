"""What can be wrong with a task before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mergekit_map.errors import ConfigError

Key = tuple[str | int, ...]  # inside the task: ("perplexity", "file"), or ()


@dataclass(frozen=True)
class TaskProblem:
    """One thing that is wrong with one task of a configuration, and where."""

    task: str
    key: Key
    message: str


class InvalidTask(ConfigError):
    """One task asks for something that is not there; ``load_tasks`` collects these."""

    def __init__(self, key: Key, messages: str | Iterable[str]) -> None:
        self.key = key
        self.messages = (messages,) if isinstance(messages, str) else tuple(messages)
        super().__init__("\n".join(self.messages))
