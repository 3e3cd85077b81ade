"""Functions of users, kept from changing what other tasks measure.

A function gets the model that all tasks measure. Whatever it changes is put back, and
said; where it became another model than the merge, its own number does not count.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from mergekit_map.errors import EvaluationError
from mergekit_map.pulse import remark
from mergekit_map.tasks.model_state import Changes, ModelState, copies_of
from mergekit_map.tasks.process_state import process_kept
from mergekit_map.words import listed

T = TypeVar("T")

_SHOWN = 4  # things that were changed
_LEFT: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # of functions of users


def left_running() -> list[str]:
    """Name what functions of users left running that keeps a program from its end."""
    return [t.name for t in _LEFT if t.is_alive() and not t.daemon]


class Guard:
    """Keeps a model as it is while functions of users measure it.

    Args:
        model: The model.
        written: Names of its tensors that are written with each merge; None: the model
            is loaded anew for each.
    """

    def __init__(self, model: nn.Module, written: Collection[str] | None = None):
        self._model, self._written = model, written
        self._copied: dict[str, torch.Tensor] | None = None
        self._sums: dict[str, tuple[int, ...]] | None = None  # of this merge
        self._is_watched = False  # whether something of a user may be at it now
        self.spoilt = False  # whether the merge must be made again

    def written_anew(self) -> None:
        """Hear that the model is another merge, as it should be."""
        if self.spoilt and self._copied:
            ModelState(self._model, self._copied).write_copied()
        self._sums, self.spoilt = None, False
        self._is_watched = any(thread.is_alive() for thread in _LEFT)

    def task_of_user(self, name: str, measure: Callable[[], T]) -> T:
        """Measure by a function of a user.

        Raises:
            EvaluationError: it made another model of the merge.
        """
        if self._copied is None:
            self._copied = copies_of(self._model, self._written)
        threads, before = set(threading.enumerate()), os.getpid()
        with self._kept(f"task {name!r}"):
            try:
                return measure()
            finally:
                if os.getpid() != before:
                    os._exit(0)  # a copy of this process that the function made
                self._watch(set(threading.enumerate()) - threads)

    def task_of_ours(self, measure: Callable[[], T]) -> T:
        """Measure by what changes nothing, though functions may be running still."""
        if not self._is_watched:
            return measure()
        with self._kept("what a function of an own task left running"):
            return measure()

    def _watch(self, threads: Collection[threading.Thread]) -> None:
        # A progress bar leaves one that does nothing but count.
        own = [t for t in threads if not type(t).__module__.startswith("tqdm.")]
        _LEFT.update(own)
        self._is_watched = self._is_watched or bool(own)

    @contextlib.contextmanager
    def _kept(self, who: str) -> Iterator[None]:
        state, process = ModelState(self._model, self._copied or {}), list[str]()
        if self._sums is None:
            self._sums = state.sums()
        failed = True
        try:
            with process_kept(process):
                yield
            failed = False
        finally:
            changes = state.restore()
            changes.harm += self._other_weights(state)
            changes.settings += process
            self.spoilt = self.spoilt or bool(changes.harm)
            _say(who, changes, failed=failed)

    def _other_weights(self, state: ModelState) -> list[str]:
        sums = state.sums()
        assert self._sums is not None
        other = [name for name, found in sums.items() if found != self._sums.get(name)]
        return [f"the weights {_some(other)}"] if other else []


def own_copy(tokenizer: Any) -> Any:
    """Give a tokenizer that may be changed; the same one if it cannot be copied."""
    try:
        return copy.deepcopy(tokenizer)
    except Exception:  # noqa: BLE001 - code of any tokenizer
        return tokenizer


def _say(who: str, changes: Changes, *, failed: bool) -> None:
    if changes.harm:
        words = _some(changes.harm)
        text = f"{who} changed the model that all tasks measure: {words}; "
        if failed:
            remark(f"{text}they are as they were again")
        else:
            raise EvaluationError(
                f"{text}they are as they were again, but this number is not of the "
                "merge; have the function put back what it changes, or change a copy "
                "(copy.deepcopy(model))"
            )
    if changes.settings:
        remark(f"{who} changed {_some(changes.settings)}, which was put back")


def _some(words: list[str]) -> str:
    more = len(words) - _SHOWN
    shown = [*words[:_SHOWN], *([f"{more} more"] if more > 0 else [])]
    return listed(shown)
