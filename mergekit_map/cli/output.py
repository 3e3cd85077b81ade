"""Options of output: --quiet, --log-file and --json."""

from __future__ import annotations

import functools
import json
import os
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import click

from mergekit_map.cli.main import typed_command
from mergekit_map.cli.options import with_options
from mergekit_map.utils.text import redact


@dataclass
class OutputOptions:
    """The output options of a command, and its answer for programs."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    log: TextIO | None = None
    answer: dict[str, Any] = field(default_factory=dict)
    result: Path | None = None  # what it made

    def write(self, text: str) -> None:
        """Add a line to the log file, if there is one, with the time."""
        if self.log is not None:
            now = datetime.now().astimezone().isoformat(timespec="milliseconds")
            for line in redact(text).splitlines():
                print(now, line, file=self.log, flush=True)


def output_options() -> OutputOptions:
    """Return the output options of the running command."""
    context = click.get_current_context(silent=True)
    return OutputOptions() if context is None else context.ensure_object(OutputOptions)


def answer(result: Path | None = None, **content: Any) -> None:
    """Set the content that --json prints, and the path that --quiet prints."""
    known = output_options()
    known.answer.update(content)
    known.result = result or known.result


def _keep(_: click.Context, param: click.Parameter, given: Any) -> None:
    setattr(output_options(), str(param.name), given)


_option = functools.partial(click.option, expose_value=False, callback=_keep)
_LOG_FILE_AND_JSON = [
    _option(
        "--log-file",
        "log",
        type=click.File("a", encoding="utf-8"),
        metavar="FILE",
        help="Append a log with times to FILE.",
        hidden=True,  # a page of help has at most twenty options of ours
    ),
    _option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object for programs; all else goes to standard error.",
    ),
]
# Commands with mergekit's options have its --quiet and --verbose.
verbose_option = _option(
    "-v",
    "--verbose",
    "--verdicts",
    "verbose",
    is_flag=True,
    help="Show the details of the answer, and the recipe.",
)
quiet_option = _option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Print nothing but the path of what was written, and errors.",
)


def with_output_options(command: Any) -> Any:
    """Add --log-file and --json, and print the answer; stands above other options."""

    @functools.wraps(command)
    def begin(**arguments: Any) -> Any:
        known = output_options()
        known.write(f"started: {typed_command()}")
        try:
            with ExitStack() as stack:
                if known.quiet:
                    nowhere = stack.enter_context(open(os.devnull, "w"))
                    stack.enter_context(redirect_stdout(nowhere))
                    stack.enter_context(redirect_stderr(nowhere))
                elif known.as_json:
                    stack.enter_context(redirect_stdout(sys.stderr))
                code = command(**arguments)
        except BaseException as error:
            known.write(f"stopped: {type(error).__name__}: {error}")
            raise
        known.write("done")
        if known.as_json:
            content = {"version": 1, **known.answer}
            click.echo(json.dumps(content, indent=1, allow_nan=False))
        elif known.quiet and known.result is not None:
            click.echo(known.result)
        return code

    return with_options(_LOG_FILE_AND_JSON)(begin)
