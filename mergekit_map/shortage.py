"""What this machine lacks, in words: room on a disk, memory, open files, rights."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_AGAIN = "then type the same command again: what is measured is kept"
# What libraries that are no Python say, in the place of a number.
_SAID = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File too large": errno.EFBIG,
    "Too many open files": errno.EMFILE,
    "Read-only file system": errno.EROFS,
}
_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|bad_alloc|unable to allocate"
    r"|can't start new thread|failed to map",
    re.IGNORECASE,
)


def shortage(error: BaseException, place: Path | None = None, wanted: int = 0) -> str:
    """Say what is short, where and what to do; nothing where that is not the cause.

    Args:
        error: What went wrong, with what it came of.
        place: What was to be written, where the error does not say it.
        wanted: Bytes that are to fit there.
    """
    for cause in _causes(error):
        if _is_memory(cause):
            return (
                f"memory is short: {_first_line(cause)}; end other programs, or take a "
                f"smaller batch_size or fewer workers, {_AGAIN}"
            )
        number, path = _number(cause), _path(cause) or place
        if words := _in_words(number, path, wanted):
            return words
    return ""


def advised(error: BaseException) -> str:
    """Say what an error says, and what is short if it does not say that itself."""
    text, short = str(error), shortage(error)
    said = any(words in text for words in (_AGAIN, "can only be read", "is too long"))
    return text if said or not short else f"{text}; {short}"


def _in_words(number: int | None, path: Path | None, wanted: int) -> str:
    where = "a disk" if path is None else f"the disk of {path}"
    if number in {errno.ENOSPC, errno.EDQUOT}:
        free = "" if path is None else _free(path, wanted)
        return f"{where} is full{free}; make room there, {_AGAIN}"
    if number == errno.EFBIG:
        file = "a file" if path is None else str(path)
        return (
            f"{file} would be larger than files may be here{_limit('RLIMIT_FSIZE')}; "
            f"allow larger ones (ulimit -f unlimited), {_AGAIN}"
        )
    if number in {errno.EMFILE, errno.ENFILE}:
        return (
            f"too many files are open{_limit('RLIMIT_NOFILE')}; allow more (ulimit -n "
            f"4096), {_AGAIN}"
        )
    if number == errno.EROFS:
        file = "a disk" if path is None else str(path)
        return f"{file} is on a disk that can only be read; name another folder"
    if number == errno.ENAMETOOLONG:
        return f"the name of {path} is too long for a file; name it shorter"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    kinds = RuntimeError | ImportError
    return isinstance(error, kinds) and bool(_MEMORY.search(str(error)))


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    return next((number for words, number in _SAID.items() if words in text), None)


def _path(error: BaseException) -> Path | None:
    # Of two, as of a copy, the second is the one that is written.
    name = getattr(error, "filename2", None) or getattr(error, "filename", None)
    return Path(os.fsdecode(name)) if isinstance(name, str | bytes) else None


def _free(path: Path, wanted: int) -> str:
    with suppress(OSError, StopIteration):
        there = path.absolute()
        there = next(one for one in [there, *there.parents] if one.exists())
        free = shutil.disk_usage(there).free
        said = f": {_size(free)} are free"
        if wanted:
            return f"{said}, {_size(max(wanted - free, 1))} are missing"
        return said
    return ""


def _size(size: int) -> str:
    unit, name = (10**6, "MB") if size >= 10**7 else (1000, "kB")
    return f"{-(-size // unit):,} {name}"


def _limit(name: str) -> str:
    try:
        import resource
    except ImportError:  # Windows
        return ""
    soft, _ = resource.getrlimit(getattr(resource, name))
    if soft == resource.RLIM_INFINITY:
        return ""
    return f" (at most {soft:,}{' bytes' if name == 'RLIMIT_FSIZE' else ''})"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
