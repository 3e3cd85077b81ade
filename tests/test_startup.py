"""What a command or module imports, and what is said before that takes long.

Which package may import which, and who may name mergekit, lm_eval and torch, is held by
import-linter (pyproject.toml); here is what other packages import in turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest
from mergekit.options import MergeOptions, add_merge_options

import mergekit_map
from mergekit_map.cli.main import main
from mergekit_map.cli.mergekit_options import MakeOptions, MergeCommand

ALL = main.list_commands(click.Context(main))
NUMERIC = {"scipy", "sklearn", "pandas", "pymoo", "moocore"}
MODELS = {"torch", "transformers", "mergekit", "peft", "lm_eval", "datasets"}
HEAVY = NUMERIC | MODELS | {"matplotlib", "huggingface_hub"}

# Runs one command after the other, and prints what is loaded after each.
LOADED = """
import json, os, sys
os.isatty = lambda _: True
at_start = set(sys.modules)
from mergekit_map.cli.main import main
for words in json.loads(sys.argv[1]):
    main(words, standalone_mode=False)
    print("loaded", *(set(sys.modules) - at_start), file=sys.stderr)
"""

# Stops a command where something is imported that takes long.
STOPPED = """
import json, sys

class Stop:
    def find_spec(self, name, *_):
        if name in {"torch", "transformers", "matplotlib", "huggingface_hub"}:
            raise SystemExit("something heavy is imported")

sys.meta_path.insert(0, Stop())
from mergekit_map.cli.main import main
for words in json.loads(sys.argv[1]):
    print("command", file=sys.stderr)
    try:
        main(words)
    except SystemExit as end:
        print(end.code, file=sys.stderr)
"""


def run_script(script: str, commands: Sequence[Sequence[str | Path]]) -> Any:
    """Run commands one after the other in a process of their own."""
    words = json.dumps([list(map(str, command)) for command in commands])
    program = [sys.executable, "-W", "ignore", "-c", script, words]
    return subprocess.run(program, check=False, capture_output=True, text=True)


def loaded_by(*commands: Sequence[str | Path], before: str = "") -> list[set[str]]:
    """List the modules that are loaded after each of some commands, in one process."""
    found = run_script(before + LOADED, commands)
    assert found.returncode == 0, found.stderr
    lines = [x for x in found.stderr.splitlines() if x.startswith("loaded ")]
    return [set(line.split()[1:]) for line in lines]


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


def test_help_and_init_import_nothing_heavy(tmp_path: Path) -> None:
    new, extended = tmp_path / "new.yml", tmp_path / "extended.yml"
    models = ["--base", "org/base", "--model", "org/a", "--task", "gsm8k"]
    plain = tmp_path / "plain.yml"
    plain.write_text("merge_method: ties\nmodels: [{model: org/a}]\n")
    helps = [[command, "--help"] for command in ALL]

    first, *others = loaded_by(
        ["--help"], *helps, ["init", new, *models], ["init", plain, extended]
    )

    assert packages(first) - sys.stdlib_module_names == {"click", "mergekit_map"}
    assert len(others) == len(ALL) + 2
    for loaded in others:
        assert not packages(loaded) & (HEAVY | {"numpy"})


def test_choosing_needs_numpy_and_a_report_or_a_screen_no_model(run: Path) -> None:
    unseen = "import textual.app; textual.app.App.run = lambda app: None"

    (shown,) = loaded_by(["browse", run], before=unseen)
    chosen, reported = loaded_by(["select", run, "--index", "0"], ["report", run])

    assert not packages(shown) & (MODELS | {"scipy", "matplotlib"})
    assert "numpy" in chosen
    assert not packages(chosen) & (NUMERIC | MODELS)
    assert "matplotlib" in reported
    assert not packages(reported) & (MODELS | NUMERIC - {"scipy", "moocore"})


def test_what_is_done_and_what_is_not_there_is_said_before_anything_is_imported() -> (
    None
):
    Path("a.yml").touch()
    Path("a").mkdir()
    begun = ["search a.yml b", "run a.yml b", "merge a b", "inspect a.yml --json"]
    begun += ["compare a a", "demo", "report a", "select a", "push a b/c"]
    errors = {
        "search no.yml run": "File 'no.yml' does not exist.",
        "run a.yml .": ". exists already and is left as it is",
        "select nowhere": "Directory 'nowhere' does not exist.",
    }
    commands = [*begun, *errors, "search a.yml b --quiet"]

    ended = run_script(STOPPED, [words.split() for words in commands])

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    *found, quiet = [part.splitlines() for part in ended.stderr.split("command\n")[1:]]
    end = "something heavy is imported"
    for first, stop in found[: len(begun)]:
        assert first.endswith(" ...")
        assert stop == end
    for lines, error in zip(found[len(begun) :], errors.values(), strict=True):
        assert error in lines[-2]
        assert lines[-1] == "2"
    assert quiet == [end]


@pytest.mark.parametrize("command", ALL)
def test_help_shows_at_most_twenty_options_of_ours(command: str) -> None:
    found = main.get_command(click.Context(main), command)
    own, theirs = (
        click.testing.CliRunner().invoke(main, [command, page]).output
        for page in ("--help", "--help-mergekit")
    )

    options = own.partition("Options:")[2].count("\n  -")
    assert options <= 20 + len(["-v", "-q", "--help", "--help-mergekit"])
    assert "--lora-merge-cache" not in own
    if isinstance(found, MergeCommand):
        assert "--lora-merge-cache" in theirs


@pytest.mark.parametrize(
    "arguments",
    ["", "--device auto --out-shard-size 2M --no-copy-tokenizer -j 1", "--gpu-rich"],
)
def test_options_mean_what_they_mean_to_mergekit(arguments: str) -> None:
    given: list[MergeOptions] = []

    def ours(make_options: MakeOptions) -> None:
        given.append(make_options("starting"))

    def theirs(merge_options: MergeOptions) -> None:
        given.append(merge_options)

    words = [*arguments.split(), "-v"]
    click.command(cls=MergeCommand)(ours).main(words, standalone_mode=False)
    click.command(add_merge_options(theirs)).main(words, standalone_mode=False)

    own, stock = given
    # Where no device is asked for, ours is the one that is there, and not yet known.
    device = stock.device if arguments else None
    assert own == stock.model_copy(update={"device": device})


def test_deprecations_among_libraries_are_not_shown() -> None:
    command = MergeCommand(None, callback=lambda make_options: make_options("starting"))
    command.main([], standalone_mode=False)

    # An error here, unless the command has silenced it.
    warnings.warn("renamed in a library", FutureWarning, stacklevel=2)


@pytest.mark.parametrize("name", mergekit_map.__all__)
def test_public_names_resolve(name: str) -> None:
    # Whatever was imported before: a module of that name must not hide the function.
    assert callable(getattr(mergekit_map, name))


def test_public_names_are_listed_and_no_others() -> None:
    assert {n for n in dir(mergekit_map) if n[:2] != "__"} == {*mergekit_map.__all__}
