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
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from mergekit_map.cli.config_options import NEW_MERGE_OPTIONS
from mergekit_map.cli.options import Decorator, check_paths, starting
from mergekit_map.types import DTYPES
from mergekit_map.utils.shutdown import temporary

_MOST_THREADS = max(64, os.cpu_count() or 1)
# What mergekit would end with a traceback.
_TYPES = {
    "random_seed": click.IntRange(0, 2**32 - 1),
    "num_threads": click.IntRange(1, _MOST_THREADS),
    "write_threads": click.IntRange(1, _MOST_THREADS),
    "lora_merge_dtype": click.Choice(DTYPES),
}
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_SHOWN = {"quiet", "verbosity"}  # options of mergekit in the help of each command
_SELDOM = {"log_file", "model_paths", "trust_run"}  # ours that errors name
_HEAVY = ("torch", "transformers", "mergekit.common")


class MergeCommand(click.Command):
    """A command with mergekit's options, which have a page of help of their own."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write our options, and those of mergekit that matter most."""
        _write_options(ctx, formatter, "In the place of CONFIG", "Options")


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, *titles: str
) -> None:
    records: dict[str, list[tuple[str, str]]] = {}
    for param in ctx.command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            records.setdefault(_title(str(param.name)), []).append(record)
    for title in titles:
        if title in records:
            with formatter.section(title):
                formatter.write_dl(records[title])


def _title(option: str) -> str:
    if option in NEW_MERGE_OPTIONS:
        return "In the place of CONFIG"
    if option in _SELDOM:
        return "Seldom needed"
    theirs = option in MergeOptions.model_fields and option not in _SHOWN
    return "Options of mergekit" if theirs else "Options"


def _show_mergekit_options(ctx: click.Context, _: click.Parameter, given: Any) -> None:
    if given:
        formatter = ctx.make_formatter()
        _write_options(ctx, formatter, "Options of mergekit", "Seldom needed")
        click.echo(formatter.getvalue().strip("\n"))
        ctx.exit()


_help_mergekit = click.option(
    "--help-mergekit",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_mergekit_options,
    help="Show mergekit's options, which all work here, and exit.",
)


def merging(doing: str, *look: str) -> Decorator:
    """Add mergekit's options, and print a line before mergekit is imported.

    Args:
        doing: The first activity of the command, with its arguments in braces.
        look: The arguments that are paths to check first: config, run, out.
    """

    def add_options(command: Any) -> Any:
        @functools.wraps(command)
        def begin(make: Callable[..., MergeOptions], **arguments: Any) -> Any:
            check_paths(**{name: arguments[name] for name in look})
            said = doing.format(**{k: _named(v) for k, v in arguments.items()})
            merge_options = make(f"{said} and loading mergekit")
            return command(merge_options, **arguments)

        return lazy_merge_options(begin)

    return add_options


def _named(argument: object) -> object:
    """Return the options' own name for a file that stands for them."""
    passing = isinstance(argument, Path) and argument.parent in temporary
    return "the options" if passing else argument


def lazy_merge_options(command: Any) -> Any:
    """Add mergekit's options, as a function that the command calls when it merges.

    The function takes a line on the activity and prints it before it imports mergekit.
    """

    @functools.wraps(command)
    def begin(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in MergeOptions.model_fields}
        return command(functools.partial(_options_of, given), **arguments)

    with_options = _OPTIONS["add_merge_options"](begin)
    vars(begin)["__click_params__"] = with_options.__click_params__
    for param in with_options.__click_params__:
        if param.name == "verbosity":
            param.opts.append("--verbose")
            param.help = "Show the details of the answer, and each step."
        if param.name == "quiet":
            param.opts, param.secondary_opts = ["-q", "--quiet"], ["--no-quiet"]
            param.help, param.show_default = "Print nothing but the result.", False
        param.type = _TYPES.get(param.name, param.type)
    return _help_mergekit(begin)


def _options_of(given: Mapping[str, Any], doing: str) -> MergeOptions:
    with starting(None if given["quiet"] else doing):
        from mergekit import options

    merge_options = options.MergeOptions(**given)
    if not (given["device"] or merge_options.cuda):
        # To be decided by what is there, and by where a search was measured before.
        merge_options = merge_options.model_copy(update={"device": None})
    merge_options.apply_global_options()
    if merge_options.verbosity <= 0:
        _silence_libraries()
        merge_options = merge_options.model_copy(update={"quiet": True})
    return merge_options


def _silence_libraries() -> None:
    """Allow warnings of this program only, and no progress bars of others."""
    import transformers

    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("mergekit_map").setLevel(logging.WARNING)
    # One library tells another so: peft, of transformers, for every adapter.
    warnings.simplefilter("ignore", FutureWarning)


class _Later(ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _import(name: str, *arguments: Any) -> ModuleType:
    if name not in _HEAVY:
        return builtins.__import__(name, *arguments)
    module = _Later(name)
    vars(module)["parse_kmb"] = _size
    return module


def _size(value: str | int) -> int:
    """Parse a number of parameters such as 5B, as mergekit does."""
    found = re.fullmatch(r"([0-9]{1,15})([kmb]?)", str(value).lower())
    if found is None or not int(found[1]):
        raise click.BadParameter(
            f"a number of parameters was expected, such as 500M or 5B; got {value!r}"
        )
    return int(found[1]) * _SIZES[found[2]]


def _run_options() -> dict[str, Any]:
    package = importlib.util.find_spec("mergekit")
    path = Path(str(package and package.origin)).with_name("options.py")
    scope = {"__builtins__": {**vars(builtins), "__import__": _import}}
    exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), scope)
    return scope


_OPTIONS = _run_options()
if TYPE_CHECKING:
    from mergekit.options import MergeOptions as MergeOptions
else:
    MergeOptions = _OPTIONS[
        "MergeOptions"
    ]  # says which there are; commands get the real
