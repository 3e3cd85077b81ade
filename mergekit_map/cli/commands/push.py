"""``mergekit-map push``: uploads a merge to the Hub."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from mergekit_map.cli.options import FOLDER, readable_folder, starting
from mergekit_map.cli.output import answer, is_terminal, with_output_options
from mergekit_map.cli.screen import new_table
from mergekit_map.errors import ConfigError, HubError
from mergekit_map.utils.text import bytes_in_words

if TYPE_CHECKING:
    from mergekit_map.hub.metadata import Licence, Licences
    from mergekit_map.hub.push import Plan

_MOST_ROWS = 8  # for files of one kind in one folder
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


def _parents(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    parents = {}
    for text in given:
        folder, _, hub_id = text.rpartition("=")
        if not folder or not hub_id:
            message = f"write it as FOLDER=owner/name; got {text!r}"
            raise click.BadParameter(message, ctx, param)
        parents[folder] = hub_id
    return parents


def _licence_id(text: str) -> str:
    if not _LICENCE.fullmatch(text.strip()):
        example = "an identifier of the Hub, such as apache-2.0"
        raise click.BadParameter(f"write {example}; got {text!r}")
    return text.strip()


@click.command()
@with_output_options()
@click.argument("out", type=FOLDER)
@click.argument("repo")
@click.option(
    "--private/--public",
    default=None,
    help="Who can see a new repository  [default: private]",
)
@click.option("--run", type=FOLDER, help="The folder of the search goes along, too.")
@click.option(
    "--license",
    "licence",
    metavar="ID",
    callback=lambda _ctx, _param, text: text and _licence_id(text),
    help="Licence of the merge, such as apache-2.0 or llama3.1  [default: that of "
    "the card, or of all parents if they have the same; else you are asked]",
)
@click.option(
    "--parent",
    "parents",
    metavar="FOLDER=ID",
    multiple=True,
    callback=_parents,
    help="What a local model is called on the Hub; may be given for each.",
)
@click.option(
    "--message",
    default="Upload a merge made with mergekit-map",
    help="The message of the commit.",
)
@click.option("--yes", is_flag=True, help="Upload without asking, for scripts.")
@click.option(
    "--dry-run", is_flag=True, help="Show the files and the model card; upload nothing."
)
def push(
    *,
    out: Path,
    repo: str,
    private: bool | None,
    run: Path | None,
    licence: str | None,
    parents: Mapping[str, str],
    message: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Upload the merge in OUT to the Hub as REPO, private unless told otherwise.

    It shows the files, where they go and who will see them, and asks before it uploads.
    No path of this machine is uploaded: models go by their Hub id, or by the name of
    their folder. An interrupted upload continues. The login is that of: hf auth login

    Example: mergekit-map push my-model me/my-model --run my-search
    """
    with starting(f"reading {out} and asking the Hub"):
        from huggingface_hub import utils

        from mergekit_map.hub.push import PushOptions, open_hub, plan_push, upload

    run = None if run is None else readable_folder(run)

    def ask(licences: Licences) -> Licence:
        return _ask_licence(licences, interactive=not yes and is_terminal(sys.stdin))

    utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not is_terminal(sys.stderr):
        utils.disable_progress_bars()  # type: ignore[attr-defined]
    options = PushOptions(repo, private, licence, parents)
    refused = None
    try:
        api = open_hub()
        plan = plan_push(out, run, options, api, None if dry_run else ask)
    except HubError as error:
        refused = error
        plan = plan_push(out, run, options, None, None)
    _show(plan)
    url = None
    if dry_run or refused:
        click.echo(f"\n{plan.card}")
    if dry_run:
        why = f" The Hub was not asked: {refused}" if refused else ""
        click.echo(f"Nothing was uploaded.{why}")
    elif refused:
        raise refused
    else:
        _confirm(plan, private=private, yes=yes)
        url = upload(api, plan, message)
        said = f"holds the merge: {url}" if url else "holds all of this already."
        click.echo(f"{plan.target.url} {said}")
    answer(
        repository=plan.target.url,
        url=url,
        private=plan.private,
        files=[file.path for file in plan.files],
        bytes=sum(file.size for file in plan.files),
    )


def _ask_licence(licences: Licences, *, interactive: bool) -> Licence:
    from mergekit_map.hub.metadata import Licence

    listing = "\n".join(
        f"  {model}: {known or 'unknown'}" for model, known in licences.items()
    )
    if not interactive:
        raise ConfigError(
            "nothing was uploaded: the parents do not have one known licence; add "
            f"--license ID, such as apache-2.0 or other; the parents have:\n{listing}"
        )
    click.echo(
        "The parents do not have one known licence, so the merge has none by itself:\n"
        f"{listing}\nIt must be one that all of theirs allow."
    )
    asked = (
        "Licence of the merge (an identifier of the Hub, such as apache-2.0 or other)"
    )
    return Licence(click.prompt(asked, value_proc=_licence_id))


def _show(plan: Plan) -> None:
    console = Console()
    table = new_table(texts=["file"], numbers=["size"])
    table.add_column("")
    by_path = {file.path: file for file in plan.files}
    for name, paths in _grouped(list(by_path)).items():
        files = [by_path[path] for path in paths]
        size = bytes_in_words(sum(file.size for file in files))
        rewritten = any(isinstance(file.content, bytes) for file in files)
        note = "without local paths" if rewritten else ""
        if name == "README.md":
            note = "model card"
        table.add_row(*map(Text, (name, size, note)))
    for name in _grouped(plan.removed):
        table.add_row(Text(name), "", "removed: of an earlier upload")
    console.print(table)
    parents = [f"{m} {known or 'unknown'}" for m, known in plan.licences.items()]
    licence = plan.licence or "you are asked for it at the upload"
    size = bytes_in_words(sum(file.size for file in plan.files))
    lines = [
        f"{len(plan.files)} files, {size}, to {plan.target.url}",
        _visibility(plan),
        f"Licence: {licence}; of the parents: {', '.join(parents)}",
        *_unnamed(plan),
        *([f"Not uploaded: {', '.join(plan.left_out)}"] if plan.left_out else []),
    ]
    for line in lines:
        console.print(Text() + line, soft_wrap=True)


def _unnamed(plan: Plan) -> list[str]:
    local = [name for name in plan.licences if "/" not in name]
    typed = [f"  --parent {shlex.quote(name)}=owner/name" for name in local]
    title = "Not in base_model, as no Hub id is known; if there is one, add:"
    return [title, *typed] if typed else []


def _grouped(files: Sequence[str]) -> dict[str, list[str]]:
    """Group many files of a kind in one folder, such as recipes, into one row."""
    kinds = Counter(map(_kind, files))
    groups: dict[str, list[str]] = {}
    for file in files:
        kind = _kind(file)
        many = not kind.startswith("*") and kinds[kind] > _MOST_ROWS
        name = f"{kind} ({kinds[kind]} files)" if many else file
        groups.setdefault(name, []).append(file)
    return groups


def _kind(file: str) -> str:
    path = PurePosixPath(file)
    return str(path.with_name(f"*{path.suffix}"))


def _visibility(plan: Plan) -> Text:
    who = "private: only its owners see it" if plan.private else "PUBLIC"
    if not plan.target.asked:
        return Text(f"If the repository is new, it will be {who}.")
    there = plan.target.private is not None
    state = "there already and stays" if there else "new and will be"
    if plan.private:
        return Text(f"The repository is {state} {who}.")
    return Text(f"The repository is {state} {who}: everybody sees it.", "bold red")


def _confirm(plan: Plan, *, private: bool | None, yes: bool) -> None:
    """Ask before an upload; with ``--yes`` refuse one that everybody would see."""
    if yes and plan.target.private is False and private is None:
        raise ConfigError(
            f"nothing was uploaded: {plan.target.url} is public; with --yes add "
            "--public too, or name another repository"
        )
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise ConfigError(
            "nothing was uploaded: there is no terminal to ask on; look at the list "
            "above, and push again with --yes"
        )
    if not click.confirm("Upload?"):
        click.echo("Nothing was uploaded.")
        raise SystemExit(1)
