"""mergekit's own options for the commands that merge, without its slow imports.

Importing mergekit takes seconds, too long before help or the first line of a command.
So the file that declares its options is run by itself. The modules that it needs only
when a merge starts are imported then; any other module that it imports is imported as
usual, more slowly. A table of our own would fall behind mergekit's.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import logging
import os
import re
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from mergekit_map.cli.options import check_paths, starting
from mergekit_map.errors import ConfigError
from mergekit_map.utils.shutdown import temporary

_USUAL_THREADS = 64  # may be asked for on any machine
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_HEAVY = ("torch", "transformers", "mergekit.common")


def merging(doing: str, *look: str) -> Callable[[Callable[..., None]], Any]:
    """Add mergekit's options, and print a line before mergekit is imported.

    Args:
        doing: The first activity of the command, with its arguments in braces.
        look: The arguments that are paths to check first: config, run, out.
    """

    def add_options(command: Callable[..., None]) -> Any:
        @functools.wraps(command)
        def begin(make: Callable[..., MergeOptions], **arguments: Any) -> None:
            check_paths(**{name: arguments[name] for name in look})
            said = doing.format(**{k: _named(v) for k, v in arguments.items()})
            merge_options = make(f"{said} and loading mergekit")
            command(merge_options, **arguments)

        return lazy_merge_options(begin)

    return add_options


def _named(argument: object) -> object:
    """Return the options' own name for a file that stands for them."""
    passing = isinstance(argument, Path) and argument.parent in temporary
    return "the options" if passing else argument


def lazy_merge_options(command: Callable[..., None]) -> Any:
    """Add mergekit's options, as a function that the command calls when it merges.

    The function takes a line on the activity and prints it before it imports mergekit.
    """

    @functools.wraps(command)
    def begin(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in MergeOptions.model_fields}
        command(functools.partial(_options_of, given), **arguments)

    with_options = _OPTIONS.add_merge_options(begin)
    vars(begin)["__click_params__"] = with_options.__click_params__
    return begin


def _options_of(given: Mapping[str, Any], doing: str) -> MergeOptions:
    with starting(None if given["quiet"] else doing):
        from mergekit import options

    size = _checked(given)
    merge_options = options.MergeOptions(**{**given, "out_shard_size": size})
    if not (given["device"] or merge_options.cuda):
        # To be decided by what is there, and by where a search was measured before.
        merge_options = merge_options.model_copy(update={"device": None})
    merge_options.apply_global_options()
    if merge_options.verbosity <= 0:
        _silence_libraries()
        merge_options = merge_options.model_copy(update={"quiet": True})
    return merge_options


def _checked(given: Mapping[str, Any]) -> int:
    """Check the options, which mergekit ends with a traceback; return the shard size.

    Raises:
        ConfigError: with all options that are out of range.
    """
    from mergekit_map.merging.validation import DTYPES

    threads = max(_USUAL_THREADS, os.cpu_count() or 1)
    problems = [
        f"--{name.replace('_', '-')} {given[name]}: a number from {least} to {most} "
        "was expected"
        for name, least, most in (
            ("random_seed", 0, 2**32 - 1),
            ("num_threads", 1, threads),
            ("write_threads", 1, threads),
        )
        if given[name] is not None and not least <= given[name] <= most
    ]
    size = re.fullmatch(r"([0-9]{1,15})([kKmMbB]?)", given["out_shard_size"])
    if size is None or not int(size[1]):
        problems.append(
            f"--out-shard-size {given['out_shard_size']}: a number of parameters was "
            "expected, such as 500M or 5B"
        )
    dtype = given["lora_merge_dtype"]
    if dtype is not None and dtype.removeprefix("torch.") not in DTYPES:
        known = ", ".join(DTYPES)
        problems.append(f"--lora-merge-dtype {dtype}: one of {known} was expected")
    if given["device"] is not None and not _is_device(given["device"]):
        problems.append(
            f"--device {given['device']}: a device was expected, such as cpu, cuda or "
            "cuda:1"
        )
    if problems or size is None:
        raise ConfigError("\n".join(problems))
    return int(size[1]) * _SIZES[size[2].lower()]


def _is_device(name: str) -> bool:
    import torch

    try:
        torch.device("cpu" if name == "auto" else name)
    except (RuntimeError, ValueError):
        return False
    return name != "meta"  # which holds no numbers


def _silence_libraries() -> None:
    """Allow warnings of this program only, and no progress bars of others."""
    import transformers

    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("mergekit_map").setLevel(logging.WARNING)


class _Later(ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _import(name: str, *arguments: Any) -> ModuleType:
    if name not in _HEAVY:
        return builtins.__import__(name, *arguments)
    module = _Later(name)
    # Sizes such as 5B stay text until mergekit reads them.
    vars(module)["parse_kmb"] = str
    return module


def _run_options() -> Any:
    package = importlib.util.find_spec("mergekit")
    assert package is not None, "mergekit is a dependency"
    path = Path(str(package.origin)).with_name("options.py")
    loader = SourceFileLoader(f"{__name__}.options", str(path))
    module = ModuleType(loader.name)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    loader.exec_module(module)
    return module


_OPTIONS = _run_options()
PrettyPrintHelp: type[click.Command] = _OPTIONS.PrettyPrintHelp
if TYPE_CHECKING:
    from mergekit.options import MergeOptions as MergeOptions
else:
    MergeOptions = _OPTIONS.MergeOptions  # says which there are; commands get the real
