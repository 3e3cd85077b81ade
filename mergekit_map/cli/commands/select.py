"""``mergekit-map select``, ``merge`` and ``browse``: after a search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand, MergeOptions
from mergekit_map.cli.options import (
    FOLDER,
    RUN,
    model_options,
    output_options,
    quiet_option,
    selection_options,
    set_output,
    slow_imports,
    update_front,
    verbose_option,
    with_output_options,
)
from mergekit_map.errors import ArtifactError, ConfigError, MapError
from mergekit_map.utils.files import refuse_existing
from mergekit_map.utils.shutdown import deferred
from mergekit_map.utils.text import printable

if TYPE_CHECKING:
    from mergekit_map.browse.app import ExitAction
    from mergekit_map.browse.view import View
    from mergekit_map.results.run_folder import RunFolder
    from mergekit_map.workflows.chat import ChatModel, ChatModels, Message


@click.command()
@with_output_options
@quiet_option
@click.argument("run", type=RUN)
@selection_options
@verbose_option
def select(run: Path, **choice: Any) -> None:
    """Choose a point of the front of RUN and write RUN/recipe.yml.

    Nothing is measured, so choose as often as you like. Without an option, the last
    choice is shown again. If the search is not finished, you choose from what it has
    found so far.

    Example: mergekit-map select my-search --prefer math=2,code=1
    """
    update_front(run)
    with slow_imports(f"reading {run}"):
        from rich.console import Console

        from mergekit_map.cli.screen import show_front, show_steps
        from mergekit_map.workflows.select import select_point

    selection = select_point(run, **choice)
    recipe = run / "recipe.yml"
    answer = show_front(run, selection.front, recipe)
    set_output(json={"recipe": selection.recipe, "recipe_file": str(recipe)})
    if output_options().verbose:  # the details have the reason
        click.echo(f"\n{selection.recipe}")
    else:
        Console().print(f"\n{selection.front.reason}", markup=False, highlight=False)
    click.echo(f"The recipe is in {recipe}.")
    show_steps(run, answer)


@click.command(cls=MergeCommand)
@with_output_options
@click.argument("run", type=RUN)
@click.argument("out", type=FOLDER)
@selection_options
@model_options
def merge(
    make_options: MakeOptions,
    run: Path,
    out: Path,
    model_paths: dict[str, str],
    *,
    trust_run: bool,
    **choice: Any,
) -> None:
    """Write a point of the front as a checkpoint, and measure it.

    Without a choice, the last one is merged.

    Example: mergekit-map merge my-search my-model --prefer math=2,code=1
    """
    refuse_existing(out)
    if not _is_shown(run, choice):
        update_front(run)
    models = {"model_paths": model_paths, "trust_run": trust_run}
    merge_and_show(run, out, make_options(f"opening {run}"), choice, **models)


def _is_shown(run: Path, choice: Mapping[str, Any]) -> bool:
    """Whether a point is chosen by its number in a front of an unfinished search."""
    from mergekit_map.results.run_folder import RunFolder

    folder = RunFolder(run)
    with suppress(ArtifactError):
        shown = folder.read_front()
        others = any(choice[key] for key in choice.keys() - {"index", "limits"})
        number = shown.select.index if choice["index"] is None else choice["index"]
        by_number = not others and None not in (number, shown.unfinished)
        return by_number and not folder.choosing.exists()
    return False


def merge_and_show(
    run: Path, out: Path, options: MergeOptions, choice: dict[str, Any], **models: Any
) -> None:
    """Choose a point, write its checkpoint, and print the answer and the next steps."""
    from mergekit_map.cli import screen
    from mergekit_map.workflows.merge import merge_point
    from mergekit_map.workflows.select import select_point

    selection = select_point(run, **choice)
    with screen.TerminalReporter() as reporter:
        merged = merge_point(run, out, selection, options, [reporter], **models)
    answer = screen.show_front(run, merged.front, out)
    set_output(json={"model": str(out), "command": merged.command})
    click.echo(
        f"\nThis merge ({merged.point.weights}) is in the folder {out}.\n"
        f"Stock mergekit writes the same tensors with:\n  {merged.command}"
    )
    screen.show_steps(run, answer, out, screen.opening_options(run, options, **models))


@click.command(cls=MergeCommand)
@click.argument("run", type=RUN)
@model_options
def browse(make_options: MakeOptions, run: Path, **models: Any) -> None:
    """Walk along the front of RUN in the terminal, and choose a point.

    Save a point, merge it or chat with it; only the last two load models.
    Press ? for the keys. If the search is not finished, you see the front so far.

    Example: mergekit-map browse my-search
    """
    if not (os.isatty(0) and os.isatty(1)):  # standard input and output
        raise ConfigError(
            "browse wants a terminal to show the front in, and there is none here; "
            "select chooses a point without one, and report writes a page"
        )
    update_front(run)
    with slow_imports(f"opening {run}"):
        from mergekit_map.browse.app import Browser
        from mergekit_map.browse.view import View
        from mergekit_map.results.run_folder import open_run

    folder = open_run(run)
    view = View.of(folder.read_front())
    with ExitStack() as stack:
        actions = _MergeAndChat(folder, make_options, stack, models)
        while exit_action := Browser(folder, view).run():
            view = actions.perform(exit_action)


@dataclass
class _MergeAndChat:
    """The actions of the browser that load models, which stay loaded until a merge."""

    folder: RunFolder
    make_options: MakeOptions
    stack: ExitStack  # that closes the models
    models: Mapping[str, Any]  # where they are, and whether code may run

    def perform(self, exit_action: ExitAction) -> View:
        """Merge or chat; print the reason where that fails."""
        view = exit_action.view
        try:
            if exit_action.kind == "chat":
                model = self.chat_models(view.point.coefficients)
                _chat(model, f"point {view.at}: {view.point.weights}")
                return view
            view = self._merge(view)
        except (MapError, OSError, RuntimeError, click.ClickException) as error:
            click.echo(f"error: {printable(str(error))}", err=True)
        except (KeyboardInterrupt, click.Abort):
            click.echo("\nstopped", err=True)
        click.prompt("enter goes back to the front", "", show_default=False, err=True)
        return view

    def _merge(self, view: View) -> View:
        from mergekit_map.browse.view import View
        from mergekit_map.workflows.select import refuse_other_front

        run = self.folder.path
        default = printable(f"{run.resolve().name}-{view.at}")
        out = click.prompt("folder for the merge", default, type=FOLDER, err=True)
        out = Path(os.path.expanduser(out))  # as a shell would
        refuse_existing(out)
        options = self.make_options(f"opening {run}")
        vars(self).pop("chat_models", None)  # which may fill the memory
        self.stack.close()
        refuse_other_front(self.folder, view.at, view.point)
        merge_and_show(run, out, options, {"index": view.at}, **self.models)
        return View.of(self.folder.read_front())

    @cached_property
    def chat_models(self) -> ChatModels:
        """Open the models at the first chat, and at the first after a merge."""
        options = self.make_options(f"opening {self.folder.path}")
        from mergekit_map.workflows.chat import open_chat

        chat = open_chat(self.folder.path, options, **self.models)
        return self.stack.enter_context(chat)


def _chat(model: ChatModel, name: str) -> None:
    """Chat with a merge in the terminal, until a line is empty or input ends."""
    note = "" if model.chats else "; without a chat template it goes on with your text"
    click.echo(f"{name}{note}")
    click.echo("An empty line: back. Ctrl-C stops an answer.")
    messages: list[Message] = []
    while line := _read_line():
        asked = [*messages, {"role": "user", "content": line}]
        try:
            with deferred():
                answer = model.answer(
                    asked, lambda words: click.echo(printable(words), nl=False)
                )
        except KeyboardInterrupt:
            click.echo(" ... stopped; this turn is forgotten")
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - a template, tokenizer or model fails
            click.echo(f"error: {printable(str(error))}", err=True)
        else:
            click.echo()
            messages = [*asked, {"role": "assistant", "content": answer}]


def _read_line() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""
