"""The errors a user of mergekit-map can act on; each class names what to look at."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable

from mergekit_map.utils.text import masked


class MapError(Exception):
    """Something the user can repair; the command line ends with exit code 2."""

    exit_code = 2

    def __init__(self, *words: object) -> None:
        super().__init__(*(masked(w) if isinstance(w, str) else w for w in words))


class ConfigError(MapError):
    """The YAML or a command-line option asks for something that cannot be done."""


class InvalidTask(ConfigError):
    """One task asks for something that is not there; ``load_tasks`` collects these.

    Its key is inside the task: ``("perplexity", "file")``, or ``()``.
    """

    def __init__(
        self, key: tuple[str | int, ...], messages: str | Iterable[str]
    ) -> None:
        self.key = key
        self.messages = (messages,) if isinstance(messages, str) else tuple(messages)
        super().__init__("\n".join(self.messages))


class LostModels(ConfigError):
    """Models lie elsewhere than a configuration says; ``names`` has which."""

    def __init__(self, message: str, names: Iterable[str]) -> None:
        self.message, self.names = message, tuple(names)
        super().__init__(f"{message}\nif they lie elsewhere, say so: {self.options}")

    @property
    def options(self) -> str:
        """Give the options to add to a command."""
        given = (f"{name}=FOLDER" for name in self.names)
        return " ".join(f"--model-path {shlex.quote(one)}" for one in given)


class DesignError(MapError):
    """The evaluated merges cannot identify the requested surrogate."""


class EvaluationError(MapError):
    """A task cannot be measured, or its measurements cannot be used."""


class MergeError(MapError):
    """The models cannot be merged as asked."""


class ArtifactError(MapError):
    """A run folder or an output folder cannot be read or written."""


class HubError(MapError):
    """The Hub cannot be reached, or refuses what it is asked for."""


def in_words(error: BaseException) -> str:
    """Write an error of others: its kind, and what it says, if it can say it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - of any kind, by whoever wrote it
        text = "it does not say why"
    return f"{type(error).__name__}: {text}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Phrase a suggestion for an unknown name: the nearest known ones, or them all."""
    options = sorted(set(known))
    if words := alike(name, options):
        return words
    shown = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    return f"known: {shown}"


def alike(name: str, known: Iterable[str]) -> str:
    """Suggest the known names nearest to an unknown one; nothing where none is near."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    if not close:
        return ""
    return "did you mean " + " or ".join(repr(option) for option in close) + "?"
