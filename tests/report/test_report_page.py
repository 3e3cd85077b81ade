"""The controls of a report in a real browser; and nothing leaves the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser import Watched, needs_browser, watched_page
from nested_runs import lines
from playwright.sync_api import Browser, Page

from mergekit_map.report.overlay import write_fronts_report
from mergekit_map.results.answer import answer
from mergekit_map.results.finished import read_finished

Reported = Callable[[str], Path]
Open = Callable[..., Watched]

pytestmark = [pytest.mark.slow, needs_browser]


# Whether a table of gains, with cells of a usual length, is behind a scroll bar.
CUT_OFF = """[...document.querySelectorAll(".gains")].some((table) => {
  table.rows[2].cells[1].textContent = "predicted 4.459 (64 documents)";
  const text = "merge better by 0.0143 ± 0.0041, not significant";
  table.rows[3].cells[3].textContent = text;
  return table.offsetWidth > table.parentElement.clientWidth;
})"""


def show_point(page: Page, index: int) -> None:
    page.fill("#index", str(index))
    page.dispatch_event("#index", "change")


def texts(page: Page, selector: str) -> list[str]:
    found = page.locator(selector).all_text_contents()
    return [text.replace("\u00a0", " ") for text in found]


# --- nothing leaves the page ---------------------------------------------------------


def use_every_control(watched: Watched) -> int:
    """Use all that can be clicked, filled or chosen; gives how many that were."""
    page, used = watched.page, 0
    watched.unfold()
    for select in page.locator("select:visible").all():
        for option in select.locator("option").all():
            select.select_option(option.get_attribute("value"))
            used += 1
    for box in page.locator("input:visible").all():
        kind = box.get_attribute("type")
        if kind in {"radio", "checkbox"}:
            box.check()
        elif kind == "range":
            box.press("ArrowRight")
        else:
            box.fill("1")
            box.press("Enter")
            box.fill("")
            box.press("Enter")
        used += 1
    for button in page.locator("button:visible").all():
        if button.is_visible():
            button.click()
            used += 1
    for i in range(page.locator(".legendtoggle").count()):
        page.evaluate(CLICK, [".legendtoggle", i])
        used += 1
    page.wait_for_timeout(500)
    return used


CLICK = """([name, i]) => {
  const found = document.querySelectorAll(name)[i];
  const how = {bubbles: true, cancelable: true};
  for (const kind of ["mousedown", "mouseup", "click"]) {
    found?.dispatchEvent(new MouseEvent(kind, how));
  }
}"""


# A link that somebody brought onto the page.
FOLLOW = """() => {
  const link = document.createElement("a");
  link.href = "https://example.com/";
  link.target = "_blank";
  document.body.append(link);
  link.click();
  link.target = "";
  link.click();
}"""


def test_no_control_asks_for_anything_and_no_link_leads_away(
    browser: Browser, reported: Reported
) -> None:
    path = reported("three") / "report.html"
    with watched_page(browser, path) as watched:
        page = watched.page
        gone = []
        page.on("framenavigated", lambda frame: gone.append(frame.url))
        used = use_every_control(watched)
        page.evaluate(FOLLOW)
        watched.settle()

        assert used > 25
        assert {url.partition("#")[0] for url in gone} <= {path.as_uri()}
        assert page.url.partition("#")[0] == path.as_uri()
        assert watched.fetched == watched.problems == []


# --- the point that is shown ---------------------------------------------------------


def cells(rows: tuple[tuple[str, ...], ...], name: str) -> list[str]:
    """List the texts of a table of gains: the task has a row of its own."""
    found: list[str] = []
    for task, first, *others in rows:
        found += [task] if task else []
        found += [name if task else first, *others]
    return found


def test_the_page_begins_with_the_answer_and_shows_gains_of_every_point(
    open_report: Open, reported: Reported
) -> None:
    run, page = reported("three"), open_report("three").page
    front = read_finished(run).front
    known = answer(front)

    plain = [text.replace("`", "") for text in (*known.findings, *known.details)]
    assert texts(page, "#answer .headline") == [known.headline.replace("`", "")]
    assert texts(page, "#answer tbody :is(th, td)") == cells(
        known.table, known.table[0][1]
    )
    assert texts(page, "#answer > .hint") == [known.sample.replace("`", "")]
    assert texts(page, "#answer li") == plain
    for index in (0, 3, 7):
        show_point(page, index)
        found = answer(front.model_copy(update={"selected": index}))
        shown = texts(page, "#gains tbody :is(th, td)")
        assert shown == cells(found.table, f"point {index}")
        assert texts(page, "#gains .hint") == [found.sample.replace("`", "")]
        assert not page.evaluate(CUT_OFF)
    show_point(page, front.selected)
    assert texts(page, "#gains tbody") == []  # they are those of the answer


def test_measurements_are_listed_and_sorted_by_a_click(
    open_report: Open, reported: Reported
) -> None:
    run = reported("failing")
    watched = open_report("failing")
    page, log = watched.page, lines(run / "evaluations.jsonl")
    failed = [e["error"] for e in log if e["value"] is None]
    watched.unfold()

    assert texts(page, "#evaluations td.worse small") == failed
    page.click("#evaluations thead button >> text=code_loss")

    shown = "[...document.querySelectorAll('#evaluations tbody tr')].map("
    values = page.evaluate(shown + "(row) => row.cells[4].dataset.value)")
    known = sorted(e["value"] for e in log if e["task"] == "code_loss")
    assert [float(value) for value in values if value] == known


# --- looking -------------------------------------------------------------------------

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(open_report: Open, scheme: str) -> None:
    page = open_report("failing", color_scheme=scheme).page
    show_point(page, 1)
    page.fill("#limit-0", "half")
    page.wait_for_timeout(300)

    *worst, count = page.evaluate(CONTRAST)

    assert count[0] > 100
    assert worst[0][0] >= 4.5, worst


# --- several searches ----------------------------------------------------------------


def test_several_searches_fit_the_page_and_stay_on_it(
    browser: Browser, reported: Reported, tmp_path: Path
) -> None:
    path = tmp_path / "fronts.html"
    write_fronts_report([reported("three"), reported("nested_ties")], path)

    with watched_page(browser, path, width=400) as watched:
        for width in (400, 1280):
            watched.page.set_viewport_size({"width": width, "height": 900})
            watched.settle()
            shown = watched.page.evaluate("document.documentElement.scrollWidth")
            assert shown == width
        assert use_every_control(watched) > 5
        assert not watched.page.evaluate(CUT_OFF)
        assert len(texts(watched.page, "#volumes tbody th")) == 2
        assert watched.problems == watched.fetched == []
