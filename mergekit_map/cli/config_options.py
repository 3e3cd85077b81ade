"""Options that stand for a configuration, or that override keys of one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from mergekit_map.cli.options import (
    CONFIG,
    FOLDER,
    SELECTION_OPTIONS,
    Decorator,
    key_options,
    with_options,
)
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.tasks import PRESETS
from mergekit_map.errors import ArtifactError
from mergekit_map.utils.files import (
    refuse_existing,
    scratch_folder,
    sha256,
    write_atomically,
)

_METHOD = "task_arithmetic"
_TITLE = "Written by mergekit-map from options; edit it, and name it in their place."
_SIGNATURE = "# as written: "  # and a digest of what stands above, which shows edits


def option_names(given: Mapping[str, Any]) -> list[str]:
    """List the options of models and tasks that were given."""
    return [f"--{name}" for name, value in given.items() if value]


def config_or_options(target: str | None = None) -> Decorator:
    """Add ``[CONFIG] TARGET`` and the options that may stand for CONFIG.

    The command gets ``config`` and the parameter named ``target``; with a target also
    ``settings``, the keys of CONFIG's map block that options override. A configuration
    from options is written beside the target, or to a temporary file without one.
    """
    arguments = [click.argument("configs", nargs=-1, type=CONFIG, metavar="[CONFIG]")]
    overriding: Mapping[str, Mapping[str, Decorator]] = {}
    if target is not None:
        arguments.append(click.argument(target, type=FOLDER))
        overriding = _SETTINGS

    def add(command: Any) -> Any:
        @functools.wraps(command)
        def begin(configs: tuple[Path, ...], **rest: Any) -> Any:
            given = {name: rest.pop(name) for name in NEW_MERGE_OPTIONS}
            settings = {
                block: {k: v for k in keys if (v := rest.pop(k)) is not None}
                for block, keys in overriding.items()
            }
            stated = option_names(given)
            if len(configs) + bool(stated) != 1:
                words = ", ".join([*map(str, configs), *stated]) or "neither"
                raise click.UsageError(
                    "One CONFIG was expected, or options in its place (--model, "
                    f"--base, --text, --task); got {words}"
                )
            if "out" in rest:
                refuse_existing(rest["out"])  # before a file is written beside it
            written = _written(given, settings, rest[target] if target else None)
            if target:
                rest["settings"] = settings
            with nullcontext(configs[0]) if configs else written as path:
                return command(config=path, **rest)

        options = [*NEW_MERGE_OPTIONS.values()]
        options += [option for keys in overriding.values() for option in keys.values()]
        return with_options([*arguments, *options])(begin)

    return add


def new_config_text(
    given: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str:
    """Write the configuration that options stand for.

    Raises:
        click.UsageError: the models are missing, or the method has no density.
    """
    if not given["model"]:
        raise click.UsageError(
            "Missing option '--model': what is merged; once for each."
        )
    from mergekit_map.workflows.init import NewMerge, new_config, new_tasks

    method = _METHOD if given["method"] is None else given["method"]
    if given["density"] is not None and method == _METHOD:  # mergekit ignores it
        raise click.UsageError(
            f"--density: {method} drops no weights; leave it out, or choose a method "
            "that does, such as --method ties"
        )
    merge = NewMerge(
        given["model"], given["base"], method, given["dtype"], given["density"]
    )
    tasks = new_tasks(given["text"], given["task"])
    return new_config(merge, tasks, _TITLE, settings)


def _signed(text: str) -> str:
    return f"{text}{_SIGNATURE}{sha256(text)[:8]}\n"


@contextmanager
def _written(
    given: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    target: Path | None,
) -> Iterator[Path]:
    """Write the configuration of options beside the target, or for a while."""
    if given["model"] and not given["text"] and not given["task"]:
        raise click.UsageError(
            "Missing option '--text' or '--task': what the merge should do well on."
        )
    if target is None:
        with scratch_folder() as folder:
            config = folder / "options.yml"
            config.write_text(new_config_text(given), encoding="utf-8")
            yield config
        return
    content = _signed(new_config_text(given, settings))
    name = "options" if target.name in {"", ".."} else target.name
    config = target.parent / f"{name}.yml"
    written = config.read_text(errors="replace") if config.exists() else content
    if written != _signed(written.rpartition(_SIGNATURE)[0]):
        raise ArtifactError(
            f"{config}, where these options would be written, is another file, was "
            "edited, or is of another version, and is left as it is; name it in their "
            "place, or remove it"
        )
    write_atomically(config, content)
    click.echo(f"wrote {config}", err=True)
    yield config


NEW_MERGE_OPTIONS = {
    "base": click.option(
        "--base",
        metavar="MODEL",
        help="The model that the others were fine-tuned from, a folder or an id of the "
        "Hub.",
    ),
    "model": click.option(
        "--model",
        multiple=True,
        metavar="MODEL",
        help="A model to merge, or a LoRA adapter; once for each.",
    ),
    "text": click.option(
        "--text",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Measure the loss on this .txt or .jsonl file; once for each.",
    ),
    "task": click.option(
        "--task",
        multiple=True,
        metavar="NAME",
        help=f"Measure a benchmark ({', '.join(PRESETS)}), or any task "
        "of lm-eval, as TASK:METRIC or TASK:METRIC,FILTER.",
    ),
    "method": click.option("--method", help=f"The merge method  [default: {_METHOD}]"),
    "density": click.option(
        "--density",
        type=click.FloatRange(0, 1, min_open=True),
        help="Share of each task vector to keep, for methods such as "
        "ties  [default: 0.5 for these]",
    ),
    "dtype": click.option(
        "--dtype", help="Dtype of the merge  [default: the base's, else bfloat16]"
    ),
}


def _bounds(text: str) -> dict[str, list[float]]:
    """Parse ``fr=0:1.2,de=-0.2:1``."""
    bounds: dict[str, list[float]] = {}
    try:
        for part in text.split(","):
            name, _, ends = part.rpartition("=")
            low, high = ends.split(":")
            if not name or name in bounds:
                raise ValueError(name)
            bounds[name] = [float(low), float(high)]
    except ValueError:
        raise click.BadParameter("write NAME=LOW:HIGH,..., each name once") from None
    return bounds


_SETTINGS = {
    "search": key_options(
        SearchSpec,
        evaluations={"type": click.IntRange(min=1)},
        hours={"type": click.FloatRange(0, min_open=True)},
        bounds={
            "metavar": "NAME=LOW:HIGH,...",
            "type": _bounds,
            "help": "Bounds of coefficients; 0 and 1 for those that are left out.",
        },
        holdout={"type": click.FloatRange(0.001, 0.99)},
        seed={"type": click.IntRange(min=0)},
    ),
    "select": {
        name: SELECTION_OPTIONS[name]
        for name in ("prefer", "require", "not_worse_than")
    },
}
new_merge_options = with_options(NEW_MERGE_OPTIONS.values())
