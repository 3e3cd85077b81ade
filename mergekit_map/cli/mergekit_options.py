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

from mergekit_map.cli.options import output_options, slow_imports
from mergekit_map.types import DTYPES

MakeOptions: TypeAlias = "Callable[[str], MergeOptions]"

_TYPES = {  # other values would end mergekit with a traceback
    "random_seed": click.IntRange(0, 2**32 - 1),
    "num_threads": click.IntRange(1, 1024),
    "write_threads": click.IntRange(1, 1024),
    "lora_merge_dtype": click.Choice(DTYPES),
}
_MORE_FLAGS = {"verbosity": ["--verbose"], "quiet": ["-q"]}  # as on other commands
_SHOWN = {  # in the help of each command
    "quiet": "Print nothing but the path of what was written, and errors.",
    "verbosity": "Show the details of the answer, and what is done meanwhile.",
}
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_IMPORTED_LATE = ("torch", "transformers", "mergekit.common")


class MergeCommand(click.Command):
    """A command with mergekit's options, which have a page of help of their own.

    Its function gets ``make_options``, to be called when it merges. With the name of an
    activity it prints that, imports mergekit and returns mergekit's options.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += _mergekit_params()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with a function in the place of mergekit's options."""
        given = {name: ctx.params.pop(name) for name in MergeOptions.model_fields}
        output = output_options()
        output.quiet, output.verbose = given["quiet"], given["verbosity"] > 0
        workers = ctx.params.get("workers")
        make_options = functools.partial(_make_options, given, workers)
        ctx.params["make_options"] = functools.cache(make_options)  # sets threads once
        return super().invoke(ctx)


def _mergekit_params() -> list[click.Parameter]:
    decorated = _MERGEKIT["add_merge_options"](lambda: None)
    params = decorated.__click_params__[::-1]  # click lists decorators from the last
    for param in params:
        param.opts += _MORE_FLAGS.get(param.name, [])
        param.type = _TYPES.get(param.name, param.type)
        param.hidden = param.name not in _SHOWN
        param.help = _SHOWN.get(param.name, param.help)
    help_option = click.Option(
        ["--help-mergekit"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_mergekit_options,
        help="Show mergekit's options and exit; all work here but --multi-gpu and "
        "--no-cuda (--device cpu).",
    )
    return [*params, help_option]


def _show_mergekit_options(ctx: click.Context, _: click.Parameter, given: Any) -> None:
    if given:
        formatter = ctx.make_formatter()
        for param in ctx.command.params:
            if isinstance(param, click.Option):
                param.hidden = not param.hidden  # the program ends with this page
        _MERGEKIT["PrettyPrintHelp"].format_options(None, ctx, formatter)
        click.echo(formatter.getvalue().strip("\n"))
        ctx.exit()


def _make_options(
    given: Mapping[str, Any], workers: int | str | None, activity: str
) -> MergeOptions:
    if given["transformers_cache"]:  # for all libraries, as the default is
        os.environ["HF_HUB_CACHE"] = given["transformers_cache"]
    if isinstance(workers, int):  # whose imports take as long
        from mergekit_map.workers.pool import start_forkserver

        start_forkserver()
    with slow_imports(None if given["quiet"] else f"{activity} and loading mergekit"):
        from mergekit import options

    merge_options = options.MergeOptions(**given)
    if not (given["device"] or merge_options.cuda):
        # Chosen later: a device of this machine, where a search was measured before.
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
    # Deprecations among libraries: peft uses old names of transformers, for example.
    warnings.simplefilter("ignore", FutureWarning)


def _import(name: str, *arguments: Any) -> ModuleType:
    """Import a module, or return a stand-in that imports a slow one when it is used."""
    if name not in _IMPORTED_LATE:
        return builtins.__import__(name, *arguments)
    module = ModuleType(name)
    vars(module)["__getattr__"] = lambda key: getattr(import_module(name), key)
    vars(module)["parse_kmb"] = _parse_number  # mergekit.common's, used at once
    return module


def _parse_number(value: str | int) -> int:
    """Parse a number of parameters such as 5B, as mergekit does."""
    match = re.fullmatch(r"([0-9]{1,15})([kmb]?)", str(value).lower())
    if match is None or not int(match[1]):
        raise click.BadParameter(
            f"a number of parameters was expected, such as 500M or 5B; got {value!r}"
        )
    return int(match[1]) * _FACTORS[match[2]]


def _run_mergekit_options() -> dict[str, Any]:
    package = importlib.util.find_spec("mergekit")
    path = Path(str(package and package.origin)).with_name("options.py")
    namespace = {"__builtins__": {**vars(builtins), "__import__": _import}}
    exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), namespace)
    return namespace


_MERGEKIT = _run_mergekit_options()
if TYPE_CHECKING:
    from mergekit.options import MergeOptions as MergeOptions
else:
    # Here for its fields alone: commands get mergekit's own class.
    MergeOptions = _MERGEKIT["MergeOptions"]
