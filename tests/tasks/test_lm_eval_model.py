import copy
import logging
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.api.metrics import mean_stderr
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from task_files import (
    Bench,
    build_tokenizer,
    by_lm_eval,
    kept_generations,
    write_choices,
    write_generation,
    write_rolling,
    write_yaml,
)
from transformers import LlamaForCausalLM

from mergekit_map.config.schema import BackendSpec
from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.base import quiet
from mergekit_map.tasks.loading import Generations, load_tasks, prepare_tasks
from mergekit_map.types import Measurement

ACC = {"lm_eval": "choices.yaml", "metric": "acc"}
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>"


def measure(bench: Bench, lm_eval: str, metric: str, **options: Any) -> Measurement:
    return bench.prepare({"lm_eval": lm_eval, "metric": metric, **options})()


def stock(bench: Bench, task: str, **options: Any) -> dict[str, Any]:
    """Save a checkpoint, and evaluate it as the ``lm_eval`` command does."""
    path = bench.folder / "checkpoint"
    bench.model.save_pretrained(path)
    bench.tokenizer.save_pretrained(path)
    return by_lm_eval(path, task, bench.folder, **options)


def assert_equal_samples(mine: Measurement, theirs: list[dict[str, Any]]) -> None:
    """Compare log-likelihoods to what rounding is: other batches of lm-eval differ."""
    assert [s["doc_hash"] for s in mine.samples] == [s["doc_hash"] for s in theirs]
    found = [s["loglikelihoods"] for s in mine.samples]
    expected = [[one for one, _ in s["filtered_resps"]] for s in theirs]
    assert list(map(len, found)) == list(map(len, expected))
    for mine_of_one, theirs_of_one in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine_of_one, theirs_of_one, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"num_fewshot": 2}, {"limit": 7}, {"limit": 0.2}], ids=str
)
def test_choices_score_as_by_the_command(bench: Bench, options: dict[str, Any]) -> None:
    result = measure(bench, "choices.yaml", "acc", **options)

    expected = stock(bench, "choices", **options)
    theirs = expected["results"]["choices"]
    assert result.value == theirs["acc,none"]
    assert result.stderr == theirs["acc_stderr,none"]
    assert result.details == {"acc_norm,none": theirs["acc_norm,none"]}
    assert 0 < result.value < 1
    assert result.n == theirs["sample_len"]
    assert_equal_samples(result, expected["samples"]["choices"])


@pytest.mark.parametrize("name", ["choices", "generation"])
def test_a_model_that_predicts_nan_has_no_value(bench: Bench, name: str) -> None:
    """lm-eval would take its first choice, and the first token, for the likeliest."""
    write_generation(bench.folder, draws=False)
    measured = bench.prepare({"choices": ACC, "generation": LENGTH}[name])
    bench.model.lm_head.weight.data.fill_(math.nan)

    with pytest.raises(EvaluationError, match="the model predicts NaN"):
        measured()


def test_bfloat16_models_are_scored_as_by_the_command(bench: Bench) -> None:
    half = bench.folder / "half"
    bench.model.to(torch.bfloat16).save_pretrained(half)
    bench.model = LlamaForCausalLM.from_pretrained(half)  # rotations in float32

    result = measure(bench, "choices.yaml", "acc_norm")

    theirs = {rows: stock(bench, "choices", batch_size=rows) for rows in (1, 8, 32)}
    assert result.value == theirs[8]["results"]["choices"]["acc_norm,none"]
    mine = np.array([s["loglikelihoods"] for s in result.samples])
    answers = {rows: one["samples"]["choices"] for rows, one in theirs.items()}
    found = {
        rows: np.array([[one for one, _ in s["filtered_resps"]] for s in samples])
        for rows, samples in answers.items()
    }
    # lm-eval differs so much from itself, unless the processor rounds all rows alike.
    own = max(abs(found[rows] - found[8]).max() for rows in (1, 32))
    assert own < 0.1
    rounding = 2**-8 * abs(found[8]).max()  # of bfloat16
    assert abs(mine - found[8]).max() < 2 * max(own, rounding)


@pytest.mark.slow
def test_chat_templates_are_applied_as_by_the_command(bench: Bench) -> None:
    plain = measure(bench, "choices.yaml", "acc", num_fewshot=1)
    bench.tokenizer = build_tokenizer()
    bench.tokenizer.chat_template = CHAT
    options: dict[str, Any] = {"num_fewshot": 1, "apply_chat_template": True}

    result = measure(bench, "choices.yaml", "acc", **options)

    expected = stock(bench, "choices", fewshot_as_multiturn=True, **options)
    assert_equal_samples(result, expected["samples"]["choices"])
    assert result.samples != plain.samples
    # A backend measures the checkpoint that the command has measured.
    backend = BackendSpec(name="hf", args={"softmax_dtype": "float32", "device": "cpu"})
    saved = LlamaForCausalLM.from_pretrained(bench.folder / "checkpoint")
    task = bench.load(lm_eval="choices.yaml", metric="acc", **options)
    result = bench.prepare(task, saved, backend=backend)()
    assert_equal_samples(result, expected["samples"]["choices"])


def test_prompts_of_chat_templates_have_the_date_of_no_day(bench: Bench) -> None:
    bench.tokenizer = build_tokenizer()
    bench.tokenizer.chat_template = "{{ strftime_now('%d %b %Y') }}"
    task = bench.load(lm_eval="choices.yaml", metric="acc", apply_chat_template=True)

    bench.prepare(task)

    assert {request.args[0] for request in task.requests} == {"26 Jul 2024"}


def test_rolling_tasks_are_scored_as_by_the_command(
    bench: Bench, documents: list[str]
) -> None:
    write_rolling(bench.folder, documents)

    bits = measure(bench, "rolling.yaml", "bits_per_byte")
    words = measure(bench, "rolling.yaml", "word_perplexity")

    theirs = stock(bench, "rolling")["results"]["rolling"]
    assert bits.value == pytest.approx(theirs["bits_per_byte,none"], rel=1e-6)
    # The exponential of some 80 nats.
    assert words.value == pytest.approx(theirs["word_perplexity,none"], rel=1e-4)


@pytest.mark.slow
def test_rolling_tasks_of_long_models_see_2048_tokens(
    bench: Bench, documents: list[str]
) -> None:
    bench.model.config.max_position_embeddings = 4096
    path = write_rolling(bench.folder, [" ".join(documents * 4)])

    result = measure(bench, "rolling.yaml", "bits_per_byte")

    with quiet():
        lm = HFLM(pretrained=bench.model, tokenizer=bench.tokenizer, max_length=2048)
        manager = TaskManager(include_defaults=False)
        theirs = simple_evaluate(model=lm, tasks=[str(path)], task_manager=manager)
    expected = theirs["results"]["rolling"]["bits_per_byte,none"]
    assert result.value == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("groups")
def test_groups_have_the_value_and_error_of_lm_eval(bench: Bench) -> None:
    write_choices(
        bench.folder, "second", doc_to_text="{{question}}", test_split="train"
    )
    for weighted in (True, False):
        aggregate = [{"metric": "acc", "weight_by_size": weighted}]
        content = {"group": "both", "task": ["choices", "second"]}
        content["aggregate_metric_list"] = aggregate
        write_yaml(bench.folder / "both.yaml", content)

        result = measure(bench, "both", "acc")

        theirs = stock(bench, "both")["results"]["both"]
        assert result.value == theirs["acc,none"]
        assert result.stderr == pytest.approx(theirs["acc_stderr,none"], rel=1e-12)
        assert result.n == 52
        assert {s["task"] for s in result.samples} == {"choices", "second"}


def test_own_results_of_filtered_choices_have_the_jackknife_error(bench: Bench) -> None:
    """Of a mean, leaving out a document at a time gives the usual standard error."""
    path = write_choices(
        bench.folder,
        filter_list=[{"name": "k", "filter": [{"function": "take_first_k", "k": 1}]}],
        metric_list=[{"metric": "f1", "aggregation": "nanmean"}],
    )
    path.write_text(path.read_text() + "process_results: !function own_f1.process\n")
    (bench.folder / "own_f1.py").write_text(
        "def process(doc, results):\n"
        "    scores = [answers[0][0] for answers in results]\n"
        "    return {'f1': scores.index(max(scores)) == doc['answer']}\n"
    )

    result = measure(bench, "choices.yaml", "f1", direction="maximize")

    theirs = stock(bench, "choices")
    found = [sample["f1"] for sample in theirs["samples"]["choices"]]
    assert result.value == theirs["results"]["choices"]["f1,k"]
    assert result.stderr == pytest.approx(mean_stderr(found), rel=1e-9)
    (bench.folder / "own_f1.py").write_text("process = lambda *_: {'f1': 0.0}\n")
    assert measure(bench, "choices.yaml", "f1", direction="maximize").stderr == 0


def test_sampled_answers_are_the_same_each_time_and_per_filter(bench: Bench) -> None:
    keys = {"lm_eval": "generation.yaml", "metric": "exact_match", "filter": "letter"}
    run = bench.prepare(keys)

    first, again = run(), run()

    theirs = stock(bench, "generation")["results"]["generation"]
    assert first == again
    assert first.value == theirs["exact_match,letter"]
    assert first.details == {"exact_match,whole": theirs["exact_match,whole"]}
    assert first.n == 6


def test_documents_made_at_random_are_those_that_were_asked_about(bench: Bench) -> None:
    path = write_choices(bench.folder)
    path.write_text(path.read_text() + "process_docs: !function own_order.process\n")
    (bench.folder / "own_order.py").write_text(
        "from itertools import count\n\nseeds = count()\n\n\n"
        "def process(rows):\n    return rows.shuffle(seed=next(seeds))\n"
    )
    task = bench.load(**ACC)
    samples = bench.prepare(task)().samples

    asked = task.loaded["tasks"]["choices"].instances
    answers = {request.doc_id: request.doc["answer"] for request in asked}
    assert len(samples) == len(answers) == 40
    for sample in samples:
        best = int(np.argmax(sample["loglikelihoods"]))
        assert sample["acc"] == (best == answers[sample["doc_id"]])


@pytest.mark.slow
def test_tasks_do_not_change_each_other(bench: Bench) -> None:
    two = {"num_fewshot": 2}
    asked = {"two": two, "few": {**two, "limit": 5}, "none": {}}
    specs = {n: LmEvalTask.model_validate({**ACC, **o}) for n, o in asked.items()}
    tasks, _ = load_tasks(specs, bench.folder)
    options: Any = {"batch_size": 8, "generations": {}}
    together = prepare_tasks(tasks, bench.model, bench.tokenizer, **options)
    together["none"]()

    for name, spec in specs.items():
        tasks, _ = load_tasks({name: spec}, bench.folder)
        alone = prepare_tasks(tasks, bench.model, bench.tokenizer, **options)
        assert together[name]() == alone[name]()
    few, two = together["few"](), together["two"]()
    assert [s["doc_hash"] for s in few.samples] == [
        s["doc_hash"] for s in two.samples[:5]
    ]


def test_the_model_the_tokenizer_and_the_generators_are_left_alone(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = bench.model, build_tokenizer()
    # A merge of models with different heads: HFLM would tie the head again.
    model.config.tie_word_embeddings = True
    before = {name: p for name, p in model.named_parameters()}
    values = copy.deepcopy(model.state_dict())
    keys = {"lm_eval": "generation.yaml", "metric": "exact_match", "filter": "whole"}

    def draw() -> tuple[float, float, torch.Tensor]:
        return random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002

    def seed() -> None:
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002 - the global generator is what is tested
        torch.manual_seed(5)

    seed()
    expected = draw()
    seed()

    bench.prepare(keys, tokenizer=tokenizer)()

    assert draw() == expected
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert all(torch.equal(values[k], v) for k, v in model.state_dict().items())
    assert tokenizer.pad_token is None
    assert capfd.readouterr() == ("", "")


def test_warns_of_prompts_that_lm_eval_cuts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    write_choices(bench.folder, doc_to_text="{{'the cat ' * 70}}{{question}}")

    with caplog.at_level(logging.WARNING, "mergekit_map"):
        bench.prepare({**ACC, "limit": 3})

    assert "task 'mine': 12 of 12 prompts are too long for the 128" in caplog.text
    bench.model.config.max_position_embeddings = 8
    with pytest.raises(EvaluationError, match="up to 8 tokens leave no room for a pro"):
        bench.prepare(LENGTH)


def test_says_what_the_tokenizer_lacks(bench: Bench) -> None:
    with pytest.raises(EvaluationError, match=r"'mine' .*with a chat template"):
        bench.prepare({**ACC, "apply_chat_template": True})
    tokenizer = build_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token = None
    with pytest.raises(EvaluationError, match="BOS or EOS token, this one has neither"):
        bench.prepare(ACC, tokenizer=tokenizer)


LENGTH = {"lm_eval": "generation.yaml", "metric": "answer_tokens"}


def test_the_tokens_of_the_text_before_the_stop_string_are_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = kept_generations(monkeypatch)

    found = bench.prepare(LENGTH)()

    (texts,) = generated
    encode = bench.tokenizer
    counts = [len(encode(t, add_special_tokens=False)["input_ids"]) for t in texts]
    assert len(set(counts)) > 1
    assert not any("." in text for text in texts)
    assert [s["answer_tokens"] for s in found.samples] == counts
    assert found.value == pytest.approx(np.mean(counts))
    assert found.stderr == pytest.approx(np.std(counts, ddof=1) / math.sqrt(6))
    assert found.n == 6
    assert found.details.keys() == {"exact_match,letter", "exact_match,whole"}


def test_other_documents_are_generated_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = kept_generations(monkeypatch)
    options = {"generations": Generations()}
    right = {**LENGTH, "metric": "exact_match", "filter": "whole"}
    rightness, length = (bench.prepare(task, **options) for task in (right, LENGTH))

    rightness([0, 2, 5])
    length([0, 2, 5])
    length([0, 2])

    assert [len(texts) for texts in generated] == [3, 2]
