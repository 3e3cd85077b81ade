"""``mergekit-map push``: uploads a merge to the Hub."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from mergekit_map.cli.options import (
    RUN,
    pairs_option,
    set_output,
    slow_imports,
    update_front,
    with_output_options,
)
from mergekit_map.errors import ConfigError, HubError
from mergekit_map.utils.text import bytes_in_words, printable

if TYPE_CHECKING:
    from mergekit_map.hub.push import Plan


@click.command()
@with_output_options
@click.argument("out", type=RUN)
@click.argument("repo")
@click.option(
    "--private/--public",
    default=None,
    help="Who can see a new repository  [default: private]",
)
@click.option("--run", type=RUN, help="Upload the search of this folder, too.")
@click.option(
    "--license",
    "licence",
    metavar="ID",
    help="Licence of the merge, such as apache-2.0 or llama3.1  [default: that of "
    "the card, or of all parents if they have the same]",
)
@pairs_option(
    "--parent",
    "parents",
    metavar="FOLDER=ID",
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
    run: Path | None,
    message: str,
    yes: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Upload the merge in OUT to the Hub as REPO, by default private.

    It shows the files, where they go and who will see them, and asks before it uploads.
    No path of a model is uploaded: models go by their Hub id, or by the name of their
    folder. An interrupted upload continues. The login is that of: hf auth login

    Example: mergekit-map push my-model me/my-model --run my-search
    """
    licence = options["licence"]
    if licence and not re.fullmatch("[a-z0-9][a-z0-9.+-]*", licence):
        raise click.UsageError("--license: write an id of the Hub, such as apache-2.0")
    with slow_imports(f"reading {out}"):
        from huggingface_hub import utils

        from mergekit_map.hub.push import PushOptions, open_hub, plan_push, upload

    utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not os.isatty(2):
        utils.disable_progress_bars()  # type: ignore[attr-defined]
    if run is not None:
        update_front(run)
    push_options = PushOptions(repo, **options)
    hub_error = url = None
    try:
        api = open_hub()
        plan = plan_push(out, run, push_options, api)
    except HubError as error:
        hub_error = error
        plan = plan_push(out, run, push_options)  # files and card are shown anyway
    _show(plan)
    if dry_run or hub_error:
        click.echo(f"\n{printable(plan.card)}")
    if dry_run:
        reason = f" The repository was not looked at: {hub_error}" if hub_error else ""
        click.echo(f"Nothing was uploaded.{reason}")
    elif hub_error:
        raise hub_error
    else:
        _confirm(plan, private=options["private"], yes=yes)
        url = upload(api, plan, message)
        state = f"holds the merge: {url}" if url else "holds all of this already."
        _print(f"{plan.target.url} {state}")
    content = {
        "repository": plan.target.url,
        "url": url,
        "private": plan.private,
        "files": [file.path for file in plan.files],
        "bytes": sum(file.size for file in plan.files),
    }
    set_output(json=content)


def _show(plan: Plan) -> None:
    for file in plan.files:
        is_rewritten = isinstance(file.content, bytes)
        note = "  local paths replaced by names" if is_rewritten else ""
        if file.path == "README.md":
            note = "  model card"
        _print(f"  {file.path}  {bytes_in_words(file.size)}{note}")
    for path in plan.deleted:
        _print(f"  {path}  removed: of an earlier upload")
    size = bytes_in_words(sum(file.size for file in plan.files))
    _print(f"{len(plan.files)} files, {size}, to {plan.target.url}")
    if plan.private:
        _print(f"{plan.target.state} private: only its owners see it.")
    else:
        _print(f"{plan.target.state} PUBLIC: everybody sees it.", "bold red")
    parents = [f"{m} {known or 'unknown'}" for m, known in plan.licences.items()]
    licence = plan.licence or "none is set, give one with --license"
    _print(f"Licence: {licence}. Licences of the parents: {', '.join(parents)}.")
    links = {n: f"huggingface.co/{n.partition('@')[0]})" for n in plan.licences}
    local = [name for name, link in links.items() if link not in plan.card]
    if local_models := [name for name in local if "/" not in name]:
        _print("The card names these models without a Hub id. If they have one, add:")
    for name in local_models:
        _print(f"  --parent {shlex.quote(name)}=owner/name")
    if plan.left_out:
        _print(f"Not uploaded: {', '.join(plan.left_out)}")


def _print(text: str, style: str = "") -> None:
    Console().print(Text(printable(text), style), soft_wrap=True)


def _confirm(plan: Plan, *, private: bool | None, yes: bool) -> None:
    """Ask before an upload; with ``--yes`` refuse one that everybody would see."""
    if plan.licence is None:
        raise ConfigError(
            "nothing was uploaded: the parents do not have one known licence; add "
            "--license ID, such as apache-2.0 or other, which all of theirs allow"
        )
    if yes and plan.target.private is False and private is None:
        raise ConfigError(
            f"nothing was uploaded: {plan.target.url} is public; with --yes add "
            "--public too, or name another repository"
        )
    if yes:
        return
    if not os.isatty(0):
        raise ConfigError(
            "nothing was uploaded: there is no terminal to ask on; look at the list "
            "above, and push again with --yes"
        )
    if not click.confirm("Upload?"):
        click.echo("Nothing was uploaded.")
        raise SystemExit(1)
