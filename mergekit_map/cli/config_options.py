"""Options that stand for a configuration, or that override keys of one."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from mergekit_map.cli.options import (
    FOLDER,
    SELECTION_OPTIONS,
    check_paths,
    gathered,
    not_in_a_line,
)
from mergekit_map.config.option_lines import PASSING, WRITTEN, is_unedited, signed
from mergekit_map.config.presets import PRESETS
from mergekit_map.errors import MapError
from mergekit_map.utils.files import scratch_folder

_METHOD = "task_arithmetic"
_LONGEST_FILE = 1 << 20  # bytes


def new_merge_options(command: Callable[..., None]) -> Any:
    """Add the options of models and tasks; the command gets them as ``given``."""
    return gathered(command, "given", _NEW_MERGE)


def option_names(given: dict[str, Any]) -> list[str]:
    """List the options of models and tasks that were given."""
    named = {"models": "model", "texts": "text", "benchmarks": "task"}
    return [f"--{named.get(name, name)}" for name in given if given[name]]


def config_or_options(target: str | None, beside: str = "") -> Callable[..., Any]:
    """Add ``[CONFIG] TARGET`` and the options that may stand for CONFIG.

    The command gets ``config`` and the parameter named ``target``; with a target also
    ``settings``, the keys of CONFIG's map block that options override. A configuration
    from options is written beside the target, or to a temporary file without one.
    """
    metavar = f"[CONFIG] {beside}".strip()

    def add(command: Callable[..., None]) -> Any:
        @functools.wraps(command)
        def begin(given: dict[str, Any], paths: tuple[Path, ...], **rest: Any) -> None:
            wanted = 0 if target is None else 1
            config = _config_of(paths, wanted, beside, given)
            named = {} if target is None else {target: paths[-1]}
            if target is not None:
                rest["settings"] = _blocks(rest["settings"])
            check_paths(out=named.get("out"))  # before anything is written beside it
            if config is not None:
                command(config=config, **named, **rest)
                return
            settings, place = rest.get("settings", {}), named.get(str(target))
            title = PASSING if place is None else WRITTEN
            text = new_config_text(given, settings, measured=True, title=title)
            beside_out = place and place.with_name(f"{place.name}.run")
            run = named.get("run") or rest.get("run_folder") or beside_out
            with _written(text, place, run, quiet=rest["quiet"]) as config:
                command(config=config, **named, **rest)

        decorated = new_merge_options(begin)
        if target is not None:
            decorated = gathered(decorated, "settings", _SETTINGS)
        return click.argument("paths", nargs=-1, type=FOLDER, metavar=metavar)(
            decorated
        )

    return add


def new_config_text(
    given: dict[str, Any],
    settings: dict[str, Any] | None = None,
    *,
    measured: bool = False,
    title: str = WRITTEN,
) -> str:
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
            "Missing option '--text' or '--task': what the merge should do well on."
        )
    from mergekit_map.config import template

    base = given["base"] or template.base_of_adapters(given["models"])
    method = given["method"] or _METHOD
    if base is None and method == _METHOD:
        raise click.UsageError(
            "Missing option '--base': the model that the others were fine-tuned from."
        )
    tasks = template.new_tasks(given["texts"], given["benchmarks"])
    merge = template.NewMerge(
        given["models"], base, method, given["dtype"], given["density"]
    )
    return template.new_config(merge, tasks, [title], settings or {})


def _blocks(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the given settings by their place in the map block."""
    blocks: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if value is not None:
            block = "select" if name in SELECTION_OPTIONS else "search"
            blocks.setdefault(block, {})[name] = value
    return blocks


def _config_of(
    paths: tuple[Path, ...], wanted: int, target: str, given: dict[str, Any]
) -> Path | None:
    """Split configuration and target; the first is None where options replace it."""
    stated = option_names(given)
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
    text: str, target: Path | None, run: Path | None, *, quiet: bool
) -> Iterator[Path]:
    """Write a configuration, and remove it if no search into ``run`` could start."""
    if target is None:
        with scratch_folder() as folder:
            config = folder / "options.yml"
            config.write_text(text, encoding="utf-8")
            yield config
        return
    place = target.resolve() if target.name in {"", ".."} else target
    config = place.with_name(f"{place.name}.yml")
    is_new = not config.exists()
    _write(config, signed(text), target)
    if not quiet:
        click.echo(f"wrote {config}", err=True)
    try:
        yield config
    except MapError:
        if is_new and run is not None and not run.exists():
            config.unlink(missing_ok=True)
        raise


def _write(config: Path, text: str, target: Path) -> None:
    from mergekit_map.errors import ArtifactError
    from mergekit_map.utils.files import write_atomically

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
_NEW_MERGE = {
    "base": _option(
        "--base",
        metavar="MODEL",
        help="The model that the others were fine-tuned from, a folder or an id of the "
        "Hub.",
    ),
    "models": _option(
        "--model",
        "models",
        multiple=True,
        metavar="MODEL",
        help="A model to merge, or a LoRA adapter; once for each.",
    ),
    "texts": _option(
        "--text",
        "texts",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Measure the loss on this .txt or .jsonl file; once for each.",
    ),
    "benchmarks": _option(
        "--task",
        "benchmarks",
        multiple=True,
        metavar="NAME",
        help=f"Measure a benchmark ({', '.join(PRESETS)}), or any task "
        "of lm-eval, as TASK:METRIC or TASK:METRIC,FILTER.",
    ),
    "method": _option(
        "--method",
        help=f"The merge method  [default: {_METHOD}]",
    ),
    "density": click.option(
        "--density",
        type=click.FloatRange(0, 1, min_open=True),
        help="Share of each task vector to keep, for methods such as "
        "ties  [default: 0.5 there]",
    ),
    "dtype": _option(
        "--dtype",
        help="Dtype of the merge  [default: that of the base, or bfloat16]",
    ),
}
_SETTINGS = {
    "evaluations": click.option(
        "--evaluations",
        type=click.IntRange(min=1),
        help="Merges to measure at most  [default: (N+1)(N+2) for N models]",
    ),
    "hours": click.option(
        "--hours",
        type=click.FloatRange(0, min_open=True),
        help="Hours to measure at most.",
    ),
    "holdout": click.option(
        "--holdout",
        type=click.FloatRange(0.001, 0.99),
        help="Share of the documents to keep apart, to confirm the chosen merge on.",
    ),
    "seed": click.option(
        "--seed",
        type=click.IntRange(min=0),
        help="Seed of the search  [default: 0]",
    ),
    **{name: SELECTION_OPTIONS[name] for name in ("prefer", "require")},
    "not_worse_than": SELECTION_OPTIONS["not_worse_than"],
}
