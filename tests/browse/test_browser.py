"""The screen of browse, by its keys: what it shows at any width, what it asks for."""

from __future__ import annotations

import re

import pytest
from screens import press
from wide_fronts import CHOSEN, MODELS, TASKS, wide_front

from mergekit_map.browse.panels import beside_text
from mergekit_map.results.front import Merge
from mergekit_map.results.gains import gains

WIDTHS = [60, 120]


def weights_of(point: Merge) -> list[str]:
    return [f"{weight:.3f}" for weight in point.coefficients.values()]


def listed(lines: list[str]) -> list[int]:
    """Read the points of the list, from the top."""
    rows = (re.match(r" (\d+) [>*+!? ]*~?[\d.]+ ", line) for line in lines)
    return [int(row[1]) for row in rows if row]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_point_is_lost(width: int) -> None:
    front = wide_front()

    seen = press(front, size=(width, 70))

    said = " ".join(seen.text.split())
    assert said.count("…") == seen.lines[1:4].__str__().count("…")  # of headings alone
    found = gains(front)
    for task in TASKS:
        assert str(front.chosen.measured[task]) in said
        assert str(front.chosen.readings("predicted")[task]) in said
        for rival in found.rivals:
            assert f"{rival.tasks[task].amount:+.4g}" in said
        kept = found.kept[task]
        assert kept is not None
        assert f"{100 * kept:.0f} % of the best parent's gain" in said
    for index, point in enumerate(front.points):
        (row,) = [x for x in seen.lines if re.match(rf" {index} [>*]* ", x)]
        readings = point.measured if point.is_measured(*TASKS) else point.predicted
        assert readings is not None
        for reading in readings.values():
            assert f"{reading.value:.4g}" in row


@pytest.mark.parametrize(
    ("keys", "first"),
    [("1", 11), ("11", 0), ("4", 0), ("40", 0)],
)
def test_a_task_sorts_the_best_first_whatever_its_direction(
    keys: str, first: int
) -> None:
    # The first task rises along the points, as does the fourth, where lower is better.
    seen = press(wide_front(), *keys, size=(120, 40))

    points = list(range(12))
    assert listed(seen.lines) == (points if first == 0 else points[::-1])
    assert seen.view.at == CHOSEN


def test_a_marked_point_stands_beside_the_one_that_one_is_at() -> None:
    front = wide_front()
    seen = press(front, "space", "down", "c", size=(80, 40))

    assert seen.lines[0].split() == ["first", "less"]
    assert seen.lines[1].split()[:4] == ["point", "5", "point", "4"]
    assert re.search(r"instruct-v2 +0.350 +0.300 +\+0.050", seen.text)
    assert re.search(r"~0.6623±0.01 +0.6533±0.01 +\+0.009", seen.text)


def test_other_merges_to_compare_with_are_turned_to() -> None:
    front = wide_front()
    n_others = 2 + len(MODELS)

    for turns, label in ((1, "soup"), (n_others, "base")):  # and around again
        seen = press(front, "c", *["right"] * turns, size=(120, 40))
        (other,) = [a for a in front.anchors if a.label == label]
        for model in MODELS:
            own, weight = front.chosen.coefficients[model], other.coefficients[model]
            assert re.search(rf"{model} +{own:.3f} +{weight:.3f} ", seen.text), label


@pytest.mark.parametrize("width", [30, 60, 200])
def test_two_points_fit_any_width(width: int) -> None:
    front = wide_front()
    one, other = ("point 4", front.points[4]), ("point 8", front.points[8])

    text = beside_text(front, one, other, width).plain

    assert max(map(len, text.splitlines())) <= max(width, 45)
    for index in (4, 8):
        words = text.split()
        assert set(weights_of(front.points[index])) <= set(words)
        for reading in front.points[index].measured.values():
            assert str(reading).replace(" ", "") in words


def test_what_is_outside_of_the_screen_is_asked_for() -> None:
    merging = press(wide_front(), "up", "m", "enter")
    elsewhere = press(wide_front(), "m", "text:there", "enter")
    talking = press(wide_front(), "t")
    pushing = press(wide_front(), "p", "tab", "text:me/it", "enter")

    assert merging.leaving is not None
    assert merging.leaving.doing == "merge"
    assert merging.leaving.choice == {"index": CHOSEN - 1}
    assert merging.leaving.words == {"out": f"my-search-{CHOSEN - 1}"}
    assert elsewhere.leaving is not None
    assert elsewhere.leaving.words == {"out": "there"}
    assert talking.leaving is not None
    assert talking.leaving.choice == {"index": CHOSEN}
    assert pushing.leaving is not None
    assert pushing.leaving.words == {"out": "merged", "repo": "me/it"}


def test_every_key_of_the_help_is_bound_and_the_other_way_round() -> None:
    from mergekit_map.browse.app import Browser
    from mergekit_map.browse.panels import help_text, keys_text

    bound = {str(b[0]) for b in Browser.BINDINGS if isinstance(b, tuple)}
    letters = {key for key in bound if len(key) == 1 and key.isalpha()}

    assert letters - {"q"} == set(re.findall(r"^([a-z])  ", help_text(99), re.M)) - {
        "q"
    }
    assert letters == set(re.findall(r"(?:^|· )([a-z]) ", keys_text(900))) | {"x"}
