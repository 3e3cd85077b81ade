"""Workers find what one process finds, whoever is done first and whoever dies."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mergekit_map.errors import ConfigError, EvaluationError, MergeError
from mergekit_map.results.log import read_log
from mergekit_map.steps.crew import Gang
from mergekit_map.steps.hiring import hired
from mergekit_map.steps.processes import Died, Processes
from mergekit_map.steps.search import search_front
from mergekit_map.steps.serving import Open, Request, Serving

FOUND = ("front.json", "front.csv", "surrogates.json")

MINE = """
def one(model, tokenizer, documents=None):
    row = model.lm_head.weight[0].tolist()
    return [row[i] for i in (documents or range(len(row)))]
"""

# Text comes from a function beside the task, which lm-eval imports by its path.
CHOICES = """
task: choices
dataset_path: json
dataset_kwargs: {data_files: {test: choices.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: !function asked.text
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
ASK = """
task: ask
dataset_path: json
dataset_kwargs: {data_files: {test: choices.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: a
generation_kwargs: {until: [e], max_gen_toks: 8}
metric_list: [{metric: exact_match}]
"""
ASKED = "def text(document):\n    return 'one ' + document['question']\n"


class Here:
    """Workers of this process; which of those that were asked answers, is by chance.

    Some of them die instead, as often as ``deaths`` says, and no two of them at the
    same work; ``kill`` picks whose work.
    """

    def __init__(self, count: int, seed: int = 0, deaths: int = 0):
        self.count = count
        self.kill: Callable[[Request], bool] = lambda _: False
        self.asked: list[Request] = []
        self._rng, self._deaths = random.Random(seed), deaths
        self.killed: set[Any] = set()
        self._serving = [Serving() for _ in range(count)]
        self._open: dict[int, Request | None] = dict.fromkeys(range(count))

    def send(self, index: int, request: Request) -> None:
        assert index not in self._open, "a worker that is busy was asked"
        self._open[index] = request

    def hear(self, seconds: float | None = None) -> tuple[int, Any] | None:
        if not self._open or (seconds == 0 and self._rng.random() < 0.5):
            assert seconds is not None, "waits for nobody"
            return None
        index = self._rng.choice(sorted(self._open))
        request = self._open.pop(index)
        if request is None:
            return index, "ready"
        work = None if isinstance(request, Open) else request.work
        dies = work not in self.killed and self._rng.random() < 0.1
        if self.kill(request) or (dies and len(self.killed) < self._deaths):
            self.killed.add(work)
            return index, Died("was ended by SIGKILL")
        self.asked.append(request)
        return index, self._serving[index].answer(request)

    def restart(self, index: int) -> None:
        self._serving[index] = Serving()
        self._open[index] = None


@pytest.fixture(autouse=True)
def _paths() -> Iterator[None]:
    kept = [*sys.path]
    yield
    sys.path[:] = kept
    sys.modules.pop("mine", None)


@pytest.fixture
def config(
    family: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Give a configuration of two coefficients and two texts."""
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("hello world, one plus two\n" * 60)
    Path("two.txt").write_text("def return three\n" * 60)
    Path("mine.py").write_text(MINE)
    Path("choices.yaml").write_text(CHOICES)
    Path("asked.py").write_text(ASKED)
    Path("ask.yaml").write_text(ASK)
    rows = [
        {"question": f"hello {i}", "choices": ["one", "two"], "answer": i % 2}
        for i in range(12)
    ]
    Path("choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = {
        name: {"perplexity": {"file": f"{name}.txt"}, "block": 32}
        for name in ("one", "two")
    }
    return {
        "merge_method": "task_arithmetic",
        "base_model": str(family["base"]),
        "models": [{"model": str(family[name])} for name in "ab"],
        "map": {
            "batch_size": 4,
            "tasks": texts,
            "search": {"evaluations": 12, "remeasure": 2},
        },
    }


def search(config: dict[str, Any], run: str, workers: Gang | int | None = None) -> Path:
    Path("config.yml").write_text(yaml.safe_dump(config))
    search_front("config.yml", run, workers=workers)
    return Path(run)


def lines(run: Path) -> list[dict[str, Any]]:
    """Read a log without its timings."""
    texts = (run / "evaluations.jsonl").read_text().splitlines()
    return [{**json.loads(text), "seconds": 0} for text in texts]


def assert_same(run: Path, other: Path) -> None:
    assert lines(run) == lines(other)
    for name in FOUND:
        assert (run / name).read_bytes() == (other / name).read_bytes()
    recipes = [path.relative_to(run) for path in sorted(run.glob("recipes/*.yml"))]
    assert recipes
    for name in [*recipes, Path("recipe.yml")]:
        text = (run / name).read_text().replace(f"{run}/", f"{other}/")
        assert text == (other / name).read_text()
    assert not (run / "evaluations.early.jsonl").exists()


VARIANTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "refined": lambda _: None,
    "plain": lambda block: block["search"].update(refine=False),
    "bayesian": lambda block: block["search"].update(strategy="bayesian"),
    "nested": lambda block: block["search"].update(strategy="nested"),
    "in part": lambda block: [
        task.update(documents="auto") for task in block["tasks"].values()
    ],
    "held out": lambda block: block["search"].update(holdout=0.25),
    "on disk": lambda block: block.update(merge="disk"),
    "a benchmark": lambda block: block["tasks"].update(
        choices={"lm_eval": "choices.yaml", "metric": "acc"}
    ),
    "answers": lambda block: block["tasks"].update(
        ask={"lm_eval": "ask.yaml", "metric": "answer_tokens", "engine": "hf"}
    ),
    "a function": lambda block: block["tasks"].update(
        mine={"python": "mine:one", "direction": "maximize"}
    ),
}


QUICK = ("refined", "in part")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in VARIANTS
    ],
)
def test_workers_find_what_one_process_finds(name: str, config: dict[str, Any]) -> None:
    VARIANTS[name](config["map"])
    alone = search(config, "alone")
    gang = Here(3, seed=len(name), deaths=3)
    assert_same(search(config, "many", gang), alone)
    assert gang.killed
    assert any("documents" in line for line in lines(alone)) == (name == "in part")
    assert any(e["role"] == "holdout" for e in lines(alone)) == (name == "held out")
    assert len(gang.asked) > len(lines(alone))


def test_work_that_two_workers_died_at_is_a_failed_measurement(
    config: dict[str, Any],
) -> None:
    gang, third = Here(2), []

    def kill(request: Request) -> bool:
        if isinstance(request, Open) or request.work.task != "two":
            return False
        merges = {e.key[0] for e in read_log(Path("run/evaluations.jsonl"))}
        if len(merges) > 2 and not third:
            third.append(request.work)
        return request.work in third

    gang.kill = kill
    search(config, "run", gang)

    failed = [e for e in read_log(Path("run/evaluations.jsonl")) if e.failed]
    assert [(e.task, e.key[0]) for e in failed] == [
        ("two", tuple(sorted(third[0].merge)))
    ]
    assert str(failed[0].error).startswith(
        "task 'two': the worker that measured it was ended by SIGKILL, and so did"
    )


def test_models_that_cannot_be_opened_stop_a_search_as_in_one_process(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise EvaluationError("no room")

    monkeypatch.setattr("mergekit_map.steps.evaluate.check_room", lambda *_: refused(0))
    said = []
    for workers in (None, Here(2)):
        with pytest.raises(EvaluationError, match="no room") as error:
            search(config, "run", workers)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_workers_that_die_with_the_models_stop_a_search(config: dict[str, Any]) -> None:
    """It is no failure of a merge: nothing of it is in the log."""
    gang = Here(2)
    gang.kill = lambda request: isinstance(request, Open)
    said = (
        r"^worker \d of 2 was ended by SIGKILL twice while it opened the models; take"
    )
    with pytest.raises(MergeError, match=said):
        search(config, "run", gang)
    assert not Path("run/evaluations.jsonl").exists()


def test_what_was_measured_ahead_is_not_measured_again(config: dict[str, Any]) -> None:
    """A search that is stopped keeps what came before its turn."""
    alone = search(config, "alone")
    gang = Here(3, seed=1)

    def stop(_: Request) -> bool:
        if Path("run/evaluations.early.jsonl").exists() and len(gang.asked) > 12:
            raise KeyboardInterrupt("stopped")
        return False

    gang.kill = stop
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        search(config, "run", gang)
    early = [*read_log(Path("run/evaluations.early.jsonl"))]
    before = [*read_log(Path("run/evaluations.jsonl"))]
    assert early

    assert_same(search(config, "run"), alone)
    after = [*read_log(Path("run/evaluations.jsonl"))]
    assert after[: len(before)] == before
    # Timings say whether it is the same measurement or another one.
    taken = {(e.key, e.seconds) for e in after}
    assert {(e.key, e.seconds) for e in early} <= taken


@pytest.mark.slow
def test_pairs_are_merged_by_the_same_workers(
    config: dict[str, Any], family: dict[str, Path], make_model: Callable[..., Path]
) -> None:
    """Each pair is a project of its own, whose models the workers open anew."""
    third = make_model("workers", 71, family["base"])
    config["models"].append({"model": str(third)})
    config["merge_method"] = "ties"
    config["map"]["search"] |= {"strategy": "nested", "evaluations": 6}
    alone = search(config, "alone")
    gang = Here(2, seed=3, deaths=2)
    many = search(config, "many", gang)
    assert sum(isinstance(request, Open) for request in gang.asked) > gang.count
    for pair in ("nested/pair-1", "nested/pair-2"):
        logs = [lines(run / pair) for run in (alone, many)]
        # Fingerprints name the folder that the first pair was merged to.
        assert [{**e, "merge": 0} for e in logs[0]] == [
            {**e, "merge": 0} for e in logs[1]
        ]
    assert (many / "front.csv").read_bytes() == (alone / "front.csv").read_bytes()


@pytest.mark.slow
def test_processes_find_what_one_process_finds(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a benchmark", "a function"):
        VARIANTS[name](config["map"])
    alone = search(config, "alone")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert_same(search(config, "many", 2), alone)
    assert not [*scratch.iterdir()]


def test_workers_that_searched_search_again(config: dict[str, Any]) -> None:
    """They say once that they are there, whoever asks them afterwards."""
    alone = search(config, "alone")
    gang = Here(3, seed=2)
    assert_same(search(config, "once", gang), alone)
    config["map"]["tasks"].pop("two")
    config["map"]["tasks"]["one"]["block"] = 16
    other = search(config, "other")
    assert_same(search(config, "again", gang), other)


def test_workers_search_again_after_models_that_could_not_be_opened(
    config: dict[str, Any],
) -> None:
    gang = Here(2)
    gang.kill = lambda request: isinstance(request, Open)
    with pytest.raises(MergeError, match="twice"):
        search(config, "run", gang)
    gang.kill = lambda _: False

    assert_same(search(config, "run", gang), search(config, "alone"))


def test_workers_work_for_one_search_at_a_time(config: dict[str, Any]) -> None:
    gang = Here(2)
    with (
        hired(gang),
        pytest.raises(ConfigError, match="these workers work for another search"),
    ):
        search(config, "run", gang)


def test_workers_that_are_gone_are_not_waited_for(config: dict[str, Any]) -> None:
    with Processes(1) as processes:
        pass
    with pytest.raises(ConfigError, match="these workers have ended"):
        search(config, "run", processes)
