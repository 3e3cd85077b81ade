"""The trade-off detector: fronts whose verdict can be read off, and identities."""

import numpy as np
import pytest

from mergekit_map.optimize.selection import detect_tradeoff

# The second task moves by 0.1, a tenth of the first.
FRONT = np.array([[1.0, 0.0], [0.9, 0.08], [0.0, 0.1]])
NAN = np.nan


def errors(first: float, second: float) -> np.ndarray:
    """Standard errors that are the same at every point of ``FRONT``."""
    return np.tile([first, second], (len(FRONT), 1))


def test_a_front_of_exact_values_trades_off() -> None:
    found = detect_tradeoff(FRONT, errors(0.0, 0.0))

    assert found.kind == "trade-off"
    assert found.best is None
    np.testing.assert_allclose(found.spread, [1.0, 0.1])
    assert found.trades.all()


def test_noise_is_two_standard_errors_of_the_difference() -> None:
    found = detect_tradeoff(FRONT, np.array([[3.0, 4.0], [9.0, 9.0], [4.0, 3.0]]))

    np.testing.assert_allclose(found.noise, [10.0, 10.0])


@pytest.mark.parametrize(
    ("stderr", "kind", "best", "trades"),
    [
        # 2 * sqrt(2) * 0.03 = 0.085 < 0.1, and 2 * sqrt(2) * 0.04 = 0.113 > 0.1
        ((0.03, 0.03), "trade-off", None, [True, True]),
        ((0.03, 0.04), "one best", 0, [True, False]),
        ((0.40, 0.04), "within noise", 1, [False, False]),
        # 0.1 behind on the first task and 0.02 on the second: point 1 will do.
        ((0.04, 0.01), "one best", 1, [True, True]),
    ],
)
def test_noise_decides_whether_there_is_a_trade_off(
    stderr: tuple[float, float], kind: str, best: int | None, trades: list[bool]
) -> None:
    found = detect_tradeoff(FRONT, errors(*stderr))

    assert (found.kind, found.best) == (kind, best)
    assert found.trades.tolist() == trades


def test_unknown_noise_excuses_no_difference() -> None:
    assert detect_tradeoff(FRONT, errors(NAN, NAN)).kind == "trade-off"
    found = detect_tradeoff(FRONT, errors(NAN, 0.04))
    assert (found.kind, found.best) == ("one best", 0)
    assert np.isnan(found.noise[0])


@pytest.mark.parametrize("stderr", [0.0, 1.0, NAN])
@pytest.mark.parametrize(
    "Y", [[[3.0, 4.0]], [[3.0, 4.0]] * 3, [[3.0, 4.0], [3.0 + 1e-15, 4.0]], [[5.0]]]
)
def test_one_point_is_no_trade_off(Y: list[list[float]], stderr: float) -> None:
    found = detect_tradeoff(np.array(Y), np.full_like(Y, stderr))

    assert (found.kind, found.best) == ("one point", 0)
    assert not found.trades.any()


def test_a_constant_task_has_no_part_in_a_trade_off() -> None:
    constant = np.column_stack([FRONT, [7.0, 7.0, 7.0]])

    found = detect_tradeoff(constant, np.full_like(constant, NAN))

    assert found.kind == "trade-off"
    assert found.trades.tolist() == [True, True, False]


def test_units_and_order_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    scale = np.array([1e-6, 1.0, 1e6])
    kinds = set()
    for _ in range(200):
        Y = np.abs(rng.normal(size=(12, 3)))
        stderr = rng.uniform(0, rng.choice([0.1, 1.0, 3.0]), size=Y.shape)
        found = detect_tradeoff(Y, stderr)
        kinds.add(found.kind)

        scaled = detect_tradeoff(Y * scale + 3, stderr * scale)
        order = rng.permutation(len(Y))
        moved = detect_tradeoff(Y[order], stderr[order])
        turned = detect_tradeoff(Y[:, ::-1], stderr[:, ::-1])

        assert found.kind == scaled.kind == moved.kind == turned.kind
        assert found.best == scaled.best == turned.best
        assert found.best is None or found.best == order[moved.best]
        np.testing.assert_array_equal(turned.trades, found.trades[::-1])
    assert kinds == {"trade-off", "one best", "within noise"}
