"""The program ``mergekit-map``. Commands are imported when they are called.

Importing mergekit's options costs seconds, so this module imports click alone.
"""

from __future__ import annotations

import errno
import importlib
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from mergekit_map._version import __version__
from mergekit_map.errors import MapError, MissingModels, nearest
from mergekit_map.utils.shutdown import exit_code, ignore_signals, stopped_by
from mergekit_map.utils.text import printable

# name -> its module in commands/, and its line in the list
_COMMANDS = {
    "run": ("search", "Search, choose and merge: one YAML in, checkpoint out."),
    "init": ("init", "Write a configuration to begin with."),
    "inspect": ("inspect", "Check models and plan before a search."),
    "search": (
        "search",
        "Evaluate merges and find the front; continues a stopped run.",
    ),
    "select": ("select", "Choose a point of the front and write its recipe."),
    "browse": (
        "browse",
        "Walk along the front in the terminal; choose, merge, chat, push.",
    ),
    "merge": ("select", "Write the checkpoint of a selection."),
    "push": ("push", "Upload a merge to the Hub, private unless told otherwise."),
    "report": ("report", "Write one HTML page and pictures of a finished search."),
    "compare": ("report", "Compare searches with baselines: the paper's tables."),
    "schema": ("init", "Print the JSON Schema of a configuration, for editors."),
    "cache": ("init", "List, remove and bound what is kept between searches."),
    "demo": ("search", "Do all of it on models trained here, offline."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(
            f"{__package__}.commands.{_COMMANDS[cmd_name][0]}"
        )
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}; {nearest(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = [*args]  # as they were typed
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except MissingModels as error:
            again = f"{shlex.join(['mergekit-map', *ctx.obj])} {error.options}"
            _fail(ctx, f"{error.message}\nIf they lie elsewhere, type:\n  {again}")
        except MapError as error:
            _fail(ctx, str(error))
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends quietly, as under ``| head``
                raise
            _fail(ctx, str(error))
        except (KeyboardInterrupt, click.Abort) as error:
            code = _print_stopped(error, ctx.obj)
        finally:
            ignore_signals()
        ctx.exit(code or 0)


def _fail(ctx: click.Context, text: str) -> NoReturn:
    click.echo(f"error: {printable(text)}", err=True)
    ctx.exit(MapError.exit_code)


def _print_stopped(error: BaseException, typed: Sequence[str]) -> int:
    """Print how to go on, and return the exit code."""
    # At a question, click raises Abort in the place of a KeyboardInterrupt.
    stop = error.__cause__ or error if isinstance(error, click.Abort) else error
    again = shlex.join(["mergekit-map", *typed])
    text = str(stop) or f"{stopped_by(stop)}; to go on, type it again: {again}"
    click.echo(f"\n{printable(text)}", err=True)
    return exit_code(stop)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mergekit-map")
def main() -> None:
    """Find the trade-offs of a model merge.

    CONFIG is a mergekit configuration with a map: block, which says what to measure.
    Start with: mergekit-map demo
    """
