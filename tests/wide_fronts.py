"""A front of four models and four tasks with long names, which is wide to show."""

from __future__ import annotations

from fronts import NOT_MEASURED, as_json, from_json, make_front

from mergekit_map.results.front import Front

MODELS = (
    "mistral-french-instruct-v2",
    "german-reading-7b",
    "code-llama-python-ft",
    "math-shepherd-merged",
)
TASKS = (
    "french_reading_comprehension_choice",
    "german_reading_loss",
    "python_completion_pass_at_1",
    "gsm8k_flexible_extract",
)
CHOSEN = 4
_ACCURACY = {"direction": "maximize", "range": [0, 1], "unit": ""}
_LOSS = {"direction": "minimize", "range": [0, None], "unit": "nats/token"}


def wide_front(points: int = 12) -> Front:
    """Every fourth point is measured; all numbers of a point tell it from others."""
    rows = []
    for i in range(points):
        row = [
            (0.61234 + 0.01 * i, 0.0123),
            (2.5432 - 0.02 * i, 0.0231),
            (0.3312 + 0.003 * i, 0.014),
            (1.1234 + 0.02 * i, 0.0215),
        ]
        measured = [(value + 0.001, error) for value, error in row]
        rows.append((row, NOT_MEASURED * 2 if i % 4 else measured))
    anchors = {
        "base": [(0.5, 0.01), (3.1, 0.02), (0.2, 0.01), (1.9, 0.02)],
        "soup": [(0.55, 0.01), (2.7, 0.02), (0.25, 0.01), (1.5, 0.02)],
    }
    for k, model in enumerate(MODELS):
        anchors[model] = [
            (0.5 + 0.03 * k, 0.01),
            (2.9 - 0.1 * k, 0.02),
            (0.22 + 0.01 * k, 0.01),
            (1.7 - 0.1 * k, 0.02),
        ]
    tasks = dict(zip(TASKS, [_ACCURACY, _LOSS] * 2, strict=True))
    content = as_json(
        make_front(rows, anchors, tasks=tasks, selected=CHOSEN, recommended=[4, 8])
    )
    content["coefficients"] = {model: [0.0, 1.0] for model in MODELS}
    for i, point in enumerate(content["points"]):
        weights = {m: 0.1 + 0.05 * i + 0.111 * k for k, m in enumerate(MODELS)}
        point["coefficients"] = weights
    for anchor in content["anchors"]:
        rest = 0.25 if anchor["label"] == "soup" else 0.0
        weights = {m: 1.0 if m == anchor["label"] else rest for m in MODELS}
        anchor["coefficients"] = weights
    return from_json(content)
