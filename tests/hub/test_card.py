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
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from markdown_it.token import Token

from mergekit_map.config.tasks import LmEvalTask, PerplexityTask, TaskSpec
from mergekit_map.hub.card import (
    Licence,
    MergeRecord,
    read_card,
    renamed_card,
    with_parents,
    with_search,
    write_card,
)
from mergekit_map.hub.sanitize import public_names
from mergekit_map.models.references import referenced_models
from mergekit_map.results.answer import answer

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
    recipe: Mapping[str, Any] = HUB_RECIPE, *, name: str = "merged", **front: Any
) -> MergeRecord:
    made = from_json({**as_json(make_front(POINTS, ANCHORS)), **front})
    text = yaml.safe_dump(recipe, sort_keys=False)
    command = "mergekit-yaml mergekit_config.yml OUT --random-seed 3"
    return MergeRecord(name, text, command, made, TASKS)


def written(made: MergeRecord) -> ModelCard:
    """Write a card into the working directory, and read it."""
    Path("config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    write_card(Path(), made)
    return ModelCard.load("README.md")


def part(card: ModelCard, heading: str) -> str:
    """Cut a section out of a card."""
    (found,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", card.text, re.M | re.S)
    return str(found)


@pytest.mark.parametrize(
    ("given", "shown"), [("/data/me/fr", "own-text"), ("me/fr", "me/fr")]
)
def test_a_folder_of_a_dataset_is_own_text(given: str, shown: str) -> None:
    task = PerplexityTask.model_validate({"perplexity": {"dataset": given}})

    card = written(replace(record(), tasks={**TASKS, "code": task}))

    (code,) = [one for one in card.data.eval_results if "code" in one.metric_name]
    assert code.dataset_type == shown
    assert "/data" not in str(card)


def test_metadata_names_all_parents_of_the_hub_and_rounded_values() -> None:
    measured = [(0.7123456, 0.03), (2.8123456, 0.0041)]
    made = make_front([(POINTS[0][0], measured)], ANCHORS)
    data = written(replace(record(), front=made)).data

    assert data.base_model == ["x/base", "x/one", "y/two", "z/adapter"]
    assert data.base_model_relation == "merge"
    assert data.library_name == "transformers"
    assert data.tags == ["mergekit", "merge", "mergekit-map"]
    assert data.pipeline_tag == "text-generation"
    math, code = data.eval_results
    assert (math.dataset_type, math.metric_type) == ("gsm8k", "acc")
    assert (math.metric_name, math.metric_value) == ("math: acc on gsm8k", 0.7123)
    assert math.task_type == code.task_type == "text-generation"
    assert math.metric_args == {"num_few_shot": 5, "limit": 200}
    assert (code.dataset_type, code.metric_type) == ("own-text", "loss")
    assert (code.metric_name, code.metric_value) == ("code: loss on code.txt", 2.812)


def test_index_and_table_have_held_out_values_and_the_index_no_predictions() -> None:
    held = {"math": {"value": 0.68, "stderr": 0.01}}
    point = as_json(record().front)["points"][0]["coefficients"]
    merges = [{"coefficients": point, "measured": held}]
    holdout = {"documents": {"math": 9}, "choices": 1, "merges": merges}
    card = written(record(holdout=holdout))

    assert [r.metric_value for r in card.data.eval_results] == [0.68, 2.81]
    assert " | chosen merge | 0.6800 |" in card.text
    predicted = written(record(selected=1))
    assert predicted.data.eval_results is None
    assert "| predicted 0.6500 |" in predicted.text


def test_the_card_begins_with_the_answer_of_the_search() -> None:
    anchors = {**ANCHORS, "soup": [(0.6, 0.01), (3.2, 0.02)]}
    known = as_json(make_front(POINTS, anchors))["anchors"]
    made = record(anchors=known, reason="Chosen, as it is best.")
    found = answer(made.front)

    card = written(made)

    headline, table = card.text.split("\n\n")[1:3]
    assert headline == f"**{found.headline}**"
    _, _, first, *others = table.splitlines()
    assert first.startswith("| math (higher is better) | chosen merge | 0.7100 |")
    assert len(others) == len(found.table) - 1
    shown, details = card.text.split("<details>")[:2]
    assert found.sample.split(":")[0] in shown
    assert "Chosen, as it is best." in details


USE = "How to use it"


@pytest.mark.parametrize("chat", [True, False])
def test_models_have_links_and_commands_make_and_use_the_merge(chat: bool) -> None:
    config = {"chat_template": "{{ messages }}"} if chat else {}
    Path("tokenizer_config.json").write_text(json.dumps(config))

    card = written(record())

    use, models, commands = (part(card, name) for name in (USE, "Models", "Recipe"))
    assert ('"content": "YOUR PROMPT"' in use) == chat
    assert use.count("YOUR PROMPT") == 1
    assert "- [x/base](https://huggingface.co/x/base), the base model" in models
    assert "[y/two](https://huggingface.co/y/two) + [z/adapter](https://" in models
    assert "](front.png)" in card.text
    assert Path("front.png").read_bytes().startswith(b"\x89PNG")
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
    cache = tmp_path / "adapters" / "1234"
    command = f"mergekit-yaml {secret} OUT --lora-merge-cache {cache}"

    card = written(replace(made, command=command))

    assert str(tmp_path) not in card.content
    assert "x/one+tuned" in card.content
    assert "better than tuned." in card.content
    assert "mergekit-yaml tuned OUT --lora-merge-cache 1234" in card.content
    assert "- tuned (a local model, in a folder of this name), the base" in card.content
    assert card.data.base_model == ["x/one"]


def plain(token: Token) -> str | None:
    """Read an inline token that is text alone."""
    if {child.type for child in token.children or ()} - {"text"}:
        return None
    return "".join(child.content for child in token.children or ())


@pytest.mark.parametrize(
    "evil",
    [
        "a|b",
        "```\n# heading\n",
        "`````\n# heading\n",
        "<script>alert(1)</script>",
        "[click](javascript:x)",
        "---\nlicense: mit\n---",
        "*a* _b_ `c` \\ $d$",
        '"quoted": {yaml: [',
    ],
)
def test_no_name_can_do_harm(evil: str) -> None:
    config = {"base_model": f"/models/{evil}", "models": [{"model": "x/one"}]}
    config["chat_template"] = f"{{{{ x }}}}\n{evil}"
    line = " ".join(evil.split())  # no front has another
    anchors = as_json(make_front(POINTS, {line: ANCHORS["one"]}))["anchors"]

    card = written(record(config, name=evil, anchors=anchors, reason=line))

    assert "license" not in card.data.to_dict()
    assert card.data.model_name == evil
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(card.text)
    inline = [token for token in tokens if token.type == "inline"]
    # The name is there where it belongs, as text alone, and nothing else changes.
    assert sum(plain(token) == line for token in inline) >= 1 + 2 + 1
    assert [t.tag for t in tokens if t.type == "heading_open"] == ["h1", *["h2"] * 3]
    html = [t.content for t in tokens if t.type == "html_block"]
    assert [text.strip()[:9] for text in html] == ["<details>", "</details"] * 3
    assert not any(c.type == "html_inline" for t in inline for c in t.children or ())
    assert sum(token.type == "tr_open" for token in tokens) == 1 + 2 * 2
    recipe = re.search(r"(?ms)^(`{3,})yaml\n(.*?)^\1$", card.text)
    assert yaml.safe_load(recipe[2])["models"] == config["models"]


@pytest.mark.parametrize(
    "licence",
    [
        *("{", "other\nlicense_link: https://host/a", "mit\na: &a {}\nb: *a"),
        f"other\nlicense_name: {'[' * 9**4}",
    ],
)
def test_a_parent_with_a_damaged_card_or_terms_without_a_name_has_no_known_licence(
    licence: str, tmp_path: Path
) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / "README.md").write_text(f"---\nlicense: {licence}\n---\n")

    assert written(record({"models": [{"model": str(parent)}]})).data.license is None


def test_publishing_completes_a_card_and_leaves_the_rest() -> None:
    card = written(record())
    path = Path("README.md")
    path.write_text(path.read_text() + "\nMy own words.\n")
    licence = Licence("other", "special", "https://host/terms")

    public = renamed_card(read_card(Path()), "merged", "me/repo", licence)
    public = with_search(public, uploaded=True)

    data = public.data.to_dict()
    found = Licence(data["license"], data["license_name"], data["license_link"])
    assert found == licence
    assert data["model-index"][0]["name"] == "repo"
    assert public.text.startswith("\n# repo\n")
    assert 'name = "me/repo"\n' in part(public, USE)
    assert "My own words." in public.text
    assert "`mergekit-map/`" in part(public, "The search")
    assert part(public, "Models") == part(card, "Models")
    assert with_search(public, uploaded=True).content == public.content
    other = renamed_card(card, "Models", "me/new", None)  # the name of a section
    assert part(other, "Models") == part(card, "Models")
    assert "The search" not in with_search(public, uploaded=False).text


def test_publishing_calls_local_models_by_their_hub_ids() -> None:
    models = [{"model": "/data/one"}, {"model": "/data/big-one"}]
    config = {"base_model": "x/base", "models": models}
    card = written(record(config))
    before = part(card, "Recipe")

    names = public_names(referenced_models(config), {"one": "me/one"})
    public = with_parents(card, config, names)

    assert public.data.base_model == ["x/base", "me/one"]
    assert "\n- [me/one](https://huggingface.co/me/one)" in part(public, "Models")
    assert "\n- big-one (a local model" in part(public, "Models")
    assert "model: me/one" in part(public, "Recipe")
    assert part(public, "Recipe").replace("me/one", "one") == before
    assert "- one (a local model, in a folder of this name)" in part(card, "Models")
    assert public.text.count("local") == 1
