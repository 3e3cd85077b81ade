"""The verdicts, word by word, on fronts made by hand."""

from __future__ import annotations

import pytest
from fronts import CODE, MATH, NOT_MEASURED, Row, as_json, from_json, make_front

from mergekit_map.results.front import Front
from mergekit_map.results.verdict_words import verdicts_in_words

# Math falls as code, where lower is better, gets better.
TRADING: list[tuple[Row, Row]] = [
    ([(0.70, 0.01), (2.80, 0.02)], [(0.70, 0.03), (2.81, 0.04)]),
    ([(0.65, 0.01), (2.40, 0.02)], [(0.64, 0.03), (2.41, 0.04)]),
    ([(0.50, 0.01), (2.10, 0.02)], NOT_MEASURED),
]
ROWS = [row for row, _ in TRADING]
AGREES = (
    "At the chosen point 1 predicted and measured agree within 2 standard errors on "
    "every task."
)


def verdicts(front: Front) -> list[str]:
    return list(verdicts_in_words(front))


def about(front: Front, word: str) -> list[str]:
    return [sentence for sentence in verdicts(front) if word in sentence]


def predictions(*rows: Row) -> Front:
    return make_front([(row, NOT_MEASURED) for row in rows])


def test_a_trade_off_is_told_from_where_to_where() -> None:
    assert verdicts(make_front(TRADING, selected=1)) == [
        "math and code trade off, as predicted: math goes from 0.5 to 0.7 (best at "
        "point 0), code goes from 2.8 to 2.1 nats/token (best at point 2).",
        AGREES,
    ]


def test_one_point_is_best_on_all_tasks() -> None:
    front = predictions([(0.7, 0.01), (2.1, None)])

    assert verdicts(front)[0] == (
        "There is no trade-off: one merge is best on all tasks: point 0."
    )


def test_of_one_task_the_best_is_best() -> None:
    tasks = {"math": MATH}
    front = make_front([([(0.7, 0.01)], [(0.7, 0.01)])], tasks=tasks)

    assert verdicts(front)[0] == (
        "There is no trade-off: one merge is best on math: point 0."
    )


def test_a_front_within_noise_is_no_trade_off() -> None:
    noise = 0.3
    front = predictions(*([(m, noise), (c, noise)] for (m, _), (c, _) in ROWS))

    assert verdicts(front)[0] == (
        "There is no trade-off: as predicted, the whole front differs by less than the "
        "noise on every task; take point 1."
    )


def test_where_one_task_is_within_noise_the_best_of_the_other_is_best() -> None:
    front = predictions(*([m, (c, 0.5)] for m, (c, _) in ROWS))

    assert verdicts(front)[0] == (
        "There is no trade-off: as predicted, point 0 is within noise of the best on "
        "every task; take point 0."
    )


def test_a_task_within_noise_stays_out_of_the_trade_off() -> None:
    tasks = {"math": MATH, "code": CODE, "text": MATH}
    rows = [[*row, (0.5 + i / 100, 0.01)] for i, row in enumerate(ROWS)]
    missing = [(None, None)] * 3
    front = make_front([(row, missing) for row in rows], tasks=tasks)

    assert about(front, "text ") == [
        "text stays out of it: it differs by 0.02, and noise explains 0.028."
    ]
    assert verdicts(front)[0].startswith("math and code trade off")


def test_an_anchor_that_is_dominated_is_told_with_the_numbers() -> None:
    front = make_front(TRADING, {"base": [(0.40, 0.03), (2.50, 0.04)]}, selected=1)

    assert about(front, "base") == [
        "As measured, the chosen point 1 dominates base: ahead by more than noise on "
        "math (0.64 ± 0.03 against 0.4 ± 0.03), behind on none."
    ]


def test_dominance_names_a_front_point_by_its_coefficients() -> None:
    front = make_front(TRADING, {"mine": [(0.5, 0.01), (2.9, 0.01)]}, selected=2)

    (sentence,) = about(front, "mine")

    assert sentence.startswith(
        "As measured, point 0 (a=0, b=0.5) dominates mine: ahead"
    )


@pytest.mark.parametrize(
    "row",
    [
        [(0.72, 0.03), (3.00, 0.04)],  # the best math
        [(0.60, 0.03), (2.42, 0.04)],  # behind on both, but within noise
        [(0.63, 0.03), (2.40, 0.04)],  # ahead on code, if only by noise
    ],
)
def test_an_anchor_that_nothing_dominates_is_told_in_plain_words(row: Row) -> None:
    front = make_front(TRADING, {"expert": row}, selected=1)

    assert about(front, "expert") == ["No measured merge dominates expert."]


def test_predictions_dominate_nothing() -> None:
    row = [(0.10, 0.01), (2.15, 0.01)]  # point 2, predicted only, is far ahead of it

    front = make_front(TRADING, {"expert": row}, selected=1)

    assert about(front, "expert") == ["No measured merge dominates expert."]


def test_an_anchor_that_dominates_the_chosen_merge_is_the_better_choice() -> None:
    front = make_front(TRADING, {"expert": [(0.75, 0.03), (2.20, 0.04)]}, selected=1)

    assert about(front, "expert") == [
        "No measured merge dominates expert.",
        "As measured, expert dominates the chosen point 1: ahead by more than noise on "
        "math (0.75 ± 0.03 against 0.64 ± 0.03) and code (2.2 ± 0.04 against 2.41 ± "
        "0.04 nats/token, lower is better), behind on none. So expert is the better "
        "choice.",
    ]


def test_an_anchor_may_dominate_another() -> None:
    front = make_front(
        TRADING,
        {"one": [(0.8, 0.01), (2.0, 0.01)], "two": [(0.7, 0.01), (2.2, 0.01)]},
        selected=1,
    )

    assert about(front, "dominates two")[0].startswith("As measured, one dominates two")


def test_an_anchor_without_a_value_is_not_compared() -> None:
    front = make_front(TRADING, {"expert": [(0.1, 0.01), (None, None)]}, selected=1)

    assert about(front, "expert") == ["No comparison with expert: no value of code."]


def test_a_measured_merge_that_dominates_the_chosen_point_is_named() -> None:
    front = make_front(
        TRADING,
        merges=[
            ((0.25, 0.75), [(0.66, 0.01), (2.20, 0.01)]),
            ((0.30, 0.70), [(0.70, 0.01), (2.00, 0.01)]),  # better still
            ((0.90, 0.10), [(0.99, 0.01), (2.90, 0.01)]),
        ],
        selected=1,
    )

    assert about(front, "the merge with") == [
        "As measured, the merge with a=0.3, b=0.7 dominates the chosen point 1: ahead "
        "by more than noise on code (2 ± 0.01 against 2.41 ± 0.04 nats/token, lower is "
        "better), behind on none. So does 1 more."
    ]


def test_noise_that_is_not_known_is_not_claimed_to_be_exceeded() -> None:
    points = [(row, NOT_MEASURED) for row in ROWS]
    rows = [((0.5, 0.5), [(0.5, None), (2.0, None)])]
    front = make_front(points, {"base": [(0.5, None), (2.5, None)]}, rows)

    assert about(front, "dominates base") == [
        "As measured, the merge with a=0.5, b=0.5 dominates base: ahead on code (2 "
        "against 2.5 nats/token, lower is better; standard errors unknown), behind on "
        "none."
    ]
    # An import without a standard error, by less than the noise of the other.
    rows = [((0.5, 0.5), [(0.5, None), (2.46, None)])]
    front = make_front(points, {"base": [(0.5, 0.1), (2.5, 0.04)]}, rows)
    assert about(front, "base") == ["No measured merge dominates base."]


def test_predictions_that_miss_are_told() -> None:
    rows = [*TRADING]
    rows[1] = (rows[1][0], [(0.55, 0.02), (2.41, 0.04)])

    assert verdicts(make_front(rows, selected=1))[1:] == [
        "At the chosen point 1 math was predicted as 0.65 ± 0.01 and measured as 0.55 "
        "± 0.02, 4.5 standard errors apart: trust the measurement.",
        "At the chosen point 1 predicted and measured agree within 2 standard errors "
        "on code.",
    ]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(0.699, "agree within 2"), (0.701, "0.701 ± 0.02, 2.0 standard errors apart")],
)
def test_two_standard_errors_apart_is_where_agreement_ends(
    measured: float, expected: str
) -> None:
    # 0.65 and 0.70 are 0.05 apart: 2 * sqrt(0.015**2 + 0.02**2).
    reading = [(measured, 0.02)]
    front = make_front([([(0.65, 0.015)], reading)], tasks={"math": MATH})

    assert expected in verdicts(front)[1]


@pytest.mark.parametrize(
    ("measured", "expected"),
    [(0.65001, "agree within"), (0.651, "and measured as 0.651, 0.001 apart")],
)
def test_without_standard_errors_what_reads_the_same_agrees(
    measured: float, expected: str
) -> None:
    tasks = {"math": MATH}
    front = make_front([([(0.65, None)], [(measured, None)])], tasks=tasks)

    assert expected in verdicts(front)[1]


def test_a_chosen_point_that_was_not_measured_is_told() -> None:
    front = make_front(TRADING, {"expert": [(0.9, 0.01), (1.0, 0.01)]}, selected=2)

    assert verdicts(front)[1:] == [
        "No measured merge dominates expert.",
        "Not measured at the chosen point 2 yet: math and code; merging it does so.",
    ]


def test_nan_is_as_good_as_null() -> None:
    nan = float("nan")
    rows = [*TRADING[:2], (ROWS[2], [(nan, None), (nan, nan)])]
    for selected in range(3):
        front = make_front(rows, {"x": [(nan, nan), (2.0, nan)]}, selected=selected)
        assert "NaN" not in " ".join(verdicts(front))
        assert all(m.value is None for m in front.points[2].measured.values())


def test_a_task_turned_round_in_values_and_direction_changes_the_wording_only() -> None:
    front = make_front(TRADING, {"base": [(0.40, 0.03), (2.90, 0.04)]}, selected=1)
    content = as_json(front)
    content["tasks"]["code"]["direction"] = "maximize"
    for merge in [*content["points"], *content["anchors"]]:
        for kind in ("predicted", "measured"):
            if merge[kind]["code"]["value"] is not None:
                merge[kind]["code"]["value"] *= -1
    turned = from_json(content)

    assert "lower is better" in about(front, "base")[0]
    plain = " ".join(verdicts(front)).replace(", lower is better", "")

    assert " ".join(verdicts(turned)).replace("-", "") == plain.replace("-", "")


def with_fit(**fit: float | None) -> list[str]:
    row = ([0.5, 0.01], [1.0, 0.01])
    tasks = {"math": {**MATH, "fit": {"n": 9, "r2": 0.9, **fit}}, "code": CODE}
    front = make_front([(row, row)], tasks=tasks)
    return [
        line
        for line in verdicts(front)
        if ("math" in line and "fit" in line) or "Predictions" in line
    ]


def test_a_quadratic_of_the_wrong_shape_is_told_with_what_to_do() -> None:
    (line,) = with_fit(loo_r2=0.4, residual_stderr=0.2)

    assert "Predictions of math are poor (R² 0.40" in line
    assert "surrogate: residual_gp" in line
    assert "smaller box" in line


def test_a_poor_fit_within_the_noise_asks_for_more_items() -> None:
    (line,) = with_fit(loo_r2=0.4, residual_stderr=0.005)

    assert "no worse than its noise: measure it on more items" in line


def test_a_fit_through_every_merge_cannot_be_checked() -> None:
    (line,) = with_fit(loo_r2=None, residual_stderr=None)

    assert "cannot be checked" in line


def test_a_good_fit_is_not_mentioned() -> None:
    assert with_fit(loo_r2=0.95, residual_stderr=0.2) == []


def test_a_fit_is_poor_below_nine_tenths() -> None:
    assert with_fit(loo_r2=0.901, residual_stderr=0.2) == []
    (line,) = with_fit(loo_r2=0.899, residual_stderr=0.2)
    assert "are poor" in line
