"""What ``search --shard`` does and says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mergekit_map.commands.merge_options import MergeOptions
from mergekit_map.commands.options import starting
from mergekit_map.commands.shared import checked
from mergekit_map.commands.showing import answer, say_stopped
from mergekit_map.stopping import stopped_by
from mergekit_map.words import listed

if TYPE_CHECKING:
    from mergekit_map.commands.workers import Staff
    from mergekit_map.steps.sharding import ShardDone


def share_and_show(
    shard: str,
    config: Path,
    run: Path,
    options: MergeOptions,
    import_file: Path | None = None,
    *,
    model_paths: Mapping[str, str],
    trust_run: bool,
    workers: Staff | None = None,
) -> None:
    """Measure the share of a shard, and say what is measured and what is next."""
    from mergekit_map.results.shard_logs import read_shard

    one = read_shard(shard)  # before anything else is imported for it
    with starting():
        from mergekit_map.commands.progress import TerminalReporter
        from mergekit_map.steps.sharding import search_shard

    reporter = TerminalReporter()
    paths = [f"--model-path={name}={folder}" for name, folder in model_paths.items()]
    paths += [] if workers is None else [f"--workers={workers.asked}"]
    plain = shlex.join(["mergekit-map", "search", str(config), str(run), *paths])
    try:
        project, imported = checked(
            config,
            options,
            reporter,
            import_file,
            model_paths=model_paths,
            trust_run=trust_run,
        )
        with reporter, workers or nullcontext():
            done = search_shard(project, run, one, reporter, imported, workers=workers)
    except KeyboardInterrupt as stop:
        said = f"shard {one} {stopped_by(stop)}; what it has measured is kept."
        say_stopped(stop, [said, f"Go on with: {plain} --shard {one}"])
    answer(
        run / one.log_name,
        run=str(run),
        finished=False,
        shard=str(one),
        measured=done.measured,
        missing=[str(other) for other in done.missing],
    )
    for line in _said(done, plain):
        click.echo(line)


def _said(done: ShardDone, plain: str) -> Iterator[str]:
    """Say what a shard did, and what to do with it."""
    log = done.run / done.shard.log_name
    yield f"\nshard {done.shard}: {done.measured} measurements made, in {log}"
    others = {s: n for s, n in done.known.items() if s != done.shard}
    if others:
        counts = (f"{count} of shard {shard}" for shard, count in others.items())
        yield f"There are {listed(counts)}."
    if done.finished:
        yield "All that the search asks for is measured. Find the front:"
        yield f"  {plain}"
        return
    missing = listed(map(str, done.missing))
    yield (
        f"This is its share of what is known to be wanted by now; what is next depends "
        f"on what shard {missing} is to measure, which did not run beside it."
    )
    yield "When all shards have ended, go on and find the front, in one process:"
    yield f"  {plain}"
    yield (
        "or start all shards again at the same time, which then go on together. If "
        "they do not see the same folder, first copy evaluations.*.jsonl and samples/ "
        f"of the others into {done.run}."
    )
