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
from collections.abc import Callable, Mapping, Sequence
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
_SHOWN = {"quiet", "verbosity"}  # options of mergekit in the help of each command
_SELDOM = {"log_file", "model_paths", "trust_run"}  # ours that errors name
# Options that stand for a configuration.
_CONFIG = {"base", "models", "texts", "benchmarks", "method", "density", "dtype"}
_HEAVY = ("torch", "transformers", "mergekit.common")


class MergeCommand(click.Command):
    """A command with mergekit's options, which have a page of help of their own."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write our options, and those of mergekit that matter most."""
        apart = {*MergeOptions.model_fields, *_SELDOM} - _SHOWN
        ours = [p for p in self._options(ctx) if p.name not in apart]
        for title, is_config in (("In the place of CONFIG", True), ("Options", False)):
            part = [p for p in ours if (p.name in _CONFIG) is is_config]
            _write_options(ctx, formatter, title, part)

    def format_mergekit_options(self, ctx: click.Context) -> str:
        """Return the help on mergekit's options and on ours that are seldom needed."""
        formatter = ctx.make_formatter()
        theirs = [p for p in self._options(ctx) if p.name in MergeOptions.model_fields]
        ours = [p for p in self._options(ctx) if p.name in _SELDOM]
        _write_options(ctx, formatter, "Options of mergekit", theirs)
        _write_options(ctx, formatter, "Seldom needed", ours)
        return formatter.getvalue().strip("\n")

    def _options(self, ctx: click.Context) -> list[click.Option]:
        return [p for p in self.get_params(ctx) if isinstance(p, click.Option)]


def _write_options(
    ctx: click.Context,
    formatter: click.HelpFormatter,
    title: str,
    options: Sequence[click.Option],
) -> None:
    records = [record for one in options if (record := one.get_help_record(ctx))]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def _show_mergekit_options(ctx: click.Context, _: click.Parameter, given: Any) -> None:
    if given and isinstance(ctx.command, MergeCommand):
        click.echo(ctx.command.format_mergekit_options(ctx))
        ctx.exit()


_help_mergekit = click.option(
    "--help-mergekit",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_mergekit_options,
    help="Show mergekit's options, which all work here, and exit.",
)


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
    for param in with_options.__click_params__:
        if param.name == "verbosity":
            param.opts.append("--verbose")
            param.help = "Show the details of the answer, and each step."
        if param.name == "quiet":
            param.opts, param.secondary_opts = ["-q", "--quiet"], ["--no-quiet"]
            param.help, param.show_default = "Print nothing but the result.", False
    return _help_mergekit(begin)


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
if TYPE_CHECKING:
    from mergekit.options import MergeOptions as MergeOptions
else:
    MergeOptions = _OPTIONS.MergeOptions  # says which there are; commands get the real
