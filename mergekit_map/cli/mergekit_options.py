"""mergekit's own options for the commands that merge, without its slow imports.

Importing mergekit takes seconds, too long before help or the first line of a command.
So the file that declares its options is run by itself. The modules that it needs only
when a merge starts are imported then; any other module that it imports is imported as
usual, more slowly. A table of our own would fall behind mergekit's.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from mergekit_map.cli.options import output_options, starting
from mergekit_map.types import DTYPES

MakeOptions: TypeAlias = "Callable[[str], MergeOptions]"

# What mergekit would end with a traceback.
_TYPES = {
    "random_seed": click.IntRange(0, 2**32 - 1),
    "num_threads": click.IntRange(1, 1024),
    "write_threads": click.IntRange(1, 1024),
    "lora_merge_dtype": click.Choice(DTYPES),
}
_SHOWN = {"quiet", "verbosity"}  # in the help of each command
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_HEAVY = ("torch", "transformers", "mergekit.common")


class MergeCommand(click.Command):
    """A command with mergekit's options, which have a page of help of their own.

    Its function gets ``make_options``, to be called when it merges: that prints a line
    on the activity before it imports mergekit.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += _mergekit_params()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with a function in the place of mergekit's options."""
        given = {name: ctx.params.pop(name) for name in MergeOptions.model_fields}
        output = output_options()
        output.quiet, output.verbose = given["quiet"], given["verbosity"] > 0
        ctx.params["make_options"] = functools.partial(_options_of, given)
        return super().invoke(ctx)


def _mergekit_params() -> list[click.Parameter]:
    params = _OPTIONS["add_merge_options"](lambda: None).__click_params__[::-1]
    for param in params:
        param.opts += {"verbosity": ["--verbose"], "quiet": ["-q"]}.get(param.name, [])
        param.type = _TYPES.get(param.name, param.type)
        param.hidden = param.name not in _SHOWN
    help_option = click.Option(
        ["--help-mergekit"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_mergekit_options,
        help="Show mergekit's options, which all work here, and exit.",
    )
    return [*params, help_option]


def _show_mergekit_options(ctx: click.Context, _: click.Parameter, given: Any) -> None:
    if given:
        formatter = ctx.make_formatter()
        for param in ctx.command.params:
            if isinstance(param, click.Option):
                param.hidden = not param.hidden  # the program ends with this page
        _OPTIONS["PrettyPrintHelp"].format_options(None, ctx, formatter)
        click.echo(formatter.getvalue().strip("\n"))
        ctx.exit()


def _options_of(given: Mapping[str, Any], doing: str) -> MergeOptions:
    with starting(None if given["quiet"] else f"{doing} and loading mergekit"):
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


def _import(name: str, *arguments: Any) -> ModuleType:
    if name not in _HEAVY:
        return builtins.__import__(name, *arguments)
    module = ModuleType(name)
    # It is imported when something else of it is used.
    vars(module)["__getattr__"] = lambda key: getattr(import_module(name), key)
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
    # It says which options there are; commands get mergekit's own.
    MergeOptions = _OPTIONS["MergeOptions"]
