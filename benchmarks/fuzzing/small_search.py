"""A small search to attack: two-layer models, texts, a finished run folder; judges."""

from __future__ import annotations

import atexit
import csv
import functools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import yaml
from attack import Limits, Outcome, command
from hub_server import TOKEN, Hub, serve
from quick_fronts import blank_pictures, fronts_of_few_points
from tiny_demo import TINY
from tiny_models import scratch, write_models

EVALUATIONS = 12
TASKS = ("one", "two")
REPO = "me/merged"
PUSH = ("push", "merged", REPO, "--run", "run", "--license", "mit", "--yes")
DEMO = ("demo", "--out", "demo")
_KEPT = ExitStack()  # of a process that is forked, for as long as it lives
_HUBS: dict[Path, tuple[Hub, ExitStack]] = {}


@functools.cache
def place() -> Path:
    """Make models, texts, a finished search and a merge, once for this process."""
    folder = scratch("small-search-")
    folder.chmod(0o755)
    write_models(folder, ("base", "a", "b"))
    for name in TASKS:
        text = {"one": "hello world, one plus two\n", "two": "def return three\n"}[name]
        (folder / f"{name}.txt").write_text(text * 40)
    for name, merge in (("config", "memory"), ("disk", "disk")):
        (folder / f"{name}.yml").write_text(yaml.safe_dump(_config(folder, merge)))
    for words in (
        ["search", "config.yml", "run"],
        ["merge", "run", "merged", "--trust-run"],
    ):
        done = run_in(folder, words)
        assert done.code == 0, done.said
    shutil.rmtree(folder / "tmp")
    return folder


def copied(folder: Path, *names: str) -> Path:
    """Copy some of it to a folder, with a home of its own; config.yml always."""
    for name in ("config.yml", "disk.yml", "home", *names):
        source = place() / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, folder / name)
    return folder


def run_in(
    folder: Path, words: Sequence[str | Path], limits: Limits | None = None
) -> Outcome:
    """Run a command with home, scratch and cache in a folder, and quick fronts.

    What is pushed goes to the Hub of that folder; a demo trains models of no use.
    """
    limits = limits or Limits(seconds=300)
    tmp = folder / "tmp"
    tmp.mkdir(exist_ok=True)
    others = {
        "MERGEKIT_MAP_HOME": str(folder / "home"),
        "TMPDIR": str(tmp),
        "HF_HUB_OFFLINE": "1",
        "HF_TOKEN": TOKEN,
        **limits.others,
    }
    online = hub_of(folder).url if words[0] == "push" else ""

    def before() -> None:
        tempfile.tempdir = None
        if online:
            _go_online(online)
        if words[0] == "demo":
            _train_little()
        _KEPT.enter_context(fronts_of_few_points())
        _KEPT.enter_context(blank_pictures())
        limits.before()

    return command(words, folder, replace(limits, others=others, before=before))


@atexit.register
def _close_hubs() -> None:
    """Close them while their threads can hear of it."""
    while _HUBS:
        _HUBS.popitem()[1][1].close()


def hub_of(folder: Path) -> Hub:
    """Give the Hub that a folder is pushed to: an empty one for each folder."""
    if folder not in _HUBS:
        if len(_HUBS) > 2:
            _HUBS.pop(next(iter(_HUBS)))[1].close()
        stack = ExitStack()
        _HUBS[folder] = stack.enter_context(serve()), stack
    return _HUBS[folder][0]


def wrongly_pushed(folder: Path) -> str:
    """Say whether a repository has not, once, what an undisturbed push makes."""
    repository = hub_of(folder).repositories.get(REPO)
    if repository is None:
        return "there is no repository"
    wanted, found = _pushed_undisturbed(), repository.files
    strange = {p for p in {*wanted, *found} if wanted.get(p) != found.get(p)}
    if strange:
        return f"the repository has other files than it should: {sorted(strange)}"
    commits = len(repository.commits)
    return "" if commits == 1 else f"{commits} commits"


@functools.cache
def _pushed_undisturbed() -> Mapping[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        folder = copied(Path(name), "run", "merged")
        done = run_in(folder, PUSH)
        assert done.code == 0, done.said
        return dict(hub_of(folder).repositories[REPO].files)


def _go_online(url: str) -> None:
    huggingface_hub.constants.HF_HUB_OFFLINE = False
    huggingface_hub.constants.HF_HUB_DISABLE_XET = True
    huggingface_hub.constants.ENDPOINT = url


def _train_little() -> None:
    from mergekit_map.demo import family

    family.FamilySizes = lambda: TINY


def lines(log: Path) -> list[dict[str, object]]:
    """Read the whole lines of a log, without how long they took."""
    text = log.read_text() if log.exists() else ""
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in found]


def lost_or_doubled(before: Sequence[object], run: Path) -> str:
    """Say whether a log lacks lines that it had, or has some twice."""
    after = Counter(json.dumps(line, sort_keys=True) for line in lines(run))
    had = Counter(json.dumps(line, sort_keys=True) for line in before)
    if lost := had - after:
        return f"{lost.total()} lines are lost of {run.name}"
    again = Counter(
        json.dumps([line[k] for k in ("coefficients", "task", "merge")])
        for line in lines(run)
        # What failed is measured again, and documents of one merge by and by.
        if line["role"] != "checkpoint" and "of" not in line and "error" not in line
    )
    doubled = [key for key, count in again.items() if count > 1]
    return f"measured twice: {doubled[0]}" if doubled else ""


def disagreement(run: Path) -> str:
    """Say whether the files of a finished run folder do not say the same."""
    if not (run / "manifest.json").exists():
        return f"{run.name} is not finished"
    front = json.loads((run / "front.json").read_text())
    chosen = front["selected"]
    rows = list(csv.DictReader((run / "front.csv").read_text().splitlines()))
    points = [row for row in rows if row["point"].isdigit()]
    marked = [row["point"] for row in points if row["selected"] == "1"]
    if len(points) != len(front["points"]) or marked != [str(chosen)]:
        return (
            f"front.csv has {len(points)} points, chosen {marked}; front.json {chosen}"
        )
    recipe = (run / "recipe.yml").read_text()
    same = f"# {front['reason']}\n" + (run / f"recipes/{chosen:03}.yml").read_text()
    if recipe != same:
        return f"recipe.yml is not that of point {chosen}: {recipe[:80]!r}"
    count = len(list(run.glob("recipes/*.yml")))
    return "" if count == len(front["points"]) else f"{count} recipes"


def _config(folder: Path, merge: str) -> dict[str, object]:
    tasks = {
        name: {"perplexity": {"file": str(folder / f"{name}.txt")}, "block": 64}
        for name in TASKS
    }
    search = {"evaluations": EVALUATIONS, "remeasure": 2}
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(folder / "base"),
        "models": [{"model": str(folder / name)} for name in "ab"],
        "dtype": "float32",
        "map": {"tasks": tasks, "search": search, "merge": merge},
    }
