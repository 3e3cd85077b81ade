"""The command line. Commands are imported when they are called for.

Importing mergekit's options costs seconds, so this module imports click alone. Ctrl-C
is heard from its first import on.
"""

from __future__ import annotations

from mergekit_map.stopping import (
    StopWords,
    exit_code,
    hear_no_more,
    stoppable,
    stopped_by,
    stopping_at_once,
)

with stopping_at_once():
    import atexit
    import errno
    import importlib
    import os
    import select
    import shlex
    import sys
    from collections.abc import Sequence
    from contextlib import suppress
    from typing import Any

    import click

    from mergekit_map.errors import LostModels, MapError, nearest
    from mergekit_map.leftovers import remove_scratch
    from mergekit_map.shortage import advised, shortage
    from mergekit_map.version import __version__
    from mergekit_map.words import printable

_UNREAD = 128 + 13  # as a shell says of who was ended by SIGPIPE

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

    def main(
        self, args: Sequence[str] | None = None, *others: Any, **extra: Any
    ) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(args, *others, **extra)
        extra["standalone_mode"] = False
        typed = sys.argv[1:] if args is None else [*args]
        with stoppable(for_good=args is None):
            try:
                _open_standard_streams()
                try:
                    code = super().main(args, *others, **extra) or 0
                except click.ClickException as error:
                    error.show()
                    code = error.exit_code
                code = _flushed(code)
            except (KeyboardInterrupt, click.Abort) as error:
                hear_no_more()
                # At a question click makes the one of the other.
                code = _stopped(error, typed)
        _end_without_others(code)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            remove_scratch()
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except SystemExit as end:  # rich ends so where nobody reads it
            if isinstance(end.__context__, BrokenPipeError):
                ctx.exit(_UNREAD)
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE and _unread():
                ctx.exit(_UNREAD)
            words = _sentence(error)
            if not words:
                raise
            if isinstance(error, LostModels):
                again = f"{shlex.join(['mergekit-map', *ctx.obj])} {error.options}"
                words = f"{error.message}\nIf they lie elsewhere, type:\n  {again}"
            _say(f"error: {printable(words)}")
            ctx.exit(MapError.exit_code)


def _sentence(error: Exception) -> str:
    """Say what a user can act on; nothing of what is a mistake of this program."""
    if isinstance(error, MapError):
        return advised(error)
    short = shortage(error)
    if short or not isinstance(error, OSError):
        return short
    return f"{error}; look at who may read and write there"


def _stopped(error: BaseException, typed: Sequence[str]) -> int:
    """Say that a command was stopped and how to go on, unless it says so itself."""
    stop = error
    if isinstance(error, click.Abort):
        stop = error.__cause__ or error.__context__ or error
    again = shlex.join(["mergekit-map", *typed])
    words = StopWords(
        f"{stopped_by(stop)}; to go on, type it again: {again}", aside=True
    )
    if stop.args and isinstance(stop.args[0], StopWords):
        (words,) = stop.args
    _say(f"\n{printable(words.text)}", aside=words.aside)
    return exit_code(stop)


def _say(text: str, *, aside: bool = True) -> None:
    with suppress(OSError):
        click.echo(text, err=aside)


def _open_standard_streams() -> None:
    """Keep files from becoming the standard streams where those are closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _unread() -> bool:
    """Tell whether who read what is said here is gone; then it is said to nobody."""
    gone = [number for number in (1, 2) if _reader_is_gone(number)]
    _write_nowhere(gone)
    return bool(gone)


def _reader_is_gone(number: int) -> bool:
    looking = select.poll()
    looking.register(number, 0)
    return any(event & select.POLLERR for _, event in looking.poll(0))


def _write_nowhere(numbers: Sequence[int]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(nowhere, number)
    os.close(nowhere)


def _flushed(code: int) -> int:
    """Write out what is said, and give the exit code: another one if that cannot be."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE and _unread():
            return code or _UNREAD
        _say(f"error: what was done is done, but standard output is lost: {error}")
        _write_nowhere([1])
        return code or MapError.exit_code
    return code


def _end_without_others(code: int) -> None:
    """End now where threads that a user's function left running never would."""
    if "mergekit_map.tasks.guarding" not in sys.modules:
        return
    from mergekit_map.tasks.guarding import left_running

    if left_running():
        atexit._run_exitfuncs()
        os._exit(code)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mergekit-map")
def main() -> None:
    """Find the trade-offs of a model merge.

    CONFIG is the YAML you would hand to mergekit-yaml, plus a map: block that says what
    to measure. Start with: mergekit-map demo
    """


if __name__ == "__main__":
    main()
