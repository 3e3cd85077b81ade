"""Options for models and tasks, from which a configuration is written.

The configuration is kept beside the output of the command.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.options import FOLDER, check_paths, not_in_a_line
from mergekit_map.config.option_lines import PASSING, WRITTEN, is_unedited, signed
from mergekit_map.config.presets import PRESETS
from mergekit_map.utils.files import scratch_folder

_METHOD = "task_arithmetic"
_LONGEST_FILE = 1 << 20  # bytes
_NAMES = {  # option -> parameter
    "--base": "base",
    "--model": "models",
    "--text": "texts",
    "--task": "benchmarks",
    "--method": "method",
    "--dtype": "dtype",
}


def new_merge_options(command: Callable[..., None]) -> Any:
    """Add the options; the command gets them as a dictionary, ``given``."""

    @functools.wraps(command)
    def gathered(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _NAMES.values()}
        command(given=given, **arguments)

    decorated: Any = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def config_or_options(
    target: str | None, beside: str = ""
) -> Callable[[Callable[..., None]], Any]:
    """Add ``[CONFIG] TARGET`` and the options that may stand for CONFIG.

    The command gets ``config``, and the parameter named ``target``. The configuration
    from options is written beside the target, or to a temporary file without one.
    """
    metavar = f"[CONFIG] {beside}".strip()

    def add(command: Callable[..., None]) -> Any:
        @functools.wraps(command)
        def begin(given: dict[str, Any], paths: tuple[Path, ...], **rest: Any) -> None:
            wanted = 0 if target is None else 1
            config = _config_of(paths, wanted, beside, given)
            named = {target: paths[-1]} if target else {}
            check_paths(out=named.get("out"))  # before anything is written beside it
            if config is not None:
                command(config=config, **named, **rest)
                return
            with _written(given, named.get(str(target)), quiet=rest["quiet"]) as config:
                command(config=config, **named, **rest)

        decorated = new_merge_options(begin)
        argument = click.argument("paths", nargs=-1, type=FOLDER, metavar=metavar)
        return argument(decorated)

    return add


def filled_in(given: dict[str, Any]) -> list[tuple[str, str]]:
    """List the given options with the names of their parameters."""
    return [(option, name) for option, name in _NAMES.items() if given[name]]


def text_of(given: dict[str, Any], *, measured: bool, title: str = WRITTEN) -> str:
    """Write the configuration that options stand for, with a title on top.

    Raises:
        click.UsageError: models, or with ``measured`` tasks, are missing.
        ConfigError: a file or a benchmark is not there.
    """
    if not given["models"]:
        raise click.UsageError(
            "Missing option '--model': what is merged; once for each."
        )
    if measured and not given["texts"] and not given["benchmarks"]:
        raise click.UsageError(
            "Missing option '--text' or '--task': what the merge is to be good at."
        )
    from mergekit_map.config import template

    base = given["base"] or template.base_of_adapters(given["models"])
    if base is None and given["method"] in {None, _METHOD}:
        raise click.UsageError(
            "Missing option '--base': the model that the others were fine-tuned from."
        )
    tasks = template.new_tasks(given["texts"], given["benchmarks"])
    method = given["method"] or _METHOD
    merge = template.NewMerge(given["models"], base, method, given["dtype"])
    return template.new_config(merge, tasks, [title])


def _config_of(
    paths: tuple[Path, ...], wanted: int, target: str, given: dict[str, Any]
) -> Path | None:
    """Split configuration and target; the first is None where options replace it."""
    stated = [option for option, _ in filled_in(given)]
    if len(paths) > wanted + 1:
        raise click.UsageError(f"Got unexpected extra argument ({paths[wanted + 1]})")
    if len(paths) == wanted + 1:
        if stated:
            raise click.UsageError(
                f"{', '.join(stated)} and CONFIG both say what to do; leave out one of "
                f"them: is {paths[0]} a configuration?"
            )
        return paths[0]
    if len(paths) < wanted:
        raise click.UsageError(f"Missing argument '{target}'.")
    if not stated:
        missing = "'CONFIG'" if target == "" else f"'CONFIG' or '{target}'"
        raise click.UsageError(
            f"Missing argument {missing}. In the place of CONFIG there may be options: "
            "--base, --model, --text, --task."
        )
    return None


@contextmanager
def _written(
    given: dict[str, Any], target: Path | None, *, quiet: bool
) -> Iterator[Path]:
    if target is None:
        text = text_of(given, measured=True, title=PASSING)
        with scratch_folder() as folder:
            config = folder / "options.yml"
            config.write_text(text, encoding="utf-8")
            yield config
        return
    place = target.resolve() if target.name in {"", ".."} else target
    config = place.with_name(f"{place.name}.yml")
    _write(config, text_of(given, measured=True), target)
    if not quiet:
        click.echo(f"what these options stand for is in {config}", err=True)
    yield config


def _write(config: Path, text: str, target: Path) -> None:
    from mergekit_map.errors import ArtifactError
    from mergekit_map.utils.files import write_atomically

    text = signed(text)
    if config.exists():
        before = _beginning(config)
        if before == text:
            return
        if not is_unedited(before):
            command = click.get_current_context().info_name
            words = ["mergekit-map", str(command), str(config), str(target)]
            raise ArtifactError(
                f"{config}, where these options would be written, is another file or "
                f"was edited, and is left as it is; use it: {shlex.join(words)}, or "
                "remove it"
            )
    write_atomically(config, text)


def _beginning(path: Path) -> str:
    """Read the head of a file, as long as options could have written; no device."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(_LONGEST_FILE).decode("utf-8", errors="replace")


def _in_a_line(
    ctx: click.Context, param: click.Parameter, given: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Raise UsageError for values that are empty or cannot be written down."""
    for text in (given,) if isinstance(given, str) else given or ():
        if not text.strip():
            raise click.BadParameter(f"a name was expected, got {text!r}", ctx, param)
        if problem := not_in_a_line(text):
            raise click.BadParameter(f"{problem}; write another name", ctx, param)
    return given


_option = functools.partial(click.option, callback=_in_a_line)
_OPTIONS = [
    _option(
        "--base",
        metavar="MODEL",
        help="Without CONFIG: the model that the others were fine-tuned from, a folder "
        "or an id of the Hub.",
    ),
    _option(
        "--model",
        "models",
        multiple=True,
        metavar="MODEL",
        help="Without CONFIG: a model to merge, or a LoRA adapter; once for each.",
    ),
    _option(
        "--text",
        "texts",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Without CONFIG: measure the loss on this .txt or .jsonl file; once for "
        "each.",
    ),
    _option(
        "--task",
        "benchmarks",
        multiple=True,
        metavar="NAME",
        help=f"Without CONFIG: measure a benchmark ({', '.join(PRESETS)}), or any task "
        "of lm-eval, as TASK:METRIC or TASK:METRIC,FILTER.",
    ),
    _option(
        "--method",
        help=f"Without CONFIG: the merge method  [default: {_METHOD}]",
    ),
    _option(
        "--dtype",
        help="Without CONFIG: of the merge  [default: that of the base, or bfloat16]",
    ),
]
