"""Options that stand for a configuration, or that override keys of one."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.options import (
    CONFIG,
    FOLDER,
    SELECTION_OPTIONS,
    Decorator,
    joined,
    key_options,
    with_options,
)
from mergekit_map.config.schema import SearchSpec
from mergekit_map.config.tasks import PRESETS
from mergekit_map.config.yaml_file import Settings
from mergekit_map.errors import ArtifactError
from mergekit_map.utils.files import (
    refuse_existing,
    scratch_folder,
    sha256,
    write_atomically,
)

_METHOD = "task_arithmetic"
_TITLE = "Written by mergekit-map from options; edit it, and name it in their place."
_SIGNATURE = "# as written: "  # a digest of the text above follows, to detect edits


def option_names(given: Mapping[str, Any]) -> list[str]:
    """List the options of models and tasks that were given."""
    return [f"--{name}" for name, value in given.items() if value not in (None, ())]


def config_or_options(target: str | None = None) -> Decorator:
    """Add ``[CONFIG] TARGET`` and the options that may stand for CONFIG.

    The command gets ``config`` and the parameter named ``target``; with a target also
    ``settings``, the keys of CONFIG's map block that options override. A configuration
    from options is written beside the target, or to a temporary file without one.
    """
    decorators = [click.argument("configs", nargs=-1, type=CONFIG, metavar="[CONFIG]")]
    decorators += [click.argument(target, type=FOLDER)] if target else []
    overriding = _SETTINGS if target else {}
    for options in (NEW_MERGE_OPTIONS, *overriding.values()):
        decorators += options.values()

    def add(command: Any) -> Any:
        @functools.wraps(command)
        def run_command(configs: tuple[Path, ...], **arguments: Any) -> Any:
            given = {name: arguments.pop(name) for name in NEW_MERGE_OPTIONS}
            _require_one_source(configs, option_names(given), target)
            if "out" in arguments:
                refuse_existing(arguments["out"])  # before a file is written beside it
            settings = {
                block: {k: v for k in keys if (v := arguments.pop(k)) is not None}
                for block, keys in overriding.items()
            }
            path = arguments[target] if target else None
            written = _written_config(given, settings, path)
            with nullcontext(configs[0]) if configs else written as config:
                if target:
                    arguments["settings"] = settings
                return command(config=config, **arguments)

        return with_options(decorators)(run_command)

    return add


def _require_one_source(
    configs: Sequence[Path], options: Sequence[str], target: str | None
) -> None:
    if len(configs) + bool(options) != 1:
        nothing = f"only {target.upper()}" if target else "neither"
        words = ", ".join([*map(str, configs), *options]) or nothing
        raise click.UsageError(
            "One CONFIG was expected, or options in its place (--model, "
            f"--base, --text, --task); got {words}"
        )


def new_config_text(given: Mapping[str, Any], settings: Settings) -> str:
    """Write the configuration that options stand for."""
    if not given["model"]:
        text = "Missing option '--model': what is merged; once for each."
        raise click.UsageError(text)
    from mergekit_map.workflows.init import NewMerge, new_config, new_tasks

    method = _METHOD if given["method"] is None else given["method"]
    method = method.removeprefix("map_")
    density = given["density"]
    if density is not None and method == _METHOD:  # mergekit ignores it
        raise click.UsageError(
            f"--density: {method} drops no weights; leave it out, or choose a method "
            "that does, such as --method ties"
        )
    merge = NewMerge(given["model"], given["base"], method, given["dtype"], density)
    return new_config(merge, new_tasks(given["text"], given["task"]), _TITLE, settings)


def _sign(text: str) -> str:
    return f"{text}{_SIGNATURE}{sha256(text)[:8]}\n"


@contextmanager
def _written_config(
    given: Mapping[str, Any], settings: Settings, target: Path | None
) -> Iterator[Path]:
    if given["model"] and not given["text"] and not given["task"]:
        raise click.UsageError(
            "Missing option '--text' or '--task': what the merge should do well on."
        )
    content = new_config_text(given, settings)
    if target is None:
        with scratch_folder() as folder:
            config = folder / "options.yml"
            config.write_text(content, encoding="utf-8")
            yield config
        return
    config = Path(os.path.relpath(f"{os.path.abspath(target)}.yml"))
    if config.exists():
        text = config.read_text(encoding="utf-8", errors="replace")
        signed_part, _, _ = text.rpartition(_SIGNATURE)
        if text != _sign(signed_part):
            raise ArtifactError(
                f"{config}, where these options would be written, is another file, was "
                "edited, or is of another version, and is left as it is; name it in "
                "their place, or remove it"
            )
    write_atomically(config, _sign(content))
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
        help=f"Measure a benchmark ({', '.join(PRESETS)}), or a task "
        "or YAML of lm-eval, as TASK:METRIC[,FILTER].",
    ),
    "method": click.option("--method", help=f"The merge method  [default: {_METHOD}]"),
    "density": click.option(
        "--density",
        type=click.FloatRange(0, 1, min_open=True),
        help="Share of each task vector to keep, for methods such as "
        "ties  [default: 0.5 for these, 0.9 for breadcrumbs]",
    ),
    "dtype": click.option(
        "--dtype", help="Dtype  [default: that of a base in a folder, or bfloat16]"
    ),
}


def _parse_bounds(text: str) -> dict[str, list[float]]:
    """Parse ``fr=0:1.2,de=-0.2:1``; names may hold both signs."""
    found = re.findall("(.+?)=([^=:,]+):([^=:,]+)(?:,|$)", text)
    try:
        bounds = {name: [float(low), float(high)] for name, low, high in found}
        whole = ",".join(f"{name}={low}:{high}" for name, low, high in found)
        if not bounds or len(bounds) < len(found) or whole != text:
            raise ValueError(text)
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
            **joined(_parse_bounds),
            "help": "Bounds of coefficients; 0 and 1 for those that are left out.",
        },
        holdout={"type": click.FloatRange(0.001, 0.99)},
        seed={"type": click.IntRange(min=0)},
    ),
    "select": {
        n: SELECTION_OPTIONS[n] for n in ("prefer", "require", "not_worse_than")
    },
}
new_merge_options = with_options(NEW_MERGE_OPTIONS.values())
