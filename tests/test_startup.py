"""What a command imports, and that it says what it does before that takes long."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import click.testing
import pytest
import yaml
from mergekit.options import MergeOptions, add_merge_options
from quick_fronts import fronts_of_few_points

from mergekit_map.cli import main
from mergekit_map.commands.merge_options import merging

ALL = main.list_commands(click.Context(main))
NUMERIC = {"scipy", "sklearn", "pandas", "pymoo", "moocore"}
MODELS = {"torch", "transformers", "mergekit", "peft", "lm_eval", "datasets"}
HEAVY = NUMERIC | MODELS | {"matplotlib", "huggingface_hub"}

LOADED = """
import sys
at_start = set(sys.modules)
from mergekit_map.cli import main
main(sys.argv[1:], standalone_mode=False)
print("loaded", *(set(sys.modules) - at_start), file=sys.stderr)
"""

# Ends the program where something is imported that takes long.
STOPPED = """
import sys

class Stop:
    def find_spec(self, name, *_):
        if name in {"torch", "transformers", "matplotlib", "huggingface_hub"}:
            raise SystemExit("something heavy is imported")

sys.meta_path.insert(0, Stop())
from mergekit_map.cli import main
main(sys.argv[1:])
"""


def run_script(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def loaded_by(*arguments: str | Path) -> set[str]:
    """List the modules that a command loads."""
    found = run_script(LOADED, *arguments)
    assert found.returncode == 0, found.stderr
    first, *modules = found.stderr.splitlines()[-1].split()
    assert first == "loaded"
    return set(modules)


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules}


@pytest.fixture(scope="module")
def run(family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("startup")
    (folder / "text.txt").write_text("hello world, one plus two\n" * 30)
    config = {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "dtype": "float32",
        "map": {"tasks": {"text": {"perplexity": {"file": "text.txt"}, "block": 32}}},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch, fronts_of_few_points():
        patch.chdir(folder)
        command = ["search", "config.yml", "run"]
        result = click.testing.CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return folder / "run"


def test_help_imports_click_alone() -> None:
    theirs = packages(loaded_by("--help")) - sys.stdlib_module_names

    assert theirs == {"click", "mergekit_map"}


@pytest.mark.parametrize("command", ALL)
def test_the_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    assert not packages(loaded_by(command, "--help")) & (HEAVY | {"numpy"})


def test_the_schema_is_printed_without_mergekit() -> None:
    assert not packages(loaded_by("schema")) & (HEAVY | {"numpy"})


def test_a_configuration_is_written_without_anything_heavy(tmp_path: Path) -> None:
    new, extended = tmp_path / "new.yml", tmp_path / "extended.yml"
    models = ["--base", "org/base", "--model", "org/a", "--task", "gsm8k"]
    plain = tmp_path / "plain.yml"
    plain.write_text("merge_method: ties\nmodels: [{model: org/a}]\n")

    loaded = loaded_by("init", new, *models) | loaded_by("init", plain, extended)

    assert not packages(loaded) & (HEAVY | {"numpy"})


def test_choosing_needs_numpy_but_not_scipy(run: Path) -> None:
    loaded = packages(loaded_by("select", run, "--index", "0"))

    assert "numpy" in loaded
    assert not loaded & (NUMERIC | MODELS)


def test_a_report_predicts_without_what_fits(run: Path) -> None:
    loaded = loaded_by("report", run)

    assert "matplotlib" in loaded
    assert "scipy.optimize" not in loaded
    assert not packages(loaded) & (MODELS | NUMERIC - {"scipy", "moocore"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("search a.yml b", "reading a.yml and loading mergekit ..."),
        ("run a.yml b", "reading a.yml and loading mergekit ..."),
        ("merge a b", "opening a and loading mergekit ..."),
        ("inspect a.yml --json", "reading a.yml and loading mergekit ..."),
        ("compare a b", "opening a and loading mergekit ..."),
        ("demo", "preparing the demo and loading mergekit ..."),
        ("report a", "reading a and drawing ..."),
        ("select a", "reading a ..."),
        ("push a b/c", "reading a and asking the Hub ..."),
    ],
)
def test_a_command_says_what_it_does_before_it_imports(
    arguments: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yml").touch()
    Path("a").mkdir()

    stopped = run_script(STOPPED, *arguments.split())

    assert stopped.stderr.splitlines() == [line, "something heavy is imported"]
    assert stopped.stdout == ""


def test_a_quiet_command_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yml").touch()
    stopped = run_script(STOPPED, "search", tmp_path / "a.yml", "b", "--quiet")

    assert stopped.stderr.splitlines() == ["something heavy is imported"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["search", "no.yml", "run"], "no.yml: there is no such file"),
        (["inspect", "no.yml"], "no.yml: there is no such file"),
        (["run", ".", "out"], ".: is a folder"),
        (["run", "a.yml", "."], ". exists already"),
        (["merge", "nowhere", "out"], "nowhere: there is no such folder"),
        (["select", "nowhere"], "nowhere: there is no such folder"),
        (["report", "nowhere"], "nowhere: there is no such folder"),
        (["browse", "nowhere"], "nowhere: there is no such folder"),
    ],
)
def test_what_is_not_there_is_said_before_anything_is_imported(
    words: list[str], error: str
) -> None:
    stopped = run_script(STOPPED, *words)

    assert stopped.stderr.startswith(f"error: {error}")
    assert stopped.returncode == 2


def described(command: Callable[..., Any]) -> list[dict[str, Any]]:
    return [option.to_info_dict() for option in click.command(command).params]


def test_the_options_are_those_of_mergekit() -> None:
    ours = described(merging("")(lambda: None))
    theirs = described(add_merge_options(lambda: None))

    assert len(theirs) > 20
    # A size stays text until mergekit reads it, and is not shown.
    for options in (ours, theirs):
        size = next(o for o in options if o["name"] == "out_shard_size")
        del size["default"]
    assert ours == theirs


@pytest.mark.parametrize(
    "arguments",
    ["", "--device auto --out-shard-size 2M --no-copy-tokenizer -j 1", "--gpu-rich"],
)
def test_options_mean_what_they_mean_to_mergekit(arguments: str) -> None:
    given: list[MergeOptions] = []

    def keep(merge_options: MergeOptions) -> None:
        given.append(merge_options)

    for add in (merging("starting"), add_merge_options):
        command = click.command(add(keep))
        command.main([*arguments.split(), "-v"], standalone_mode=False)

    ours, stock = given
    # Where no device is asked for, ours is the one that is there, and not yet known.
    device = stock.device if arguments else None
    assert ours == stock.model_copy(update={"device": device})


@pytest.mark.slow
def test_options_of_another_mergekit_may_need_what_is_heavy(tmp_path: Path) -> None:
    package = tmp_path / "mergekit"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "options.py").write_text(
        "import click, torch\n"
        "from pydantic import BaseModel\n"
        "class MergeOptions(BaseModel): new: str = str(torch.float16)\n"
        "add_merge_options = click.option('--new', default=MergeOptions().new,\n"
        "    show_default=True)\n"
        "class PrettyPrintHelp(click.Command): pass\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from mergekit_map.cli import main; main(['search', '--help'])"
    )

    shown = run_script(script)

    assert "[default: torch.float16]" in shown.stdout, shown.stderr
