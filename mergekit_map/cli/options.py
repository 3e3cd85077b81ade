"""Options of most commands, and their start; imports nothing heavy."""

from __future__ import annotations

import functools
import gc
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from mergekit_map.errors import ArtifactError, ConfigError, MissingModels, alike
from mergekit_map.utils.files import refuse_existing

# Control characters, halves of characters, separators of lines.
_UNWRITABLE = {"Cc", "Cs", "Zl", "Zp"}
_FOLDERS = {"run", "runs", "run_folder", "out"}  # what TAB offers folders for


class _Path(click.Path):
    """A path, completed by the shell as a folder where only a folder is valid.

    It fits on a line, as configurations, recipes and pages name it.
    """

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        if problem := not_in_a_line(os.fsdecode(value)):
            self.fail(f"{problem}; rename the file or folder", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,
        incomplete: str,
    ) -> list[CompletionItem]:
        kind = "dir" if param.name in _FOLDERS else "file"
        return [CompletionItem(incomplete, type=kind)]


def not_in_a_line(text: str) -> str:
    """Name the character that keeps a text out of a line of a file; "" if none."""
    strange = [c for c in text if unicodedata.category(c) in _UNWRITABLE]
    if not strange:
        return ""
    return f"{text!r} has a character that no line of text can have ({strange[0]!r})"


FOLDER = _Path(path_type=Path)
FILE = _Path(path_type=Path, dir_okay=False)

trust_option = click.option(
    "--trust-run",
    is_flag=True,
    help="Run the code that the configuration of a run folder names: python tasks, "
    "files of lm-eval tasks, backends.",
)


def typed_command() -> str:
    """Return the running command as it was typed."""
    words = click.get_current_context().find_root().obj or []
    return shlex.join(["mergekit-map", *words])


def print_missing_models(names: Sequence[str]) -> None:
    """Print the option to type for missing models that lie elsewhere."""
    if names:
        options = MissingModels("", names).options
        click.echo(f"If they lie elsewhere, type:\n  {typed_command()} {options}")


def _model_paths(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Parse options such as ``fr=/models/french``."""
    found: dict[str, str] = {}
    for text in given:
        name, _, folder = text.partition("=")
        if not name or not folder:
            message = (
                f"write it as NAME=FOLDER, for example fr=/models/fr; got {text!r}"
            )
            raise click.BadParameter(message, ctx, param)
        if name in found:
            raise click.BadParameter(f"{name} stands twice", ctx, param)
        found[name] = folder
    return found


model_path_option = click.option(
    "--model-path",
    "model_paths",
    multiple=True,
    metavar="NAME=FOLDER",
    callback=_model_paths,
    help="Where a model lies now, if not where the configuration says: NAME is its "
    "last folder there, or its whole path or Hub id. Once for each such model.",
)


def check_paths(
    *, config: Path | None = None, run: Path | None = None, out: Path | None = None
) -> None:
    """Check the paths of a command before anything is imported for it.

    Raises:
        ArtifactError: there is something where output should go, or no such run folder.
        ConfigError: there is no such configuration.
    """
    if out is not None:
        refuse_existing(out)
    if config is not None and not config.exists():
        like = _beside(config, lambda path: path.suffix in {".yml", ".yaml"})
        raise ConfigError(
            f"{config}: there is no such file; {like or 'check the path'}"
        )
    if config is not None and config.is_dir():
        raise ConfigError(f"{config}: is a folder; name the file in it")
    if run is not None and not run.is_dir():
        like = _beside(run, lambda path: (path / "evaluations.jsonl").exists())
        raise ArtifactError(
            f"{run}: there is no such folder, so there is no finished search; "
            f"{like or 'check the path,'} or search: mergekit-map search CONFIG "
            f"{shlex.quote(str(run))}"
        )


def _beside(path: Path, wanted: Callable[[Path], bool]) -> str:
    """Suggest an existing path like the missing one."""
    with suppress(OSError):
        known = [str(found) for found in path.parent.iterdir() if wanted(found)]
        return alike(str(path), known)
    return ""


@contextmanager
def starting(doing: str | None = None) -> Iterator[None]:
    """Print the activity on standard error, and import modules inside the context.

    The garbage collector is paused: imports make no garbage, yet its passes take a
    third of their time, and again as long when the program ends.
    """
    if doing:
        click.echo(f"{doing} ...", err=True)
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        gc.enable()


def readable_folder(run: Path) -> Path:
    """Return the folder to read; print how far an unfinished search is."""
    from mergekit_map.results.run_folder import RunFolder

    folder = RunFolder(run)
    if not folder.unfinished:
        if not folder.choosing.exists():
            return run
        from mergekit_map.workflows.atomic_selection import repaired_folder

        return repaired_folder(run).path
    with starting(f"{run} is not finished: reading what is measured"):
        from mergekit_map.results.search_plan import unfinished_in_words
        from mergekit_map.workflows.unfinished import look_at

        found = RunFolder(look_at(run))
    for sentence in unfinished_in_words(found, found.read_front()):
        click.echo(sentence, err=True)
    return found.path


def gathered(
    command: Callable[..., None], name: str, options: Mapping[str, Callable[..., Any]]
) -> Any:
    """Add options, by parameter; the command gets them as one dictionary, ``name``."""

    @functools.wraps(command)
    def begin(**arguments: Any) -> None:
        values = {parameter: arguments.pop(parameter) for parameter in options}
        command(**{name: values}, **arguments)

    decorated: Any = begin
    for option in reversed([*options.values()]):
        decorated = option(decorated)
    return decorated


def selection_options(command: Callable[..., None]) -> Any:
    """Add the options that choose a point; ``choice`` gets them for select_point."""
    return gathered(command, "choice", SELECTION_OPTIONS)


def _pairs(example: str) -> Callable[..., dict[str, float | str] | None]:
    """Parse options such as ``math=2,code=1``; percentages stay text."""

    def read(
        ctx: click.Context, param: click.Parameter, text: str | None
    ) -> dict[str, float | str] | None:
        if text is None:
            return None
        values: dict[str, float | str] = {}
        for part in text.split(","):
            task, _, value = (word.strip() for word in part.partition("="))
            if task in values:
                raise click.BadParameter(f"{task} stands twice", ctx, param)
            try:
                values[task] = value if value.endswith("%") else _number(value)
            except ValueError:
                message = f"write it as {example}; got {text!r}"
                raise click.BadParameter(message, ctx, param) from None
        return values

    return read


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _names(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> list[str] | None:
    """Parse names with commas between them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        message = f"write it as base or base,soup; got {text!r}"
        raise click.BadParameter(message, ctx, param)
    return names


SELECTION_OPTIONS = {
    "prefer": click.option(
        "--prefer",
        metavar="TASK=WEIGHT,...",
        callback=_pairs("math=2,code=1"),
        help="How much each task counts, for example math=2,code=1.",
    ),
    "scalarization": click.option(
        "--scalarization",
        type=click.Choice(["sum", "achievement"]),
        help="How the preference is used: the sum of the weighted tasks, or the "
        "weighted distance to the best on the worst task, which also reaches hollows "
        "of the front.",
    ),
    "knee": click.option(
        "--knee",
        is_flag=True,
        help="The point where leaving it costs more than it gains.",
    ),
    "require": click.option(
        "--require",
        metavar="TASK=LIMIT,...",
        callback=_pairs("math=0.65,code=95%"),
        help="Limits: a number is the least (the most, where lower is better) in the "
        "task's units, 95% a share of the best single model's gain over the base. Goes "
        "with --prefer or --knee; alone, the best of the other tasks.",
    ),
    "not_worse_than": click.option(
        "--not-worse-than",
        metavar="base|soup|NAME,...",
        callback=_names,
        help="Only what is on no task significantly worse than the base, the soup or a "
        "model.",
    ),
    "margin": click.option(
        "--margin",
        type=float,
        metavar="N",
        help="With --not-worse-than, instead of significance: better by so many "
        "standard errors at least; -1 lets it be worse by one.",
    ),
    "limits": click.option(
        "--no-limits",
        "limits",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Drop the limits of the last choice, which --prefer and --knee keep.",
    ),
    "index": click.option(
        "--index",
        type=click.IntRange(min=0),
        help="A point of the front by its number in front.csv.",
    ),
}


def workers_option(command: Callable[..., None]) -> Any:
    """Add the option; ``workers`` is a number, ``ray`` or ``ray:N``, or None."""

    @click.option(
        "--workers",
        metavar="N|ray",
        callback=_read,
        help="Let N processes measure, which share GPUs, or the threads of the CPU; or "
        "a Ray cluster, a worker for each GPU (ray:4 for four). What is found stays "
        "the same.",
    )
    @functools.wraps(command)
    def begin(workers: int | str | None, **arguments: Any) -> None:
        if isinstance(workers, int):
            from mergekit_map.workers.pool import start_forkserver

            start_forkserver()  # which imports while this process does, too
        command(workers=workers, **arguments)

    return begin


def _read(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> int | str | None:
    if text is None:
        return None
    found = re.fullmatch(r"(?:(ray)(?::(?=.))?)?([0-9]{1,4})?", text)
    if not text or found is None or (found[2] and int(found[2]) < 1):
        message = f"write a number from 1 to 9999, 'ray' or 'ray:N'; got {text!r}"
        raise click.BadParameter(message, ctx, param)
    return text if found[1] else int(found[2])
