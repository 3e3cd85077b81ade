"""The whole lines of a log, as bytes; what a kill cut short is none."""

from __future__ import annotations

from pathlib import Path

from mergekit_map.errors import ArtifactError
from mergekit_map.files import read_whole
from mergekit_map.results.records import unreadable

_BEGINNING = b"{"  # of every line, which a kill may cut after any byte
_MOST_BYTES = 1 << 30  # of a log: hundreds of thousands of lines


def whole_lines(path: Path) -> list[bytes]:
    """Return the finished lines; none where there is no log yet.

    Raises:
        ArtifactError: the log cannot be read, or ends in what is not the beginning of
            a line.
    """
    *lines, rest = _content(path).split(b"\n")
    _refuse_odd(rest, path)
    return lines


def drop_torn_line(path: Path) -> None:
    """Drop the end of a log that was cut short by a kill, if there is one.

    Raises:
        ArtifactError: what stands there is not the beginning of a line.
    """
    content = _content(path)
    whole = content.rfind(b"\n") + 1
    if whole == len(content):
        return
    _refuse_odd(content[whole:], path)
    with path.open("r+b") as file:
        file.truncate(whole)


def _refuse_odd(rest: bytes, path: Path) -> None:
    """Refuse an end of a log that no kill leaves, such as the zeros of a bad disk."""
    if rest and not rest.startswith(_BEGINNING):
        number = _content(path).count(b"\n") + 1
        raise ArtifactError(
            f"{path}:{number}: not an evaluation, and not the beginning of one; "
            "restore the file, or remove this line"
        )


def _content(path: Path) -> bytes:
    try:
        return read_whole(path, _MOST_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise unreadable(path, error) from None
