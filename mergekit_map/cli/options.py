"""Options of most commands, and their start; imports nothing heavy."""

from __future__ import annotations

import gc
import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from pydantic import BaseModel

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, MissingModels, alike
from mergekit_map.utils.files import refuse_existing

T = TypeVar("T")
Decorator: TypeAlias = Callable[[Any], Any]
# Control characters, halves of characters, separators of lines.
_UNWRITABLE = {"Cc", "Cs", "Zl", "Zp"}


def with_options(options: Iterable[Decorator]) -> Decorator:
    """Return a decorator that adds options in their order."""

    def add(command: Any) -> Any:
        for option in reversed([*options]):
            command = option(command)
        return command

    return add


def text(value: str) -> str:
    """Return a value that can stand on a line of a configuration or a recipe."""
    if not value.strip():
        raise click.BadParameter(f"a name was expected, got {value!r}")
    strange = [c for c in value if unicodedata.category(c) in _UNWRITABLE]
    if strange:
        raise click.BadParameter(
            f"{value!r} has a character that no line of text can have "
            f"({strange[0]!r}); rename it, or write another name"
        )
    return value


class _Path(click.Path):
    """A path that fits on a line, as configurations, recipes and pages name it."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        return super().convert(text(os.fsdecode(value)), param, ctx)


PATH = _Path(path_type=Path)
FOLDER = _Path(path_type=Path, file_okay=False)
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


def _model_path(text: str) -> tuple[str, str]:
    """Parse ``fr=/models/french``."""
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise click.BadParameter(
            f"write it as NAME=FOLDER, for example fr=/models/fr; got {text!r}"
        )
    return name, folder


def _unique(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    values: dict[str, T] = {}
    for name, value in pairs:
        if name in values:
            raise click.BadParameter(f"{name} stands twice")
        values[name] = value
    return values


_model_path_option = click.option(
    "--model-path",
    "model_paths",
    multiple=True,
    metavar="NAME=FOLDER",
    type=_model_path,
    callback=lambda _ctx, _param, given: _unique(given),
    help="Where a model lies now, if not where the configuration says: NAME is its "
    "last folder there, or its whole path or Hub id. Once for each such model.",
)


model_options = with_options([_model_path_option, trust_option])


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


def values_by_task(text: str) -> dict[str, float | str]:
    """Parse ``math=2,code=1``; percentages stay text."""
    pairs = [[word.strip() for word in part.split("=")] for part in text.split(",")]
    try:
        return _unique(
            (task, v if v.endswith("%") else _number(v)) for task, v in pairs
        )
    except ValueError:
        message = f"write it as math=2,code=1; got {text!r}"
        raise click.BadParameter(message) from None


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def key_option(spec: type[BaseModel], name: str, **more: Any) -> Decorator:
    """Return the option for a key of a configuration, described as the key is."""
    about = " ".join(str(spec.model_fields[name].description).split())
    more = {"help": about.replace("`", ""), **more}
    return click.option(f"--{name.replace('_', '-')}", **more)


SELECTION_OPTIONS = {
    "prefer": key_option(
        SelectSpec,
        "prefer",
        metavar="TASK=WEIGHT,...",
        type=values_by_task,
        help="Weight of each task, such as math=2,code=1; all alike by default.",
    ),
    "scalarization": key_option(
        SelectSpec, "scalarization", type=click.Choice(["sum", "achievement"])
    ),
    "knee": key_option(SelectSpec, "knee", is_flag=True),
    "require": key_option(
        SelectSpec, "require", metavar="TASK=LIMIT,...", type=values_by_task
    ),
    "not_worse_than": key_option(
        SelectSpec, "not_worse_than", metavar="base|soup|NAME,...", type=_names
    ),
    "margin": key_option(SelectSpec, "margin", metavar="N", type=float),
    "limits": click.option(
        "--no-limits",
        "limits",
        is_flag=True,
        flag_value=False,
        default=True,
        help="Drop the limits of the last choice, which --prefer and --knee keep.",
    ),
    "index": key_option(SelectSpec, "index", type=click.IntRange(min=0)),
}
selection_options = with_options(SELECTION_OPTIONS.values())


def _workers(text: str) -> int | str:
    found = re.fullmatch(r"(?:(ray)(?::(?=.))?)?([1-9][0-9]{0,3})?", text)
    if not text or found is None:
        raise click.BadParameter(
            f"write a number from 1 to 9999, 'ray' or 'ray:N'; got {text!r}"
        )
    return text if found[1] else int(text)


workers_option = click.option(
    "--workers",
    metavar="N|ray",
    type=_workers,
    help="Let N processes measure, which share GPUs, or the threads of the CPU; or "
    "a Ray cluster, a worker for each GPU (ray:4 for four). What is found stays "
    "the same.",
)
