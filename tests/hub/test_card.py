from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fronts import NOT_MEASURED, as_json, from_json, make_front
from huggingface_hub import ModelCard, parse_eval_result_entries
from markdown_it import MarkdownIt
from markdown_it.token import Token

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, TaskSpec
from mergekit_map.errors import ArtifactError
from mergekit_map.hub.card import MergeRecord, write_card
from mergekit_map.hub.card_text import Publication, published_card, read_card
from mergekit_map.hub.metadata import Licence
from mergekit_map.hub.sanitize import models_of, public_names

HUB_RECIPE = {
    "base_model": "x/base",
    "models": [{"model": "x/one@main"}, {"model": "y/two+z/adapter"}],
}
TASKS: dict[str, TaskSpec] = {
    "math": LmEvalTask(lm_eval="gsm8k", metric="acc", num_fewshot=5, limit=200),
    "code": PerplexityTask.model_validate({"perplexity": {"file": "a/code.txt"}}),
}
POINTS = [
    ([(0.7, 0.01), (2.8, 0.02)], [(0.71, 0.03), (2.81, 0.04)]),
    ([(0.65, 0.01), (2.4, 0.02)], NOT_MEASURED),
]
ANCHORS = {
    "base": [(0.5, 0.01), (3.1, 0.02)],
    "one": [(0.66, 0.01), (3.0, 0.02)],
    "two": [(0.4, 0.01), (2.2, 0.02)],
    "soup": [(0.69, 0.01), (2.1, 0.02)],
}


def record(
    *recipe: Mapping[str, Any], name: str = "merged", **front: Any
) -> MergeRecord:
    front = {"verdicts": ["No measured merge dominates base."], **front}
    made = from_json({**as_json(make_front(POINTS, ANCHORS)), **front})
    text = yaml.safe_dump_all(recipe or [HUB_RECIPE], sort_keys=False)
    command = "mergekit-yaml mergekit_config.yml OUT --random-seed 3"
    return MergeRecord(name, text, command, made, TASKS)


def written(
    folder: Path, made: MergeRecord, architecture: str = "LlamaForCausalLM"
) -> ModelCard:
    config = json.dumps({"architectures": [architecture]})
    (folder / "config.json").write_text(config)
    write_card(folder, made)
    return ModelCard.load(folder / "README.md")


def part(card: ModelCard, heading: str) -> str:
    """Cut a section out of a card."""
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", card.text, re.M | re.S)
    return str(found)


def test_metadata_names_all_parents_of_the_hub(tmp_path: Path) -> None:
    data = written(tmp_path, record()).data.to_dict()

    assert data["base_model"] == ["x/base", "x/one", "y/two", "z/adapter"]
    assert data["base_model_relation"] == "merge"
    assert data["library_name"] == "transformers"
    assert data["tags"] == ["mergekit", "merge", "mergekit-map"]
    assert data["pipeline_tag"] == "text-generation"


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_a_checkpoint_without_a_configuration_gets_no_card(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)

    with pytest.raises(ArtifactError, match=r"config\.json .*; merge again"):
        write_card(tmp_path, record())


def test_the_model_index_has_what_was_measured(tmp_path: Path) -> None:
    results = written(tmp_path, record()).data.eval_results

    math, math_stderr, code, code_stderr = results
    assert [r.task_name for r in results] == ["math", "math", "code", "code"]
    assert (math.dataset_type, math.metric_type) == ("gsm8k", "acc")
    assert (math.metric_value, code.metric_value) == (0.71, 2.81)
    assert math.task_type == code.task_type == "text-generation"
    assert math.dataset_args == {"num_few_shot": 5, "limit": 200}
    assert (code.dataset_name, code.metric_type) == ("code.txt", "loss")
    errors = [(r.metric_type, r.metric_value) for r in (math_stderr, code_stderr)]
    assert errors == [("acc_stderr", 0.03), ("loss_stderr", 0.04)]
    # Values and errors of a data set are metrics of one result.
    index = read_card(tmp_path).data.to_dict()["model-index"][0]["results"]
    assert [len(result["metrics"]) for result in index] == [2, 2]


def test_what_was_not_measured_is_in_no_index(tmp_path: Path) -> None:
    card = written(tmp_path, record(selected=1))

    assert card.data.eval_results is None
    assert "| 0.65 ± 0.01, predicted |" in part(card, "What it gains")


def test_what_it_gains_stands_first_beside_what_there_was_before(
    tmp_path: Path,
) -> None:
    card = written(tmp_path, record())

    assert re.findall("^## .*", card.text, re.M)[0] == "## What it gains"
    text = part(card, "What it gains")
    header = "| this model | base | uniform soup | best parent | gain kept |"
    assert f"| task {header}" in text
    math = [
        "0.71 ± 0.03",
        "0.5 ± 0.01 (+0.210 ± 0.032, better)",
        "0.69 ± 0.01 (+0.020 ± 0.032, noise)",
        "one: 0.66 ± 0.01 (+0.050 ± 0.032, noise)",
        "131 %",
    ]
    assert f"| math (higher is better) | {' | '.join(math)} |" in text
    assert "| two: 2.2 ± 0.02 (-0.610 ± 0.045, worse) | 32 % |" in text
    assert "This merge keeps 131 % of the best parent's gain" in card.text


def test_where_it_is_worse_than_the_base_is_said_first(tmp_path: Path) -> None:
    anchors = {**ANCHORS, "base": [(0.9, 0.01), (3.1, 0.02)]}
    made = record(anchors=as_json(make_front(POINTS, anchors))["anchors"])

    text = written(tmp_path, made).text
    found = re.search(r"\n\n([^\n]*orse than the base[^\n]*)\n\n## What", text)
    assert found is not None
    assert "math" in found[1]
    assert found[1].index("orse than the base") < found[1].index("keeps")


USE = "How to use it"


@pytest.mark.parametrize(
    ("method", "papers"),
    [
        ("task_arithmetic", ["2212.04089"]),
        ("ties", ["2306.01708"]),
        ("dare_ties", ["2311.03099", "2306.01708"]),
        ("della_linear", ["2406.11617"]),
        ("breadcrumbs", ["2312.06795"]),
        ("linear", ["2203.05482"]),
        ("one_of_my_own", []),
    ],
)
def test_the_method_is_told_with_its_papers(
    tmp_path: Path, method: str, papers: list[str]
) -> None:
    card = written(tmp_path, record({"merge_method": method, **HUB_RECIPE}))

    made = part(card, "How it was made")
    linked = re.findall(r"\(https://arxiv.org/abs/([\d.]+)\)", made)
    assert linked == [*papers, "2406.07529"]
    cited = re.findall(r"arXiv:([\d.]+)}", part(card, "Citation"))
    assert cited == ["2406.07529", *papers, "2403.13257"]
    assert (f"`{method}`" in made) == (not papers)


def test_benchmarks_of_the_hub_get_files_as_it_reads_them(tmp_path: Path) -> None:
    gsm8k = LmEvalTask(lm_eval="gsm8k", metric="exact_match", num_fewshot=5)
    written(tmp_path, replace(record(), tasks={**TASKS, "math": gsm8k}))

    (path,) = (tmp_path / ".eval_results").iterdir()
    assert path.name == "gsm8k.yaml"
    (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    assert (entry.dataset_id, entry.task_id) == ("openai/gsm8k", "gsm8k")
    assert entry.value == 71.0
    notes = "lm-evaluation-harness gsm8k, exact_match, 5-shot, standard error 3"
    assert entry.notes == notes


def test_the_front_is_drawn_and_tabled(tmp_path: Path) -> None:
    text = part(written(tmp_path, record()), "The front")

    measured, predicted = text.split("<details>")
    assert "](front.png)" in measured
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    assert "| 0 (this one) | 0 | 0.5 | 0.71 ± 0.03 | 2.81 ± 0.04 |" in measured
    assert "| soup |" in measured
    assert "\n| 1 |" not in measured
    assert "| 1 | 0.01 | 0.5 | 0.65 ± 0.01 | 2.4 ± 0.02 |" in predicted
    assert "recommended" not in text


def test_models_have_links_and_the_command_makes_them_again(tmp_path: Path) -> None:
    card = written(tmp_path, record())

    models = part(card, "Models")
    assert "- [x/base](https://huggingface.co/x/base), the base model" in models
    adapter = "[y/two](https://huggingface.co/y/two) + [z/adapter](https://"
    assert adapter in models
    commands = part(card, "How to reproduce")
    version = importlib.metadata.version("mergekit")
    assert f"\npip install mergekit=={version}\nmergekit-yaml merge" in commands
    assert "\nmergekit-yaml mergekit_config.yml OUT --random-seed 3\n" in commands


def test_no_local_path_reaches_the_card(tmp_path: Path) -> None:
    secret = tmp_path / "home" / "tuned"
    secret.mkdir(parents=True)
    models = [{"model": f"{secret}"}, {"model": f"x/one+{secret}"}]
    tokenizer = {"source": str(secret)}
    config = {"base_model": str(secret), "models": models, "tokenizer": tokenizer}
    made = record(config, reason=f"Point 0, better than {secret}.")
    command = f"mergekit-multi mergekit_config.yml --intermediate-dir {secret} OUT"
    made = MergeRecord(made.name, made.recipe, command, made.front, made.tasks)

    card = written(tmp_path, made)

    assert str(tmp_path) not in card.content
    assert "x/one+tuned" in card.content
    assert "better than tuned." in card.content
    assert "--intermediate-dir tuned OUT" in card.content
    assert "- tuned (a local model), the base model" in card.content
    assert card.data.base_model == ["x/one"]


def test_a_recipe_of_several_stages_names_the_models_alone(tmp_path: Path) -> None:
    pair = {"base_model": "x/base", "models": [{"model": "x/a"}, {"model": "x/b"}]}
    last = {"base_model": "x/base", "models": [{"model": "x/c"}, {"model": "pair-1"}]}

    card = written(tmp_path, record({"name": "pair-1", **pair}, last))

    assert card.data.base_model == ["x/base", "x/a", "x/b", "x/c"]
    stages = part(card, "Recipe").split("\n---\n")
    assert "name: pair-1" in stages[0]
    assert "model: x/c" in stages[1]


def plain(token: Token) -> str | None:
    """Read an inline token that is text alone."""
    if any(child.type != "text" for child in token.children or ()):
        return None
    return "".join(child.content for child in token.children or ())


@pytest.mark.parametrize(
    "evil",
    [
        "a|b",
        "```\n# heading\n",
        "<script>alert(1)</script>",
        "[click](javascript:x)",
        "---\nlicense: mit\n---",
        "*a* _b_ `c` \\ $d$",
        '"quoted": {yaml: [',
    ],
)
def test_no_name_can_do_harm(tmp_path: Path, evil: str) -> None:
    config = {"base_model": f"/models/{evil}", "models": [{"model": "x/one"}]}
    line = " ".join(evil.split())  # no front has another
    anchors = as_json(make_front(POINTS, {line: ANCHORS["one"]}))["anchors"]
    made = record(
        config, name=evil, anchors=anchors, reason=line, verdicts=[line, line]
    )

    card = written(tmp_path, made)

    assert "license" not in card.data.to_dict()
    assert card.data.model_name == evil
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = parser.parse(card.text)
    shown = " ".join(evil.split())
    inline = [token for token in tokens if token.type == "inline"]
    # The name is there where it belongs, as text alone, and nothing else changes.
    assert sum(plain(token) == shown for token in inline) == 1 + 1 + 1
    assert [t.tag for t in tokens if t.type == "heading_open"] == ["h1", *["h2"] * 8]
    html = [t.content for t in tokens if t.type == "html_block"]
    assert [text.strip()[:9] for text in html] == ["<details>", "</details"]
    assert not any(c.type == "html_inline" for t in inline for c in t.children or ())
    assert sum(token.type == "tr_open" for token in tokens) == 3 + 3 + 3
    recipe = re.search(r"(?ms)^(`{3,})yaml\n(.*?)^\1$", card.text)
    assert recipe is not None
    assert yaml.safe_load(recipe[2])["models"] == config["models"]


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        (["license: mit", "license: mit"], "mit"),
        (["license: mit", "license: apache-2.0"], None),
        (["license: mit", "tags: []"], None),
        (["license: mit", "license: [mit, gpl]"], None),
        (["license: mit", "license: {"], None),
        (["license: [mit]", "license: mit"], "mit"),
    ],
)
def test_the_licence_is_that_of_all_parents_if_they_have_one(
    tmp_path: Path, cards: list[str], expected: str | None
) -> None:
    models = []
    for number, text in enumerate(cards):
        folder = tmp_path / f"m{number}"
        folder.mkdir()
        (folder / "README.md").write_text(f"---\n{text}\n---\n")
        models.append({"model": str(folder)})

    card = written(tmp_path, record({"models": models}))

    assert card.data.license == expected


def published(card: ModelCard, *recipe: Mapping[str, Any], **changes: Any) -> ModelCard:
    parents = changes.pop("parents", {})
    names = public_names(models_of(recipe), parents)
    settled: dict[str, Any] = {
        "repo": "me/repo",
        "folder": "merged",
        "licence": Licence("other", "special", "https://host/terms"),
        "licences": {},
        "configs": recipe,
        "names": names,
        "renamed": bool(parents),
        "with_search": False,
        **changes,
    }
    return ModelCard(published_card(card, Publication(**settled)))


def test_publishing_completes_a_card_and_leaves_the_rest(tmp_path: Path) -> None:
    card = written(tmp_path, record())
    path = tmp_path / "README.md"
    path.write_text(path.read_text() + "\nMy own words.\n")

    public = published(read_card(tmp_path), HUB_RECIPE, with_search=True)

    data = public.data.to_dict()
    assert data["license"] == "other"
    assert data["license_name"] == "special"
    assert data["license_link"] == "https://host/terms"
    assert data["model-index"][0]["name"] == "repo"
    assert public.text.startswith("\n# repo\n")
    assert 'name = "me/repo"\n' in part(public, USE)
    assert "My own words." in public.text
    assert "mergekit-map select mergekit-map --knee" in part(public, "The search")
    assert "pip install mergekit-map" not in public.text
    assert part(public, "Models") == part(card, "Models")
    again = published(public, HUB_RECIPE, with_search=True)
    assert again.content == public.content
    assert "The search" not in published(public, HUB_RECIPE).text


def test_publishing_calls_local_models_by_their_hub_ids(tmp_path: Path) -> None:
    config = {"base_model": "x/base", "models": [{"model": "/data/one"}]}
    card = written(tmp_path, record(config))

    public = published(card, config, parents={"one": "me/one"})

    assert public.data.base_model == ["x/base", "me/one"]
    assert "[me/one](https://huggingface.co/me/one)" in part(public, "Models")
    assert "model: me/one" in part(public, "Recipe")
    assert part(public, "How to reproduce") == part(card, "How to reproduce")
