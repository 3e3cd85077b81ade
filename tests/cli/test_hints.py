"""Commands that are said to be next, as somebody types them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from mergekit_map.cli.hints import after_merge, after_search
from mergekit_map.cli.main import main

TASKS = ["code", "a task"]


def merged(
    folder: Path, architecture: str, vocabulary: int = 128_256, *, chats: bool = False
) -> Path:
    folder.mkdir()
    config = {"architectures": [architecture], "vocab_size": vocabulary}
    (folder / "config.json").write_text(json.dumps(config))
    if chats:
        (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def typed(run: Path, out: Path) -> list[str]:
    return [
        command for _, commands in after_merge(run, out, TASKS) for command in commands
    ]


def test_our_commands_are_accepted(tmp_path: Path) -> None:
    run, out = tmp_path / "my run", merged(tmp_path / "it's mine", "LlamaForCausalLM")
    searched = [line for _, lines in after_search(run, TASKS) for line in lines]
    ours = [line for line in typed(run, out) if line.startswith("mergekit-map ")]

    assert len(searched) == 5
    assert len(ours) == 6
    for line in [*searched, *ours]:
        _, name, *words = shlex.split(line)
        command = main.get_command(click.Context(main), name)
        assert command is not None
        found = command.make_context(name, words).params
        assert [value for value in found.values() if value in (run, out, (run,))]
    select = next(line for line in ours if " select " in line)
    assert "--prefer 'code=2,a task=1'" in select


@pytest.mark.parametrize(
    ("architecture", "vocabulary", "programs"),
    [
        ("LlamaForCausalLM", 1536, ["python", "vllm"]),  # its tokenizer is its own
        ("MyOwnForCausalLM", 128_256, ["python"]),
        ("LlamaForSequenceClassification", 128_256, []),
        ("ViTForImageClassification", 0, []),
    ],
)
def test_what_cannot_run_a_model_is_not_named(
    tmp_path: Path, architecture: str, vocabulary: int, programs: list[str]
) -> None:
    out = merged(tmp_path / "out", architecture, vocabulary)

    lines = [line for line in typed(tmp_path, out) if not line.startswith("mergekit")]
    assert [line.split()[0] for line in lines] == programs


@pytest.mark.parametrize("name", ["it's", 'a "b" $HOME `x`'])
def test_what_python_is_told_is_python(tmp_path: Path, name: str) -> None:
    out = merged(tmp_path / name, "LlamaForCausalLM")

    (line,) = (line for line in typed(tmp_path, out) if line.startswith("python -c"))
    program, option, code = shlex.split(line)
    assert (program, option) == ("python", "-c")
    compile(code, line, "exec")
    assert repr(str(out)) in code
