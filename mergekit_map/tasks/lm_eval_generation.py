"""A cache of generated answers, for other tasks with the same requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mergekit_map.tasks.base import fingerprint

Answer: TypeAlias = Callable[..., list[str]]  # generate_until of lm-eval's models


class Generations:
    """The generated answers of one model; forgotten when its weights change.

    All requests of a call are cached together, and none by itself: how they are
    batched moves an answer by its rounding, and a search that was stopped between two
    tasks must go on to the same numbers.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Forget all answers, as the model has changed."""
        self._known.clear()

    def remembered(self, generate: Answer, place: str) -> Answer:
        """Generate the answers that are not cached for the model called ``place``."""

        def answer(requests: Sequence[Any], *args: Any, **options: Any) -> list[str]:
            asked = fingerprint(place, [request.args for request in requests])
            if asked not in self._known:
                self._known[asked] = generate(requests, *args, **options)
            return list(self._known[asked])

        return answer
