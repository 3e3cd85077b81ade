import copy
import logging
import math
import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from task_files import (
    build_model,
    build_tokenizer,
    write_choices,
    write_generation,
    write_rolling,
    write_yaml,
)
from transformers import LlamaForCausalLM

from mergekit_map.config.schema import BackendSpec
from mergekit_map.config.tasks import LmEvalTask
from mergekit_map.errors import EvaluationError
from mergekit_map.tasks.isolation import quiet
from mergekit_map.tasks.loading import load_tasks
from mergekit_map.tasks.preparing import prepare_tasks
from mergekit_map.types import Measure, Measurement

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>"


def prepare(
    folder: Path,
    model: Any,
    tokenizer: Any,
    lm_eval: str,
    metric: str,
    backend: BackendSpec | None = None,
    **options: Any,
) -> Measure:
    spec = LmEvalTask.model_validate({"lm_eval": lm_eval, "metric": metric, **options})
    tasks, problems = load_tasks({"mine": spec}, folder)
    assert not problems
    prepared = prepare_tasks(tasks, model, tokenizer, batch_size=8, backend=backend)
    return prepared["mine"]


def stock(
    folder: Path,
    model: Any,
    tokenizer: Any,
    task: str,
    batch_size: int = 8,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate as the ``lm_eval`` command does, from a saved checkpoint."""
    path = folder / "checkpoint"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    with quiet(), mock.patch("lm_eval.evaluator.add_env_info"):  # seconds
        results = simple_evaluate(
            model="hf",
            model_args=f"pretrained={path},softmax_dtype=float32",
            tasks=[task],
            batch_size=batch_size,
            device="cpu",
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            **options,
        )
    assert results is not None
    return dict(results)


def assert_equal_samples(
    mine: Measurement, theirs: list[dict[str, Any]], rounding: float = 1e-5
) -> None:
    """Compare log-likelihoods to what rounding is: other batches of lm-eval differ."""
    assert [s["doc_hash"] for s in mine.samples] == [s["doc_hash"] for s in theirs]
    found = [s["loglikelihoods"] for s in mine.samples]
    expected = [[one for one, _ in s["filtered_resps"]] for s in theirs]
    assert list(map(len, found)) == list(map(len, expected))
    for mine_of_one, theirs_of_one in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine_of_one, theirs_of_one, rtol=rounding)


def loglikelihoods(results: dict[str, Any]) -> Any:
    (samples,) = results["samples"].values()
    return np.array([[one for one, _ in s["filtered_resps"]] for s in samples])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"num_fewshot": 2}, {"limit": 7}, {"limit": 0.2}], ids=str
)
def test_choices_are_scored_as_by_the_command(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, options: dict[str, Any]
) -> None:
    write_choices(folder)

    result = prepare(folder, model, tokenizer, "choices.yaml", "acc", **options)()

    expected = stock(folder, model, tokenizer, "choices", **options)
    theirs = expected["results"]["choices"]
    assert (result.value, result.stderr) == (
        theirs["acc,none"],
        theirs["acc_stderr,none"],
    )
    assert result.details == {"acc_norm,none": theirs["acc_norm,none"]}
    assert 0 < result.value < 1
    assert result.n == theirs["sample_len"]
    assert_equal_samples(result, expected["samples"]["choices"])


def test_bfloat16_models_are_scored_as_by_the_command(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder)
    model.to(torch.bfloat16).save_pretrained(folder / "half")
    half = LlamaForCausalLM.from_pretrained(folder / "half")  # rotations in float32

    result = prepare(folder, half, tokenizer, "choices.yaml", "acc_norm")()

    theirs = {
        rows: stock(folder, half, tokenizer, "choices", batch_size=rows)
        for rows in (1, 8, 32)
    }
    assert result.value == theirs[8]["results"]["choices"]["acc_norm,none"]
    mine = np.array([s["loglikelihoods"] for s in result.samples])
    found = {rows: loglikelihoods(one) for rows, one in theirs.items()}
    # lm-eval differs so much from itself, unless the processor rounds all rows alike.
    own = max(abs(found[rows] - found[8]).max() for rows in (1, 32))
    assert own < 0.1
    rounding = 2**-8 * abs(found[8]).max()  # of bfloat16
    assert abs(mine - found[8]).max() < 2 * max(own, rounding)


@pytest.mark.slow
def test_chat_templates_are_applied_as_by_the_command(
    folder: Path, model: LlamaForCausalLM
) -> None:
    write_choices(folder)
    tokenizer = build_tokenizer()
    plain = prepare(folder, model, tokenizer, "choices.yaml", "acc", num_fewshot=1)()
    tokenizer.chat_template = CHAT
    options: dict[str, Any] = {"num_fewshot": 1, "apply_chat_template": True}

    result = prepare(folder, model, tokenizer, "choices.yaml", "acc", **options)()

    expected = stock(
        folder, model, tokenizer, "choices", fewshot_as_multiturn=True, **options
    )
    assert_equal_samples(result, expected["samples"]["choices"])
    assert result.samples != plain.samples
    # A backend measures the checkpoint that the command has measured.
    arguments = {"softmax_dtype": "float32", "device": "cpu"}
    options["backend"] = BackendSpec(name="hf", args=arguments)
    saved = LlamaForCausalLM.from_pretrained(folder / "checkpoint")
    result = prepare(folder, saved, tokenizer, "choices.yaml", "acc", **options)()
    assert_equal_samples(result, expected["samples"]["choices"])


def test_rolling_tasks_are_scored_as_by_the_command(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any, documents: list[str]
) -> None:
    write_rolling(folder, documents)

    bits = prepare(folder, model, tokenizer, "rolling.yaml", "bits_per_byte")()
    words = prepare(folder, model, tokenizer, "rolling.yaml", "word_perplexity")()

    theirs = stock(folder, model, tokenizer, "rolling")["results"]["rolling"]
    assert bits.value == pytest.approx(theirs["bits_per_byte,none"], rel=1e-6)
    # The exponential of some 80 nats.
    assert words.value == pytest.approx(theirs["word_perplexity,none"], rel=1e-4)
    # lm-eval has no standard error here; bootstrap the mean over documents instead.
    pairs = torch.tensor(
        [s["bits_per_byte"] for s in bits.samples], dtype=torch.float64
    )
    generator = torch.Generator().manual_seed(0)
    draws = pairs[torch.randint(len(pairs), (20_000, len(pairs)), generator=generator)]
    spread = (draws[..., 0].sum(1) / draws[..., 1].sum(1)).std().item() / math.log(2)
    # The bootstrap of few items lacks the factor n / (n - 1).
    corrected = spread * math.sqrt(len(pairs) / (len(pairs) - 1))
    assert bits.stderr == pytest.approx(corrected, rel=0.25)
    assert words.stderr is not None


@pytest.mark.slow
def test_rolling_tasks_of_long_models_see_2048_tokens(
    folder: Path, tokenizer: Any, documents: list[str]
) -> None:
    model = build_model(len(tokenizer))
    model.config.max_position_embeddings = 4096
    write_rolling(folder, [" ".join(documents * 4)])

    result = prepare(folder, model, tokenizer, "rolling.yaml", "bits_per_byte")()

    with quiet():
        lm = HFLM(pretrained=model, tokenizer=tokenizer, max_length=2048)
        manager = TaskManager(include_defaults=False)
        path = str(folder / "rolling.yaml")
        theirs = simple_evaluate(model=lm, tasks=[path], task_manager=manager)
    assert theirs is not None
    expected = theirs["results"]["rolling"]["bits_per_byte,none"]
    assert result.value == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_groups_have_the_value_and_error_of_lm_eval(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder, "first")
    write_choices(folder, "second", doc_to_text="{{question}}", test_split="train")
    for weighted in (True, False):
        aggregate = [{"metric": "acc", "weight_by_size": weighted}]
        content = {"group": "both", "task": ["first", "second"]}
        content["aggregate_metric_list"] = aggregate
        write_yaml(folder / "both.yaml", content)

        result = prepare(folder, model, tokenizer, "both.yaml", "acc")()

        theirs = stock(folder, model, tokenizer, "both")["results"]["both"]
        assert result.value == theirs["acc,none"]
        assert result.stderr == pytest.approx(theirs["acc_stderr,none"], rel=1e-12)
        assert result.n == 52
        assert {s["task"] for s in result.samples} == {"first", "second"}


def test_sampled_answers_are_the_same_each_time_and_with_each_filter(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_generation(folder)
    options = {"metric": "exact_match", "filter": "letter"}
    run = prepare(folder, model, tokenizer, "generation.yaml", **options)

    first, again = run(), run()

    expected = stock(folder, model, tokenizer, "generation")
    theirs = expected["results"]["generation"]
    assert first == again
    assert first.value == theirs["exact_match,letter"]
    assert first.details == {"exact_match,whole": theirs["exact_match,whole"]}
    assert first.n == 6


def test_documents_made_at_random_are_those_that_were_asked_about(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    path = write_choices(folder)
    path.write_text(path.read_text() + "process_docs: !function own_order.process\n")
    (folder / "own_order.py").write_text(
        "from itertools import count\n\nseeds = count()\n\n\n"
        "def process(rows):\n    return rows.shuffle(seed=next(seeds))\n"
    )
    spec = LmEvalTask(lm_eval="choices.yaml", metric="acc")
    tasks, _ = load_tasks({"mine": spec}, folder)
    samples = prepare_tasks(tasks, model, tokenizer, batch_size=8)["mine"]().samples

    asked = tasks["mine"].loaded["tasks"]["choices"].instances
    answers = {request.doc_id: request.doc["answer"] for request in asked}
    assert len(samples) == len(answers) == 40
    for sample in samples:
        best = int(np.argmax(sample["loglikelihoods"]))
        assert sample["acc"] == (best == answers[sample["doc_id"]])


def test_values_follow_weights_overwritten_in_place(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder)
    other = build_model(len(tokenizer), seed=1)
    expected = prepare(folder, other, tokenizer, "choices.yaml", "acc", num_fewshot=1)()
    run = prepare(folder, model, tokenizer, "choices.yaml", "acc", num_fewshot=1)

    first, again = run(), run()
    for target, source in zip(model.parameters(), other.parameters(), strict=True):
        target.copy_(source)

    assert first == again
    assert run() == expected
    assert first.samples != expected.samples


@pytest.mark.slow
def test_tasks_do_not_change_each_other(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder)
    specs = {
        name: LmEvalTask.model_validate(
            {"lm_eval": "choices.yaml", "metric": "acc", **options}
        )
        for name, options in {
            "two": {"num_fewshot": 2},
            "few": {"num_fewshot": 2, "limit": 5},
            "none": {},
        }.items()
    }
    tasks, _ = load_tasks(specs, folder)
    together = prepare_tasks(tasks, model, tokenizer, batch_size=8)
    together["none"]()

    for name, spec in specs.items():
        tasks, _ = load_tasks({name: spec}, folder)
        alone = prepare_tasks(tasks, model, tokenizer, batch_size=8)[name]()
        assert together[name]() == alone
    few, two = together["few"](), together["two"]()
    assert [s["doc_hash"] for s in few.samples] == [
        s["doc_hash"] for s in two.samples[:5]
    ]


def test_the_model_the_tokenizer_and_the_generators_are_left_alone(
    folder: Path, model: LlamaForCausalLM, capfd: pytest.CaptureFixture[str]
) -> None:
    write_generation(folder)
    tokenizer = build_tokenizer()
    # A merge of models with different heads: HFLM would tie the head again.
    model.config.tie_word_embeddings = True
    before = {name: p for name, p in model.named_parameters()}
    values = copy.deepcopy(model.state_dict())
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global generator is what is tested
    torch.manual_seed(5)
    expected = (random.random(), np.random.rand(), torch.rand(1))  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)

    options = {"metric": "exact_match", "filter": "whole"}
    prepare(folder, model, tokenizer, "generation.yaml", **options)()

    drawn = (random.random(), np.random.rand(), torch.rand(1))  # noqa: NPY002
    assert drawn == expected
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    assert all(torch.equal(values[k], v) for k, v in model.state_dict().items())
    assert tokenizer.pad_token is None
    assert capfd.readouterr() == ("", "")


def test_warns_of_prompts_that_lm_eval_cuts(
    folder: Path,
    model: LlamaForCausalLM,
    tokenizer: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_choices(folder, doc_to_text="{{'the cat ' * 50}}{{question}}")

    with caplog.at_level(logging.WARNING, "mergekit_map"):
        prepare(folder, model, tokenizer, "choices.yaml", "acc", limit=3)

    assert "task 'mine': 12 of 12 prompts are too long for the 128" in caplog.text


def test_says_that_the_tokenizer_has_no_chat_template(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder)

    with pytest.raises(EvaluationError, match=r"task 'mine' .* chat template, this"):
        prepare(
            folder, model, tokenizer, "choices.yaml", "acc", apply_chat_template=True
        )


def test_says_that_the_tokenizer_has_neither_bos_nor_eos(
    folder: Path, model: LlamaForCausalLM
) -> None:
    write_choices(folder)
    tokenizer = build_tokenizer()
    tokenizer.bos_token = tokenizer.eos_token = None

    with pytest.raises(EvaluationError, match="BOS or EOS token, this one has neither"):
        prepare(folder, model, tokenizer, "choices.yaml", "acc")


def test_a_failing_evaluation_names_task_and_model(
    folder: Path, model: LlamaForCausalLM, tokenizer: Any
) -> None:
    write_choices(folder)
    run = prepare(folder, model, tokenizer, "choices.yaml", "acc")
    model.lm_head = torch.nn.Linear(3, 3)

    with pytest.raises(EvaluationError, match=r"task 'mine' on model .*RuntimeError"):
        run()
