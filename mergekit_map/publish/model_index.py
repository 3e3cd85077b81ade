"""What was measured of a merge, as the ``model-index`` of a card has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from huggingface_hub import EvalResult

from mergekit_map.config.specs import LmEvalTask, PerplexityTask, PythonTask, TaskSpec
from mergekit_map.results.front import Readings

_UNKNOWN = "other"  # a type of task


def eval_results(
    tasks: Mapping[str, TaskSpec],
    measured: Readings,
    pipeline_tag: str | None,
) -> list[EvalResult]:
    """List what has a measured value; files of one's own go by their name alone."""
    task_type = pipeline_tag or _UNKNOWN
    results = [
        replace(_result(name, spec, value), task_type=task_type)
        for name, spec in tasks.items()
        if name in measured and (value := measured[name].value) is not None
    ]
    # What shares a data set is written as metrics of one task. Two tasks are not one.
    seen = Counter(result.unique_identifier for result in results)
    return [
        replace(r, dataset_config=r.task_name) if seen[r.unique_identifier] > 1 else r
        for r in results
    ]


def _result(name: str, spec: TaskSpec, value: float) -> EvalResult:
    match spec:
        case PerplexityTask():
            return _loss(name, spec, value)
        case LmEvalTask():
            return _benchmark(name, spec, value)
        case PythonTask():
            return EvalResult(
                task_type=_UNKNOWN,
                task_name=name,
                dataset_type="python",
                dataset_name=spec.python,
                metric_type=name,
                metric_value=value,
            )


def _loss(name: str, spec: PerplexityTask, value: float) -> EvalResult:
    text = spec.perplexity
    own = Path(text.file).name if text.file else None
    return EvalResult(
        task_type=_UNKNOWN,
        task_name=name,
        dataset_type=text.dataset or "own-text",
        dataset_name=own or str(text.dataset),
        dataset_config=text.name,
        dataset_split=None if own else text.split,
        dataset_revision=text.revision,
        dataset_args={"max_tokens": spec.max_tokens},
        metric_type="loss",
        metric_name="mean token loss (nats/token)",
        metric_value=value,
    )


def _benchmark(name: str, spec: LmEvalTask, value: float) -> EvalResult:
    path = Path(spec.lm_eval)
    dataset = path.stem if path.suffix in {".yaml", ".yml"} else spec.lm_eval
    args = {"num_few_shot": spec.num_fewshot, "limit": spec.limit}
    return EvalResult(
        task_type=_UNKNOWN,
        task_name=name,
        dataset_type=dataset,
        dataset_name=dataset,
        dataset_args={k: v for k, v in args.items() if v is not None} or None,
        metric_type=spec.metric,
        metric_name=f"{spec.metric} ({spec.filter})" if spec.filter else spec.metric,
        metric_value=value,
    )
