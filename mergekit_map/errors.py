"""The errors that a user of mergekit-map can act on, by where to look."""

from __future__ import annotations

from mergekit_map.utils.text import redact


class MapError(Exception):
    """An error that the user can repair; the command line exits with code 2."""

    exit_code = 2

    def __init__(self, *words: object) -> None:
        super().__init__(*(redact(w) if isinstance(w, str) else w for w in words))


class ConfigError(MapError):
    """The YAML or a command-line option requests something impossible."""


class InvalidTask(ConfigError):
    """One task requests something missing; ``load_tasks`` collects these.

    Its key is inside the task: ``("perplexity", "file")``, or ``()``.
    """

    def __init__(self, key: tuple[str | int, ...], message: str) -> None:
        self.key = key
        super().__init__(message)

    def __reduce__(self) -> tuple[type[InvalidTask], tuple[object, ...]]:
        return InvalidTask, (self.key, str(self))  # as a worker sends it


class DesignError(MapError):
    """The evaluated merges cannot identify the requested surrogate."""


class EvaluationError(MapError):
    """A task cannot be measured, or its measurements cannot be used."""


class MergeError(MapError):
    """The models cannot be merged as requested."""


class ArtifactError(MapError):
    """A run folder or an output folder cannot be read or written."""


class HubError(MapError):
    """The Hub cannot be reached, or refuses a request."""


def in_words(error: BaseException) -> str:
    """Return the kind and the message of another library's error."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - of a user's class, whose message fails
        return f"{type(error).__name__}: it does not say why"


def first_line(error: Exception) -> str:
    """Return the first line of another library's message; of the Hub's, its words."""
    told = getattr(error, "server_message", None) or error
    text = str(told).strip() or type(error).__name__  # none, for some that timed out
    return text.splitlines()[0].rstrip(".")
