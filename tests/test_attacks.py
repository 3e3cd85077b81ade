"""What strangers and accidents leave is refused in one sentence, and runs nothing.

One attack for each class of refusal; ``benchmarks/fuzzing`` tries many more. Against a
run folder or a model from a stranger, a crash, and a typing error: the user's own code
on the user's own machine is no attack.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_files import edit_config, edit_json, edit_tensors
from runs import change_json, invoke, set_at, write_plain, write_texts
from safetensors.torch import load_file

SECRET = "merge_method: linear  # the secret of somebody else\n"
SELECT, REPORT, MERGE = ["select", "run"], ["report", "run"], ["merge", "run", "out"]
WEIGHTS, TOKENS = "model.safetensors", "tokenizer_config.json"
TENSOR = "model.layers.0.mlp.up_proj.weight"

Damage = Callable[[Path], Any]  # of a folder


@pytest.fixture(autouse=True)
def _victims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put files there that are none of anybody's business."""
    monkeypatch.setenv("MERGEKIT_MAP_HOME", str(tmp_path / "home"))
    Path("secret.txt").write_text(SECRET)
    Path("victim.txt").write_text("as it was")
    Path("elsewhere").mkdir()
    Path("evil.py").write_text("open('ran', 'w').close()\n")


def refused(command: list[str], *words: str) -> None:
    """Check that a command ends with one located sentence, and did nothing."""
    result = invoke(*command, code=2)
    assert isinstance(result.exception, SystemExit)
    assert "error: " in result.output
    assert "\x1b" not in result.output
    assert len(result.stderr.splitlines()) < 12
    for word in words:
        assert word in " ".join(result.output.split()), result.output
    assert not Path("ran").exists()
    assert Path("victim.txt").read_text() == "as it was"
    assert not any(Path("elsewhere").iterdir())
    files = (p for p in Path("run").rglob("*") if p.is_file() and not p.is_symlink())
    assert SECRET not in "".join(p.read_text(errors="replace") for p in files)


@pytest.mark.parametrize(
    ("place", "target", "command"),
    [
        ("recipes/006.yml", "secret.txt", SELECT),
        ("recipes", "elsewhere", SELECT),
        ("report.html", "victim.txt", REPORT),
        ("evaluations.jsonl", "secret.txt", REPORT),
        ("samples/x.json", "secret.txt", SELECT),
        ("front.json", "a pipe", SELECT),  # which is not waited for
    ],
)
def test_no_link_or_pipe_is_read_or_written_through(
    run: Path, place: str, target: str, command: list[str]
) -> None:
    path = run / place
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if target == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(Path(target).resolve())

    kind = "no ordinary file" if target == "a pipe" else "a symbolic link"
    refused(command, f"{place} is {kind}")


def test_names_that_were_used_on_the_way_are_not_written_to(run: Path) -> None:
    for name in ("recipe.yml", "front.json"):  # no symbolic links, so not refused
        os.link("victim.txt", run / f".{name}.partial")

    invoke(*SELECT, "--index", "1")

    assert Path("victim.txt").read_text() == "as it was"


UNSAFE = {"metric": "pass@1", "confirm_run_unsafe_code": True}
CODE: dict[str, dict[str, Any]] = {
    "metric": {"lm_eval": "mbpp", "metric": "pass_at_1"},
    "function": {"python": "evil:score", "direction": "maximize"},
    "file of lm-eval": {"lm_eval": "evil.yaml", "metric": "acc"},
    "unsafe code": {"lm_eval": "humaneval", **UNSAFE},
}
COMMANDS = {
    "merge": MERGE,
    "compare": ["compare", "run"],
    "inspect": ["inspect", "run/config.yml"],
    "search": ["search", "run/config.yml", "again"],
    "run": ["run", "run/config.yml", "out"],
}
NAMES_CODE = "names code that would run here"


def name_code(run: Path, kind: str = "function") -> None:
    """Put code into the configuration of a run that was made here."""
    if kind == "metric":  # which lm-eval would load from the working directory
        Path("code_eval").mkdir()
        Path("code_eval/code_eval.py").write_text("open('ran', 'w')\n")
    Path("evil.yaml").write_text("task: evil\nprocess_docs: !function evil.score\n")
    config = yaml.safe_load((run / "config.yml").read_text())
    config["map"]["select"] = {}
    del config["map"]["search"]["gradients"]
    if kind == "backend":
        config["map"] |= {"backend": {"name": "vllm"}, "merge": "disk"}
    else:
        config["map"]["tasks"] = {"greeting": CODE[kind]}
    (run / "config.yml").write_text(yaml.safe_dump(config))
    here = str(Path.cwd())
    change_json(run / "manifest.json", lambda manifest: manifest.update(directory=here))


@pytest.mark.parametrize("kind", [*CODE, "backend"])
def test_code_that_a_folder_names_is_not_run(run: Path, kind: str) -> None:
    name_code(run, kind)

    refused(MERGE, NAMES_CODE, "--trust-run")
    for command in (SELECT, REPORT):  # need no trust
        invoke(*command)
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_code_of_a_folder_from_elsewhere_runs_where_it_is_trusted(
    run: Path, command: str
) -> None:
    name_code(run)
    refused(COMMANDS[command], f"{NAMES_CODE}: task 'greeting'")

    # Without the models, there is nothing to measure.
    assert NAMES_CODE not in invoke(*COMMANDS[command], "--trust-run", code=2).output
    assert Path("ran").exists()


@pytest.mark.parametrize(
    "text", ["\x1b]0;evil\x07", "a\nmerge_method: evil", "\u202egnp"]
)
@pytest.mark.parametrize(
    "key",
    [
        ("reason",),
        ("tasks", "code", "unit"),
        ("anchors", 0, "label"),
        ("select", "not_worse_than"),
    ],
)
@pytest.mark.usefixtures("run")
def test_no_string_reaches_terminal_or_recipe_but_lines_of_text(
    text: str, key: tuple[Any, ...]
) -> None:
    change_json(Path("run/front.json"), lambda front: set_at(front, text, *key))

    refused(SELECT, "a line of text is wanted")
    assert text not in Path("run/recipe.yml").read_text()


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"{", b"[]", pytest.param(b"[" * 100_000, id="deep")]
)
@pytest.mark.parametrize("name", ["front.json", "manifest.json"])
def test_what_is_no_json_is_one_sentence(run: Path, name: str, raw: bytes) -> None:
    (run / name).write_bytes(raw)

    refused(REPORT, name)


FIRST, IDENTITY = ("points", 0), ("identity",)
NAN, INF, LARGE = float("nan"), float("inf"), 1e51


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("front.json", ("points",), None),
        ("front.json", (*FIRST, "coefficients", "code-model"), NAN),
        ("front.json", (*FIRST, "predicted", "code", "value"), None),
        ("front.json", (*FIRST, "predicted", "code", "value"), LARGE),
        ("front.json", ("tasks", "code", "range"), [5, 1]),
        ("front.json", ("border",), [{"coefficient": "nobody", "end": 1.0}]),
        ("front.json", ("groups",), {"one": {"nobody": 1.0}}),
        ("manifest.json", ("merge",), "../x"),
        ("manifest.json", (*IDENTITY, "models"), {"a\x1b": "1"}),
        ("manifest.json", (*IDENTITY, "coefficients"), {"a": [["models", -1]]}),
        ("manifest.json", (*IDENTITY, "configuration"), {"x": [INF]}),
    ],
)
@pytest.mark.usefixtures("run")
def test_a_value_that_cannot_be_is_one_sentence(
    name: str, key: tuple[Any, ...], value: Any
) -> None:
    change_json(Path("run", name), lambda content: set_at(content, value, *key))

    refused(REPORT, f"{name} cannot be used: {key[0]}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("value", LARGE),
        ("value", NAN),
        ("stderr", -0.1),
        ("sampling", -1.0),
        ("coefficients", {"code-model": INF}),
        ("seconds", LARGE),
        ("n", -1),
    ],
)
def test_a_line_of_the_log_that_no_search_writes_is_one_sentence(
    run: Path, key: str, value: Any
) -> None:
    first, *others = (run / "evaluations.jsonl").read_text().splitlines()
    line = json.dumps({**json.loads(first), key: value})
    (run / "evaluations.jsonl").write_text("\n".join([line, *others]) + "\n")

    refused(REPORT, f"evaluations.jsonl:1: not an evaluation: {key}")


@pytest.fixture
def model(family: dict[str, Path]) -> Path:
    """Copy a fine-tune that a good configuration, ``config.yml``, merges."""
    shutil.copytree(family["a"], "tuned")
    models, text = {**family, "a": "tuned"}, write_texts("text", max_tokens=64)
    write_plain(models, text, names="a", evaluations=4, remeasure=0)
    return Path("tuned")


def raw(make: Callable[[bytes], bytes]) -> Damage:
    return lambda model: (model / WEIGHTS).write_bytes(
        make((model / WEIGHTS).read_bytes())
    )


def index(place: Any, *others: str) -> Damage:
    """Let an index say that all tensors, and others, are in some place."""

    def damage(model: Path) -> None:
        names = [*load_file(model / WEIGHTS), *others]
        content = {"weight_map": dict.fromkeys(names, place)}
        (model / "model.safetensors.index.json").write_text(json.dumps(content))

    return damage


class Evil:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return open, ("ran", "w")


def pickled(model: Path) -> None:
    (model / WEIGHTS).unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))


def linked(model: Path, name: str = WEIGHTS) -> None:
    (model / name).unlink()
    (model / name).symlink_to(name)


def many_links(model: Path) -> None:
    for number in range(100):
        (model / f"link{number}").symlink_to(".")


def private(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(Path("secret.txt").resolve())


MODELS: dict[str, tuple[Damage, str]] = {
    "pickle": (pickled, "pickled weights"),
    "renamed pickle": (raw(lambda _: pickle.dumps(Evil())), "be read as safetensors"),
    "missing tensor": (edit_tensors(lambda t: t.pop(TENSOR)), TENSOR),
    "index out of the folder": (index("../secret.txt"), "index.json"),
    "index of a hidden file": (index(".w.safetensors"), "index.json"),
    "index of a lost tensor": (index(WEIGHTS, "lost"), "names 1 tensors that"),
    "code of its own": (
        edit_config(auto_map={"AutoModelForCausalLM": "evil.Model"}, model_type="evil"),
        "models[0].model",
    ),
    "sizes": (edit_config(hidden_size=10**9), "hidden_size is 1000000000 here"),
    "no heads": (edit_config(num_attention_heads=0), "transformers cannot"),
    "link to itself": (linked, "model.safetensors"),
    "a pipe": (lambda m: os.mkfifo(m / "vocab.txt"), "is no ordinary file"),
    "a private file": (lambda m: private(m / "chat_template.jinja"), "is a link to"),
    "a private file below": (lambda m: private(m / "a" / "x.jinja"), "is a link to"),
    "a hidden one": (lambda m: private(m / ".processor_config.json"), "is a link to"),
    "two models": (
        lambda m: index(shutil.copy(m / WEIGHTS, m / "other.safetensors").name)(m),
        "remove what is not the model",
    ),
    "a vocabulary elsewhere": (edit_json(TOKENS, vocab="secret.txt"), "may name a"),
    "a tokenizer elsewhere": (
        edit_json(TOKENS, fast_tokenizer_files=["a/tokenizer.1.json/../../x"]),
        "may name a file",
    ),
    "arguments": (edit_json(TOKENS, init_inputs=["secret.txt"]), "may name a file"),
    "a vocabulary beside": (
        lambda m: (m / "special_tokens_map.json").write_text('{"vocab": "a.txt"}'),
        "may name a file",
    ),
    "a billion labels": (edit_config(num_labels=10**9), "num_labels is 1000000000"),
    "links": (lambda m: many_links(m) or linked(m), "model.safetensors"),
    "no tokenizer": (lambda m: linked(m, "tokenizer.json"), "cannot be loaded"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_is_refused_unloaded(model: Path, name: str) -> None:
    damage, word = MODELS[name]
    damage(model)

    refused(["search", "config.yml", "run"], word)
    assert not Path("run/evaluations.jsonl").exists()


TEXTS: dict[str, Damage] = {
    "a pipe": lambda here: os.mkfifo(here / "text.txt"),
    "endless": lambda here: (here / "text.txt").symlink_to("/dev/zero"),
    "a folder": lambda here: (here / "text.txt").mkdir(),
    "a terabyte": lambda here: (
        (here / "text.txt").touch(),
        os.truncate(here / "text.txt", 1 << 40),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.usefixtures("model")
def test_a_text_that_is_none_is_refused(name: str) -> None:
    Path("text.txt").unlink()
    TEXTS[name](Path())

    refused(["search", "config.yml", "run"], "text.txt")
