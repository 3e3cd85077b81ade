"""Options of most commands, their start and their output; imports nothing heavy."""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import click
from pydantic import BaseModel

from mergekit_map.cli.main import typed_command
from mergekit_map.config.problems import values_by_task
from mergekit_map.config.schema import SelectSpec
from mergekit_map.utils.text import printable

Decorator: TypeAlias = Callable[[Any], Any]
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
RUN = click.Path(path_type=Path, file_okay=False, exists=True)
CONFIG = click.Path(path_type=Path, dir_okay=False, exists=True)


def with_options(options: Iterable[Decorator]) -> Decorator:
    """Return a decorator that adds options in their order."""

    def add(command: Any) -> Any:
        for option in reversed([*options]):
            command = option(command)
        return command

    return add


def pairs_option(*names: str, metavar: str, help: str) -> Decorator:
    """Return an option of pairs such as ``fr=/models/fr``, given once for each."""

    def parse(_: object, __: object, texts: Sequence[str]) -> dict[str, str]:
        pairs = {name: value for name, _, value in (t.partition("=") for t in texts)}
        if len(pairs) < len(texts) or not all((*pairs.keys(), *pairs.values())):
            raise click.BadParameter(f"write it as {metavar}, once for each")
        return pairs

    return click.option(
        *names, multiple=True, metavar=metavar, callback=parse, help=help
    )


model_options = with_options(
    [
        pairs_option(
            "--model-path",
            "model_paths",
            metavar="NAME=FOLDER",
            help="The new FOLDER of a model that has moved, once for each. NAME is "
            "what the configuration calls it: its path, the last folder of that, or "
            "its Hub id.",
        ),
        click.option(
            "--trust-run",
            is_flag=True,
            help="Run the code that the configuration of a run folder names: python "
            "tasks, lm-eval files or tasks that run code, backends, arguments of vLLM.",
        ),
    ]
)


@contextmanager
def slow_imports(activity: str | None) -> Iterator[None]:
    """Print the activity on standard error; imports inside the context are faster.

    The garbage collector is paused: imports make no garbage, yet its passes take a
    third of their time, and again as long when the program ends.
    """
    if activity:
        click.echo(f"{activity} ...", err=True)
    n_modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > n_modules:
            gc.freeze()
        gc.enable()


def update_front(run: Path) -> None:
    """Write the front so far of an unfinished search, and print how far that is."""
    from mergekit_map.results.run_folder import RunFolder

    folder = RunFolder(run)
    if not folder.unfinished and not folder.choosing.exists():
        return
    with slow_imports(f"reading what there is of {run}"):
        from mergekit_map.workflows.select import look_at

        look_at(run)
    if (progress := folder.read_front().unfinished) is not None:
        click.echo(f"{progress.in_words} To go on, type its command again.", err=True)


def key_options(
    spec: type[BaseModel], **attributes_by_key: Mapping[str, Any]
) -> dict[str, Decorator]:
    """Return options for keys of a configuration, described as the keys are."""
    options = {}
    for key, attributes in attributes_by_key.items():
        description = " ".join(str(spec.model_fields[key].description).split())
        with_help = {"help": description.replace("`", ""), **attributes}
        options[key] = click.option(f"--{key.replace('_', '-')}", **with_help)
    return options


def joined(parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the attributes of an option whose parts may be options of their own."""
    return {
        "multiple": True,
        "callback": lambda _, __, texts: parse(",".join(texts)) if texts else None,
    }


SELECTION_OPTIONS = key_options(
    SelectSpec,
    prefer={
        **joined(values_by_task),
        "metavar": "TASK=WEIGHT,...",
        "help": "Weight of each task, such as math=2,code=1; a task that is left out "
        "counts 0. By default all tasks without a limit count.",
    },
    scalarization={"type": click.Choice(["sum", "achievement"])},
    knee={"is_flag": True},
    require={"metavar": "TASK=LIMIT,...", **joined(values_by_task)},
    not_worse_than={
        "metavar": "base|soup|NAME,...",
        **joined(lambda text: [name.strip() for name in text.split(",")]),
    },
    index={"type": click.IntRange(min=0)},
)
SELECTION_OPTIONS["limits"] = click.option(
    "--no-limits",
    "limits",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Drop the limits of the last choice; without this, --prefer and --knee keep "
    "them.",
)
selection_options = with_options(SELECTION_OPTIONS.values())


def _parse_workers(text: str) -> int | str:
    if not re.fullmatch(r"(ray:)?[1-9][0-9]{0,3}|ray", text):
        raise click.BadParameter("write a number from 1 to 9999, ray or ray:N")
    return text if text.startswith("ray") else int(text)


workers_option = click.option(
    "--workers",
    metavar="N|ray",
    type=_parse_workers,
    help="Measure with N processes, which share the GPUs or the threads of the CPU; or "
    "with a Ray cluster, a worker for each GPU (ray:4 for four). On CPUs, "
    "only rounding depends on N.",
)


@dataclass
class OutputOptions:
    """The output options of a command, and what it prints for programs."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    log: TextIO | None = None
    json_content: dict[str, Any] = field(default_factory=dict)
    quiet_path: Path | None = None  # that --quiet prints

    def write_log(self, text: str) -> None:
        """Add lines with the time to the log file, if there is one."""
        if self.log is not None:
            now = datetime.now().astimezone().isoformat(timespec="milliseconds")
            with suppress(OSError):  # a full disk, of which the screen tells
                for line in printable(text).splitlines():
                    print(now, line, file=self.log, flush=True)


def output_options() -> OutputOptions:
    """Return the output options of the running command."""
    context = click.get_current_context(silent=True)
    return OutputOptions() if context is None else context.ensure_object(OutputOptions)


def set_output(*, json: Mapping[str, Any], quiet: Path | None = None) -> None:
    """Set what --json and --quiet print in the end; later calls add to the JSON."""
    output = output_options()
    output.json_content.update(json)
    output.quiet_path = quiet or output.quiet_path


def _store(_: click.Context, param: click.Parameter, value: Any) -> None:
    setattr(output_options(), str(param.name), value)


_output_option = functools.partial(click.option, expose_value=False, callback=_store)
_LOG_FILE_AND_JSON = [
    _output_option(
        "--log-file",
        "log",
        type=click.File("a", encoding="utf-8"),
        metavar="FILE",
        help="Append a log with times to FILE.",
        hidden=True,  # a page of help has at most twenty options of ours
    ),
    _output_option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object for programs; all else goes to standard error.",
    ),
]
# Commands with mergekit's options have its --quiet and --verbose.
verbose_option = _output_option(
    "-v",
    "--verbose",
    "verbose",
    is_flag=True,
    help="Show the details of the answer, and the recipe.",
)
quiet_option = _output_option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Print nothing but the path of what was written, and errors.",
)


def with_output_options(command: Any) -> Any:
    """Add --log-file and --json, and print for programs; stands above other options."""

    @functools.wraps(command)
    def run_command(**arguments: Any) -> Any:
        output = output_options()
        output.write_log(f"started: {typed_command()}")
        try:
            with ExitStack() as stack:
                if output.quiet:
                    nowhere = stack.enter_context(open(os.devnull, "w"))
                    stack.enter_context(redirect_stdout(nowhere))
                    stack.enter_context(redirect_stderr(nowhere))
                elif output.as_json:
                    stack.enter_context(redirect_stdout(sys.stderr))
                code = command(**arguments)
        except BaseException as error:
            output.write_log(f"stopped: {type(error).__name__}: {error}")
            raise
        output.write_log("done")
        if output.as_json:
            content = {"version": 2, **output.json_content}
            click.echo(json.dumps(content, indent=1, allow_nan=False))
        elif output.quiet and output.quiet_path is not None:
            click.echo(output.quiet_path)
        return code

    return with_options(_LOG_FILE_AND_JSON)(run_command)
