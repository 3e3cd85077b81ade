"""The program ``mergekit-map``. Commands are imported when they are called.

Importing mergekit's options costs seconds, so this module imports click alone.
"""

from __future__ import annotations

import errno
import importlib
import io
import re
import shlex
import sys

import click

from mergekit_map._version import __version__
from mergekit_map.errors import MapError
from mergekit_map.utils.shutdown import ignore_signals, stopped_by
from mergekit_map.utils.text import printable

_TYPED = "mergekit_map.typed"  # the arguments of the program
_COMMANDS = {  # command, its module in commands/, and what it does
    "run": ("search", "Search, choose and merge, from options or one YAML."),
    "init": ("inspect", "Write a configuration to begin with."),
    "inspect": ("inspect", "Check models and plan before a search."),
    "search": (
        "search",
        "Evaluate merges and find the front; continues a stopped search.",
    ),
    "select": ("select", "Choose a point of the front and write its recipe."),
    "browse": ("select", "Walk along the front in the terminal; choose, merge, chat."),
    "merge": ("select", "Write the chosen merge as a checkpoint, and measure it."),
    "push": ("push", "Upload a merge to the Hub, private unless told otherwise."),
    "report": ("report", "Write one HTML page of a search, or of several."),
    "compare": (
        "report",
        "Run other search methods too, and compare: the tables of the MAP paper.",
    ),
    "schema": ("inspect", "Print the JSON Schema of a configuration, for editors."),
    "cache": ("inspect", "List and remove what is kept between searches."),
    "demo": ("search", "Do all of it on tiny models that are trained on this machine."),
}


class _LazyGroup(click.Group):
    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = f"{__package__}.commands.{_COMMANDS[cmd_name][0]}"
        command: click.Command = getattr(importlib.import_module(module), cmd_name)
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for text in args:
            # Python reads bytes that are no UTF-8 as lone surrogates.
            if re.search(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]", text):
                raise click.UsageError(f"{text!a} is not printable; rename the file")
        ctx.meta[_TYPED] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (MapError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # click ends quietly, as under ``| head``
            click.echo(f"error: {printable(str(error))}", err=True)
            code = MapError.exit_code
        except (KeyboardInterrupt, click.Abort) as error:
            reason, code = stopped_by(error)
            text = f"{reason}; to go on, type it again: {typed_command()}"
            click.echo(f"\n{printable(text)}", err=True)
        finally:
            ignore_signals()
        ctx.exit(code or 0)


def command_line(*words: object) -> str:
    """Return a command of this program, to be copied into a shell."""
    return shlex.join(["mergekit-map", *map(str, words)])


def typed_command() -> str:
    """Return the running command as it was typed."""
    return command_line(*click.get_current_context().meta.get(_TYPED, ()))


# click suggests the nearest of these names for an unknown one.
@click.group(
    cls=_LazyGroup,
    commands={name: click.Command(name) for name in _COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mergekit-map")
def main() -> None:
    """Find the trade-offs of a model merge.

    Most commands take CONFIG, a mergekit configuration with a map: block, which says
    what to measure.
    Start with: mergekit-map demo
    """
    for stream in (sys.stdout, sys.stderr):  # whose encoding may have no ±
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
