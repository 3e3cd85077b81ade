"""From mergekit-evolve to a configuration of ours, on real, if tiny, models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from mergekit_map.cli import main
from mergekit_map.errors import ConfigError
from mergekit_map.migrating.evolve import Migrated, migrate_evolve
from mergekit_map.steps.project import load_project


@pytest.fixture
def evolve(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A configuration of mergekit-evolve, and its two tasks in a folder."""
    monkeypatch.chdir(tmp_path)
    questions = [
        {"q": f"hello {n}", "choices": ["one", "two", "three"], "gold": n % 3}
        for n in range(12)
    ]
    texts = [{"text": f"def return {n} plus two, hello world"} for n in range(6)]
    Path("q.jsonl").write_text("\n".join(map(json.dumps, questions)))
    Path("t.jsonl").write_text("\n".join(map(json.dumps, texts)))
    folder = Path("eval_tasks/mine")
    folder.mkdir(parents=True)
    choice = {
        "task": "questions_train",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    }
    rolling = {
        "task": "text_train",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    }
    for content, data in ((choice, "q.jsonl"), (rolling, "t.jsonl")):
        content |= {"dataset_path": "json", "test_split": "test"}
        content["dataset_kwargs"] = {"data_files": {"test": str(tmp_path / data)}}
    (folder / "questions.yaml").write_text(yaml.safe_dump(choice))
    (folder / "text.yml").write_text(yaml.safe_dump(rolling))
    (folder / "other.yaml").write_text("task: other\ndoc_to_text: !function mine.f\n")
    (folder / "broken.yaml").write_text("task: [questions_train\n")
    return {
        "genome": {
            "models": [str(family["a"]), str(family["b"])],
            "merge_method": "task_arithmetic",
            "base_model": str(family["base"]),
        },
        "tasks": [
            {"name": "questions_train", "weight": 0.6},
            {
                "name": "text_train",
                "weight": -0.4,
                "metric": "byte_perplexity,none",
            },
        ],
        "limit": 9,
        "apply_chat_template": False,
    }


def migrated(evolve: Mapping[str, Any]) -> Migrated:
    Path("genome.yml").write_text(yaml.safe_dump(evolve, sort_keys=False))
    return migrate_evolve(Path("genome.yml"), [Path("eval_tasks")])


def invoke(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
def test_what_mergekit_evolve_searched_is_searched_and_merged(
    evolve: dict[str, Any],
) -> None:
    Path("genome.yml").write_text(yaml.safe_dump(evolve))

    said = invoke(
        *["import-evolve", "genome.yml", "merge.yml"],
        *["--task-search-path", "eval_tasks"],
    )
    invoke("search", "merge.yml", "run")
    invoke("merge", "run", "merged")

    assert "mergekit-map search merge.yml RUN" in said.stderr
    assert said.stdout == ""
    front = json.loads(Path("run/front.json").read_text())
    directions = {name: about["direction"] for name, about in front["tasks"].items()}
    assert directions == {"questions_train": "maximize", "text_train": "minimize"}
    assert list(front["coefficients"]) == ["a", "b"]
    reason = "by the preference questions_train=0.6, text_train=0.4"
    assert reason in Path("run/recipe.yml").read_text()
    assert Path("merged/model.safetensors").exists()


def test_every_key_of_the_result_is_what_the_file_said(evolve: dict[str, Any]) -> None:
    evolve["num_fewshot"] = 2

    found = yaml.safe_load(migrated(evolve).text)

    common = {"limit": 9, "num_fewshot": 2}
    folder = "eval_tasks/mine"
    assert found == {
        "merge_method": "task_arithmetic",
        "base_model": evolve["genome"]["base_model"],
        "models": [{"model": model} for model in evolve["genome"]["models"]],
        "parameters": {"normalize": False},
        "dtype": "bfloat16",
        "map": {
            "tasks": {
                "questions_train": {
                    "lm_eval": f"{folder}/questions.yaml",
                    "metric": "acc",
                    "filter": "none",
                    **common,
                },
                "text_train": {
                    "lm_eval": f"{folder}/text.yml",
                    "metric": "byte_perplexity",
                    "filter": "none",
                    **common,
                },
            },
            "search": {"bounds": [0, 1]},
            "select": {"prefer": {"questions_train": 0.6, "text_train": 0.4}},
        },
    }


GENOMES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "negative": ({"allow_negative_weights": True}, ["a", "b"]),
    "groups of layers": ({"layer_granularity": 1}, ["a", "b"]),
    "smooth": ({"layer_granularity": 1, "smooth": True}, ["a", "b"]),
    "base among the models": ({"models": ["base", "a", "b"]}, ["a", "b"]),
    "three": ({"models": ["a", "b", "c"]}, ["a", "b", "c"]),
    "one": ({"models": ["a"]}, ["a"]),
    "ties": ({"merge_method": "ties"}, ["a", "b"]),
    "normalised ties of two": ({"merge_method": "ties", "normalize": True}, ["a"]),
    "normalised ties of three": (
        {"merge_method": "ties", "normalize": True, "models": ["a", "b", "c"]},
        ["a", "b", "c"],
    ),
    "dare": ({"merge_method": "dare_ties", "tokenizer_source": "base"}, ["a", "b"]),
    "filters": (
        {"merge_method": "dare_ties", "filters": ["self_attn", "mlp"]},
        ["a_self_attn", "a_mlp", "a_rest", "b_self_attn", "b_mlp", "b_rest"],
    ),
    "linear": ({"merge_method": "linear", "models": ["a", "b", "c"]}, ["a", "b"]),
    "linear with base": (
        {"merge_method": "linear", "base_model": "base", "tokenizer_source": "base"},
        ["a"],
    ),
    "linear with filters": ({"merge_method": "linear", "filters": ["mlp"]}, ["a"]),
    "linear, not normalised": (
        {"merge_method": "linear", "normalize": False, "filters": ["mlp"]},
        ["a_mlp", "a_rest", "b_mlp", "b_rest"],
    ),
    "slerp": ({"merge_method": "slerp", "layer_granularity": 1}, ["a"]),
    "slerp of three": (
        {"merge_method": "slerp", "models": ["a", "b", "c"]},
        ["a", "b"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GENOMES)
def test_every_kind_of_genome_is_taken(
    name: str, evolve: dict[str, Any], family: dict[str, Path]
) -> None:
    changed, coefficients = GENOMES[name]
    genome = evolve["genome"] | changed
    genome["models"] = [str(family.get(m, m)) for m in genome["models"]]
    if "base_model" in changed or genome["merge_method"] not in {"linear", "slerp"}:
        genome["base_model"] = str(family["base"])
    else:
        del genome["base_model"]
    evolve["genome"] = genome
    result = migrated(evolve)
    Path("merge.yml").write_text(result.text)

    project = load_project(Path("merge.yml"))

    assert list(project.space.names) == coefficients
    d = len(coefficients)
    assert f"by default {(d + 1) * (d + 2)} here" in result.changes[-1]
    low = -1 if genome.get("allow_negative_weights") else 0
    assert project.space.bounds.tolist() == [[low, 1]] * d
    if "tokenizer_source" in genome:
        base = str(family["base"]) if genome["merge_method"] == "linear" else "base"
        assert project.file.content["tokenizer_source"] == base


def test_a_file_as_people_write_it_is_taken(
    evolve: dict[str, Any], family: dict[str, Path]
) -> None:
    del evolve  # for its folder of tasks
    Path("genome.yml").write_text(
        "# my merge\n"
        "genome:\n"
        "    models:\n"
        f"      - {family['base']}\n"
        f"      - {family['a']}\n"
        f"      - {family['b']}\n"
        "    merge_method: task_arithmetic\n"
        f"    base_model: {family['base']}\n"
        "    tokenizer_source: null # optional\n"
        "    layer_granularity: 8 # sane default\n"
        "    allow_negative_weights: true # useful with task_arithmetic\n"
        "    filters: null\n"
        "tasks:\n"
        "  - questions_train\n"
        "apply_chat_template: false\n"
    )

    result = migrate_evolve(Path("genome.yml"), [Path("eval_tasks")])
    Path("merge.yml").write_text(result.text)

    project = load_project(Path("merge.yml"))
    assert project.space.names == ("a", "b")
    assert project.spec.select.prefer == {"questions_train": 1.0}


@pytest.mark.parametrize(
    ("genome", "rest", "messages"),
    [
        (
            {},
            {},
            [
                r"^tasks: one weighted sum was maximised; .*select\.prefer",
                r"^text_train: its weight -0\.4 said .*preference is 0\.4\.",
                r"^weights: their absolute value .* 0 and 1",
                r"--max-fevals is search\.evaluations, by default 12 here",
            ],
        ),
        ({"allow_negative_weights": True}, {}, [r"^weights: .* -1 and 1"]),
        (
            {"layer_granularity": 1},
            {},
            [
                r"^layer_granularity: 1 left out, .* 2 coefficients, .* 6 terms\. "
                r"The 2 layers in 2 groups make 4 coefficients and 15 terms"
            ],
        ),
        (
            {"layer_granularity": 8, "models": ["org/x", "org/y"], "smooth": True},
            {},
            [
                r"For example, 32 layers in 4 groups make 8 coefficients and 45 terms"
                r".*as smooth did"
            ],
        ),
        ({"smooth": True}, {}, [r"^smooth: had no effect"]),
        (
            {"merge_method": "ties"},
            {},
            [r"^density: was searched; here it is 0\.5", r"^normalize: was true"],
        ),
        (
            {"merge_method": "ties", "normalize": True},
            {},
            [r"^weights: only their ratio counts, so that .*/b has no coefficient"],
        ),
        (
            {"filters": ["mlp"]},
            {},
            [r"^filters: kept, .* 4 coefficients, .* 15 terms\. Without them it had 6"],
        ),
        (
            {"merge_method": "linear", "filters": ["mlp"]},
            {},
            [
                r"^filters: left out",
                r"^base_model: linear has no use for it, so .*base",
            ],
        ),
        ({"merge_method": "slerp"}, {}, [r"^merge_method: .*nuslerp"]),
        (
            {"merge_method": "slerp", "models": ["x", "y", "z"]},
            {},
            [r"^merge_method: .*multislerp", r"leave of 1, below 0 where they exceed"],
        ),
        (
            {},
            {"apply_chat_template": True, "fewshot_as_multiturn": False},
            [r"^fewshot_as_multiturn: .*always true here"],
        ),
        (
            {},
            {"shuffle": True, "random_init": True, "num_fewshot": 3},
            [r"^shuffle: .*the same", r"^random_init: ", r"^num_fewshot: .*refuses"],
        ),
        ({}, {"tasks": ["arc_easy"]}, [r"^tasks: arc_easy must be built into lm-eval"]),
    ],
)
def test_each_change_is_said(
    genome: dict[str, Any],
    rest: dict[str, Any],
    messages: list[str],
    evolve: dict[str, Any],
) -> None:
    evolve["genome"] |= genome

    result = migrated(evolve | rest)

    for message in messages:
        assert [c for c in result.changes if re.search(message, c)], result.changes


def test_nothing_is_said_of_what_did_not_change(evolve: dict[str, Any]) -> None:
    evolve["tasks"] = evolve["tasks"][:1]

    starts = [change.split(":")[0] for change in migrated(evolve).changes]

    assert starts == ["tasks", "weights", "The command line of mergekit-evolve"]


def test_chat_templates_are_applied_by_default(evolve: dict[str, Any]) -> None:
    del evolve["apply_chat_template"]

    result = migrated(evolve)

    tasks = yaml.safe_load(result.text)["map"]["tasks"]
    assert all(task["apply_chat_template"] for task in tasks.values())
    assert any(c.startswith("apply_chat_template: true") for c in result.changes)


def test_a_task_that_is_read_twice_gets_two_names(evolve: dict[str, Any]) -> None:
    name = "questions_train"
    evolve["tasks"] = [name, {"name": name, "metric": "acc_norm,none"}, "mmlu/a b"]

    block = yaml.safe_load(migrated(evolve).text)["map"]

    names = [f"{name}-acc-none", f"{name}-acc_norm-none", "mmlu-a-b"]
    assert list(block["tasks"]) == list(block["select"]["prefer"]) == names
    assert [t["metric"] for t in block["tasks"].values()] == ["acc", "acc_norm", "acc"]
    assert block["tasks"]["mmlu-a-b"]["lm_eval"] == "mmlu/a b"


def test_models_of_one_name_have_coefficients_of_their_own(
    evolve: dict[str, Any],
) -> None:
    evolve["genome"] |= {"models": ["one/m", "two/m"], "filters": ["mlp"]}

    models = yaml.safe_load(migrated(evolve).text)["models"]

    names = [w["value"] for m in models for w in m["parameters"]["weight"]]
    assert names == ["one/m_mlp", "one/m_rest", "two/m_mlp", "two/m_rest"]


def test_changes_stand_on_top_of_the_file(evolve: dict[str, Any]) -> None:
    result = migrated(evolve)

    comments = [line for line in result.text.splitlines() if line.startswith("# ")]
    said = " ".join(line.removeprefix("# ").strip() for line in comments)
    assert comments[0].startswith("# From genome.yml of mergekit-evolve")
    assert max(map(len, comments)) <= 88
    for change in result.changes:
        assert f"- {change}" in said


def test_without_a_file_the_result_goes_to_standard_output(
    evolve: dict[str, Any],
) -> None:
    result = migrated(evolve)

    said = invoke(*["import-evolve", "genome.yml", "--task-search-path", "eval_tasks"])

    assert said.stdout == result.text
    assert said.stderr.splitlines() == [f"- {change}" for change in result.changes]
    assert (
        "Example: mergekit-map import-evolve"
        in invoke("import-evolve", "--help").output
    )


def test_no_file_is_overwritten(evolve: dict[str, Any]) -> None:
    migrated(evolve)
    Path("merge.yml").write_text("mine")

    result = click.testing.CliRunner().invoke(
        main, ["import-evolve", "genome.yml", "merge.yml"]
    )

    assert result.exit_code == 2
    assert "merge.yml exists already and is left as it is" in result.stderr
    assert Path("merge.yml").read_text() == "mine"


def test_a_task_with_two_files_is_refused(evolve: dict[str, Any]) -> None:
    Path("eval_tasks/again.yaml").write_text("group: text_train\ntask: [other]\n")

    with pytest.raises(ConfigError, match=r"'text_train' has two files, .*again.yaml"):
        migrated(evolve)


def test_all_problems_of_a_file_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "genome.yml"
    path.write_text(
        "model_name: mine\n"
        "genome:\n"
        "  models:\n"
        "    - x\n"
        "    - x\n"
        "  merge_method: ties\n"
        "  layer_granularty: 8\n"
        "tasks:\n"
        "  - name: one\n"
        "    wieght: 1\n"
        "  - 3\n"
        "  - {name: two, weight: .nan}\n"
        "limit: 0.5\n"
    )

    with pytest.raises(ConfigError, match="6 problems") as caught:
        migrate_evolve(path)

    reports = str(caught.value).splitlines()[1:]
    for line, message in [
        (1, r"model_name: unknown key 'model_name'; known: "),
        (7, r"layer_granularty: unknown key .* did you mean 'layer_granularity'"),
        (10, r"tasks\[0\]\.wieght: unknown key 'wieght'; did you mean 'weight'"),
        (11, r"tasks\[1\]: "),
        (12, r"tasks\[2\]\.weight: a finite number is required, got nan"),
        (13, r"limit: "),
    ]:
        place = rf"genome\.yml:{line}: (genome\.)?{message}"
        assert [r for r in reports if re.search(place, r)], reports


@pytest.mark.parametrize(
    ("genome", "tasks", "message"),
    [
        ({"models": ["x", "x"]}, ["t"], r":4: genome.models\[1\]: 'x' stands twice"),
        ({"base_model": None}, ["t"], r"'task_arithmetic' needs the key 'base_model'"),
        ({"models": ["base"]}, ["t"], r"needs 1 or more models beside .* got 0"),
        (
            {"merge_method": "linear", "models": ["x"]},
            ["t"],
            r"'linear' needs 2 or more",
        ),
        (
            {"merge_method": "slerp", "smooth": True, "models": ["x", "y"]},
            ["t"],
            r"genome\.smooth: mergekit-evolve has no 'smooth' for slerp",
        ),
        ({"merge_method": "della"}, ["t"], r"genome\.merge_method: .*got 'della'"),
        ({}, [], r"tasks: a list of at least 1 was expected, got \[\]"),
        ({}, [{"name": "t", "weight": 0}], r"tasks: every weight is 0"),
        ({}, ["t", {"name": "t", "weight": 2}], r"acc,none of 't' stands twice"),
        ({}, [{"weight": 2}], r"tasks\[0\]: the key 'name' is required and missing"),
    ],
)
def test_says_what_is_wrong(
    genome: dict[str, Any], tasks: list[Any], message: str, tmp_path: Path
) -> None:
    whole = {"merge_method": "task_arithmetic", "base_model": "base"}
    content = {"genome": {"models": ["x"], **whole} | genome, "tasks": tasks}
    path = tmp_path / "genome.yml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))

    with pytest.raises(ConfigError, match=message):
        migrate_evolve(path)


def test_it_needs_neither_ray_nor_a_model() -> None:
    script = "import sys, mergekit_map.commands.import_evolve; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", script]
    found = subprocess.run(command, check=True, capture_output=True, text=True)

    packages = {name.split(".")[0] for name in found.stdout.split()}
    assert not packages & {"torch", "mergekit", "lm_eval", "ray", "cma", "scipy"}
