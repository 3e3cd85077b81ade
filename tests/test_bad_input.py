"""Bad input costs nothing (design contract 5): each mistake has its message.

Every case changes one thing of a configuration that works. The command must end with
exit code 2 and a message that names the place, and must not evaluate anything.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runs import invoke, lines, set_at, write, write_plain, write_texts
from task_files import write_choices

Change = Callable[[dict[str, Any], Path], Any]


def put(*place: Any) -> Change:
    """Set a value at a place of the configuration: ``put("map", "search", 3)``."""
    *keys, value = place
    return lambda config, _: set_at(config, value, *keys)


def in_layers(start: int, end: int) -> Change:
    """Merge the first two layers of all models but the last."""

    def change(config: dict[str, Any], _: Path) -> None:
        sources = [{**m, "layer_range": [0, 2]} for m in config.pop("models")]
        sources[-1]["layer_range"] = [start, end]
        config["slices"] = [{"sources": sources}]

    return change


def task(**fields: Any) -> Change:
    """Put another task beside the good one."""
    return put("map", "tasks", "other", fields)


def copied(of: str, name: str = "copy", without: str = "") -> Change:
    """Replace the first model by a copy of a model, perhaps without a file."""

    def change(config: dict[str, Any], folder: Path) -> None:
        names = {"model": config["models"][0]["model"], "base": config["base_model"]}
        left_out = shutil.ignore_patterns(without)
        shutil.copytree(names[of], folder / name, ignore=left_out)
        config["models"][0]["model"] = str(folder / name)

    return change


def searching(**keys: Any) -> Change:
    return put("map", "search", keys)


def parameters(**keys: Any) -> Change:
    """Give the first model other parameters."""
    return put("models", 0, "parameters", keys)


def both(one: Change, other: Change) -> Change:
    return lambda config, folder: (one(config, folder), other(config, folder))


NO_KEY = r"tasks\.other: the key 'metric' is required and missing; 'choices' has: acc, "
# The message, and the mistake.
CASES: dict[str, Change] = {
    # Keys that do not exist, at every level.
    r"merge_metod.*did you mean 'merge_method'": put("merge_metod", "x"),
    r"\[0\]\.parameters\.densty: .*'density'": parameters(densty=0.5),
    r"weight: .*unable to parse.*'0,5'": parameters(weight="0,5"),
    r"base_model: a model is written as text .*, got ''": put("base_model", ""),
    r"normalize: it holds for all models": parameters(normalize=True),
    # Things of the wrong type or out of range.
    r"a: item 2 of the list is missing": searching(bounds={"a": [0]}),
    r"'merge_method' is required": lambda c, _: c.pop("merge_method"),
    r"layer_range: the first layer.*, got \[1, 1\]": in_layers(1, 1),
    r"engine: .*'model' is not for 'args'": put(
        "map", "engine", {"name": "vllm", "args": {"model": "x"}}
    ),
    r"range ends at 9, but it has 2 layers": in_layers(0, 9),
    r"tokenizer: there is no folder './nowhere'": put(
        "tokenizer", {"source": "./nowhere"}
    ),
    r"search\.bounds: bounds must rise": searching(bounds=[1, 0]),
    r"bounds\.c: there is no coefficient 'c'; known: a, b": searching(
        bounds={"c": [0, 1]}
    ),
    r"map\.search: bayesian draws its own merges; remove 'design'": searching(
        strategy="bayesian", design="sobol"
    ),
    r"map\.search\.hours: .*settles beforehand how many": searching(
        refine=False, hours=1.5
    ),
    r"map\.search: 'order' is what nested merges.*add 'strategy: nested'": searching(
        order=["a", "b"]
    ),
    r"prefer\.txt: there is no task 'txt'; did you mean 'text'": put(
        "map", "select", {"prefer": {"txt": 1}}
    ),
    r"require\.text: .*a share above 0%.*got '0%'": put(
        "map", "select", {"require": {"text": "0%"}}
    ),
    r"map: a backend loads each merge from disk; add 'merge: disk'": put(
        "map", "backend", {"name": "vllm"}
    ),
    r"'pretrained' of a backend is each merge in turn": lambda c, _: c["map"].update(
        merge="disk", backend={"name": "hf", "args": {"pretrained": "x"}}
    ),
    # Methods and models.
    r"'model_stock' has no weight per model": lambda c, _: c.update(
        merge_method="model_stock", models=[{"model": m["model"]} for m in c["models"]]
    ),
    r"evaluations: a surrogate \(quadratic\) .* only 3 of 6 .*3 more": searching(
        evaluations=6, bounds=[0.2, 0.8], surrogate="quadratic"
    ),
    r"density: .* valid number.* got 'high'": parameters(density="high"),
    r"density 0\.9 ± epsilon 0\.15 reaches 0 or 1; choose a smaller epsilon": both(
        put("merge_method", "della"), parameters(density=0.9)
    ),
    r"density: a number was .*, got true": parameters(density=True),
    r"density\[1\]: .* 0 to 1 .*got -1": parameters(density=[0.5, -1]),
    r"weight: a finite .*, got NaN": parameters(weight=float("nan")),
    r"model: there is no folder": put("models", 0, "model", "./nowhere"),
    r"chat_template: there is no chat template '\{\{ nope'; .*auto": put(
        "chat_template", "{{ nope"
    ),
    r"there is no folder 'nobody/nothing', and the cache": put(
        "models", 0, "model", "nobody/nothing"
    ),
    r"stands twice": lambda c, _: c["models"][1].update(
        model=f"{c['models'][0]['model']}/."
    ),
    r"base/\.' are one model; write it the same way": lambda c, _: c["models"].append(
        {"model": f"{c['base_model']}/."}
    ),
    r"no model besides the base model": lambda c, _: c.update(
        models=[{"model": c["base_model"]}]
    ),
    r"\d+: models\[0\].model: mergekit refuses this: Can't parse .*a\+b\+c": copied(
        "model", "a+b+c"
    ),
    r"\d+: models\[0\].model: a model is written as text .*, got 'xxx": put(
        "models", 0, "model", "x" * 5000
    ),
    r"does not differ from base": copied("base"),
    r"holds no weights": copied("model", without="*.safetensors"),
    # Tasks.
    r"task names are up to 100 letters": put("map", "tasks", "a b", {}),
    r"exactly one of the keys 'perplexity', 'preset', 'lm_eval' and 'python'": task(
        python="a:b", lm_eval="x"
    ),
    r"a file has no name, split or revision; remove that key": task(
        perplexity={"file": "a.txt", "split": "test"}
    ),
    r"a \.txt file has no fields; remove 'field'": task(
        perplexity={"file": "a.txt", "field": "body"}
    ),
    NO_KEY: both(lambda _, folder: write_choices(folder), task(lm_eval="choices.yaml")),
    r"no preset 'mbpp'; .* as .lm_eval: TASK, metric": task(preset="mbpp"),
    r"text\.documents: nested measures every merge on all documents.* out": both(
        searching(strategy="nested"), put("map", "tasks", "text", "documents", 8)
    ),
    r"other\.documents: some documents do not tell .* out": task(
        python="mine:one", direction="maximize", documents=8
    ),
    r"tasks\.other: some documents do not tell .* out": both(
        searching(strategy="nested", holdout=0.3),
        task(python="mine:one", direction="maximize"),
    ),
    r"search\.holdout: .* or equal to 0\.99": searching(holdout=1.0),
    r"init config\.yml config-map\.yml": lambda c, _: c.pop("map"),
    r"limit: .* valid integer, or less than 1, got 1\.0": task(
        lm_eval="choices.yaml", metric="acc", limit=1.0
    ),
}


@pytest.fixture
def good(family: dict[str, Path]) -> dict[str, Any]:
    """A configuration that works, in the working directory."""
    text, merge = write_texts("text", max_tokens=300), {"method": "ties"}
    config = write_plain(family, text, **merge, density=0.5, remeasure=0)
    del config["dtype"]
    return config


def search(config: dict[str, Any], code: int = 2) -> str:
    """Search; returns what is said from the error on, in one line."""
    write(config)
    result = invoke("search", "config.yml", "run", code=code)
    assert "Traceback" not in result.output
    return " ".join(result.stderr.partition("error: ")[2].split())


def test_the_good_configuration_is_good(good: dict[str, Any]) -> None:
    assert search(good, code=0) == ""


@pytest.mark.parametrize("expected", CASES)
def test_bad_input_is_explained(expected: str, good: dict[str, Any]) -> None:
    CASES[expected](good, Path.cwd())

    message = search(good)

    assert message.startswith("1 problem in config.yml: config.yml:"), message
    assert re.search(expected, message), message
    assert not Path("run").exists()


def test_all_problems_are_reported_together(good: dict[str, Any]) -> None:
    good["dtype"] = "float23"
    good["map"]["search"] = {"sed": 1}
    good["map"]["tasks"] |= {
        "other": {"perplexity": {"file": "no.txt"}},
        "lines": {"perplexity": {"file": "bad.jsonl"}},
        "code": {"python": "no:f", "direction": "minimize"},
    }
    good["models"][1]["parameters"] = {"densty": 1}
    Path("bad.jsonl").write_text("no\n")

    message = search(good)

    assert message.startswith("6 problems in config.yml: ")
    assert "map.tasks.other.perplexity.file: " in message
    numbers = [int(found) for found in re.findall(r" config\.yml:(\d+):", message)]
    assert numbers == sorted(numbers)
    assert len(numbers) == 6


def test_problems_of_tasks_hide_none_of_the_search(good: dict[str, Any]) -> None:
    task(perplexity={"file": "a", "blok": 2})(good, Path())
    put("map", "search", {"evaluations": 2})(good, Path())
    put("map", "select", {"not_worse_than": "sup"})(good, Path())

    message = search(good)

    assert message.startswith("3 problems in config.yml: ")
    few = "map.search.evaluations: 4 reference points are always .* at least 2 more"
    assert re.search(few, message)
    assert "map.select.not_worse_than: there is no 'sup' to compare with" in message


# Ten lines that are ten thousand million values.
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "a mapping with merge_method, models and map was expected, got an empty"),
        ("- a", "was expected, got a list"),
        ("a: 1\na: 2\n", "stands twice"),
        ("1.5: a\n", "unknown key '1.5'"),
        ('map: {"a\\0b": 1}\n', ":1: map.'a\\x00b': the character '\\x00' cannot be"),
        ("seed: !!int many\n", "not valid YAML: invalid literal for int()"),
        ("seed: !!python/name:os.system ''\n", "not valid YAML: could not determine"),
        (BOMB, "line 1: more than 20000 values with its aliases written out"),
        ("a: " + "[" * 50_000, "or more than 40 levels"),
    ],
)
@pytest.mark.usefixtures("good")
def test_files_that_are_no_configuration(content: str, expected: str) -> None:
    Path("config.yml").write_text(content)

    result = invoke("search", "config.yml", "run", code=2)

    assert expected in " ".join(result.stderr.split())


@pytest.mark.parametrize("name", ["holiday.jpg", "config.yml"])
def test_a_folder_in_the_way_is_left_as_it_is(name: str, good: dict[str, Any]) -> None:
    Path("run").mkdir()
    Path("run", name).write_text("my: precious")

    assert "holds files that are not of a search" in search(good)
    assert Path("run", name).read_text() == "my: precious"


def test_output_that_exists_or_cannot_be_written_is_refused(
    good: dict[str, Any],
) -> None:
    write(good)
    Path("run").mkdir()
    Path("out").mkdir()

    for command in ("run config.yml out", "merge run out"):
        said = invoke(*command.split(), code=2).stderr
        assert "out exists already and is left as it is" in said
    assert list(Path("out").iterdir()) == []
    said = invoke("search", "config.yml", "/proc/run", code=2).stderr
    assert "/proc/run" in said
    assert "cannot be written" in said


def test_a_metric_that_is_nan_everywhere(good: dict[str, Any]) -> None:
    Path("mine.py").write_text("def f(model, tokenizer):\n    return float('nan')\n")
    good["map"]["tasks"]["nan"] = {"python": "mine:f", "direction": "maximize"}

    assert "task 'nan' cannot be measured" in search(good)
    assert [line["value"] for line in lines("run")].count(None) == 3
