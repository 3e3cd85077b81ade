"""The command line. Commands are imported when they are called for.

Importing mergekit's options costs seconds, so this module imports click alone.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shlex
import sys
from typing import Any

import click

from mergekit_map.errors import LostModels, MapError, nearest
from mergekit_map.version import __version__
from mergekit_map.words import printable

# name -> its line in the list; commands/NAME.py holds the command
_COMMANDS = {
    "run": "Search, select and merge: one YAML in, checkpoint out.",
    "init": "Write a configuration to begin with.",
    "inspect": "Check models and plan: before any money is spent.",
    "search": "Evaluate merges and find the front; continues a stopped run.",
    "select": "Choose a point of the front and write its recipe.",
    "browse": "Walk along the front in the terminal; choose, merge, try, push.",
    "merge": "Write the checkpoint of a selection.",
    "push": "Upload a merge to the Hub, private unless told otherwise.",
    "report": "Write one HTML page and pictures of a finished search.",
    "compare": "Hold searches against baselines: the paper's tables.",
    "schema": "Print the JSON Schema of a configuration, for editors.",
    "import-evolve": "Turn a mergekit-evolve configuration into one of ours.",
    "cache": "List, remove and bound what is kept between searches.",
    "demo": "Do all of it on models trained here, offline.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"{__package__}.commands.{name}")
        command: click.Command = getattr(module, name)
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
            formatter.write_dl(list(_COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = [*args]  # as they were typed
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except SystemExit as end:
            _end_without_others(end)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (MapError, OSError) as error:  # the latter: a full disk and the like
            text = str(error)
            if isinstance(error, LostModels):
                again = f"{shlex.join(['mergekit-map', *ctx.obj])} {error.options}"
                text = f"{error.message}\nIf they lie elsewhere, type:\n  {again}"
            click.echo(f"error: {printable(text)}", err=True)
            ctx.exit(MapError.exit_code)


def _end_without_others(end: SystemExit) -> None:
    """End now where threads that a user's function left running never would."""
    if "mergekit_map.tasks.guarding" not in sys.modules:
        return
    from mergekit_map.tasks.guarding import left_running

    if not left_running():
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mergekit-map")
def main() -> None:
    """Find the trade-offs of a model merge.

    CONFIG is the YAML you would hand to mergekit-yaml, plus a map: block that says what
    to measure. Start with: mergekit-map demo
    """


if __name__ == "__main__":
    main()
