"""What one does with a report: compare, link, save, sort, print; and it stays put."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Watched, find_chromium, watched_page
from playwright.sync_api import Browser, Page

from mergekit_map.report.overlay import write_fronts_report
from mergekit_map.results.finished import read_finished
from mergekit_map.results.front import Front
from mergekit_map.results.gain_sentences import gains_in_words
from mergekit_map.results.gains import gains
from mergekit_map.results.narrative import verdicts_in_words

Reported = Callable[[str], Path]
Open = Callable[..., Watched]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None,
        reason="no Chromium is installed; on Debian: apt-get install chromium",
    ),
]


def show_point(page: Page, index: int) -> None:
    page.fill("#index", str(index))
    page.dispatch_event("#index", "change")


def chosen(run: Path, index: int) -> Front:
    return read_finished(run).front.model_copy(update={"selected": index})


def texts(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


# --- nothing leaves the page ---------------------------------------------------------


def use_every_control(page: Page) -> int:
    """Use all that can be clicked, filled or chosen; gives how many that were."""
    used = 0
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
    for name in (".modebar-btn", ".legendtoggle"):
        for i in range(page.locator(name).count()):
            # Some are drawn anew by the one before; some show on hovering alone.
            page.evaluate(CLICK, [name, i])
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
# Software that draws without a graphics card says that it is slow, and no more.
SLOW = ("GPU stall", "willReadFrequently")


def test_no_control_asks_for_anything_or_leads_away(
    browser: Browser, reported: Reported
) -> None:
    path = reported("three") / "report.html"
    with watched_page(browser, path) as watched:
        page = watched.page
        gone = []
        page.on("framenavigated", lambda frame: gone.append(frame.url))
        saved = []
        page.on("download", lambda download: saved.append(download.url))

        used = use_every_control(page)

        assert used > 60
        assert {url.partition("#")[0] for url in gone} <= {path.as_uri()}
        assert page.url.partition("#")[0] == path.as_uri()
        assert saved
        assert all(url.startswith("blob:") for url in saved)
        assert watched.fetched == []
        problems = [p for p in watched.problems if not any(s in p for s in SLOW)]
        assert problems == []


def test_links_that_would_lead_away_do_nothing(open_report: Open) -> None:
    watched = open_report("two")
    follow = """() => {
      const link = document.createElement("a");
      link.href = "https://example.com/";
      link.target = "_blank";
      document.body.append(link);
      link.click();
      link.target = "";
      link.click();
    }"""
    before = watched.page.url

    watched.page.evaluate(follow)

    watched.settle()
    assert watched.page.url == before
    assert watched.fetched == []


# --- the point that is shown ---------------------------------------------------------


def test_gains_and_verdicts_are_those_of_the_point_that_is_shown(
    open_report: Open, reported: Reported
) -> None:
    run = reported("three")
    page = open_report("three").page
    selected = read_finished(run).front.selected
    seen = set()

    for index in dict.fromkeys((selected, 0, 3, 7)):
        show_point(page, index)
        front = chosen(run, index)
        assert texts(page, "#verdicts li") == list(verdicts_in_words(front))
        assert texts(page, "#gain-chosen > p") == gains_in_words(front)
        rows = page.locator("#gain-chosen tbody tr")
        names = rows.locator("th").all_inner_texts()
        labels = [rival.label for rival in gains(front).rivals]
        assert [n.split("\n")[0] for n in names] == [f"Point {index}", *labels, "kept"]
        seen.add(tuple(texts(page, "#gain-chosen tbody td")))
    assert len(seen) > 2


# --- tables --------------------------------------------------------------------------


def save(page: Page) -> list[dict[str, str]]:
    with page.expect_download() as download:
        page.click("#evaluations-csv")
    path = download.value.path()
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_the_table_is_saved_as_it_is_shown(
    open_report: Open, reported: Reported
) -> None:
    run = reported("failing")
    page = open_report("failing").page
    log = [json.loads(x) for x in (run / "evaluations.jsonl").read_text().splitlines()]

    rows = save(page)

    measured = [e for e in log if e["value"] is not None]
    values = {
        (float(row["a"]), float(row["b"]), task): row[f"{task} measured"]
        for row in rows
        for task in ("math", "code_loss", "chat", "sometimes")
    }
    for e in measured:
        a, b = e["coefficients"]["a"], e["coefficients"]["b"]
        assert float(values[a, b, e["task"]]) == e["value"]
    assert sum(value != "" for value in values.values()) == len(measured)
    page.fill("#evaluations-filter", "anchor")
    assert [row["merge"] for row in save(page)] == ["base", "a", "b", "soup"]
    assert texts(page, "#evaluations-count") == [f"4 of {len(rows)} merges"]


def test_a_name_is_no_formula_in_a_table(open_report: Open) -> None:
    page = open_report("two").page
    rows = [["=1+1", "a,b", 'x"y', -1.5, None, "-x", "two\nlines"]]
    text = page.evaluate("(rows) => tables.csv(rows)", rows)
    assert list(csv.reader(io.StringIO(text))) == [
        ["'=1+1", "a,b", 'x"y', "-1.5", "", "'-x", "two\nlines"]
    ]


# --- looking -------------------------------------------------------------------------

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["failing"])
def test_every_text_has_contrast(open_report: Open, name: str, scheme: str) -> None:
    page = open_report(name, color_scheme=scheme).page
    show_point(page, 1)
    page.click("#keep")
    page.fill("#limit-0", "half")
    page.wait_for_timeout(300)

    *worst, count = page.evaluate(CONTRAST)

    assert count[0] > 300
    assert worst[0][0] >= 4.5, worst


# --- several searches ----------------------------------------------------------------


@pytest.fixture
def fronts(
    browser: Browser, reported: Reported, tmp_path: Path
) -> Iterator[Callable[..., Watched]]:
    opened = []
    path = tmp_path / "fronts.html"
    write_fronts_report([reported("three"), reported("nested")], path)

    def open_one(**options: Any) -> Watched:
        ready = "#front-chart .main-svg"
        context = watched_page(browser, path, ready=ready, **options)
        opened.append(context)
        return context.__enter__()

    yield open_one
    for context in opened:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("width", [400, 1280])
def test_several_searches_fit_the_page_and_stay_on_it(
    fronts: Callable[..., Watched], width: int
) -> None:
    watched = fronts(width=width)

    used = use_every_control(watched.page)

    assert used > 10
    assert watched.page.evaluate("document.documentElement.scrollWidth") == width
    assert (
        texts(watched.page, "#volumes tbody th")
        == [
            "runtask_arithmetic",
            "runtask_arithmetic",
        ]
        or len(texts(watched.page, "#volumes tbody th")) == 2
    )
    assert watched.problems == watched.fetched == []


@pytest.mark.parametrize("kind", ["measured", "predicted"])
def test_the_best_of_each_search_has_the_largest_sum(
    fronts: Callable[..., Watched], kind: str
) -> None:
    page = fronts().page
    content = json.loads(page.text_content("#content") or "")
    weights = [3.0, 1.0, 6.0]

    found = page.evaluate(
        """([content, weights, kind]) => preferring.best(content, weights, kind)""",
        [content, weights, kind],
    )

    key = "merges" if kind == "measured" else "points"
    rows = [[[p[0] for p in m[kind]] for m in run[key]] for run in content["runs"]]
    columns = list(zip(*(row for run in rows for row in run), strict=True))
    for run, best in zip(rows, found, strict=True):
        scores = []
        for row in run:
            score = 0.0
            for value, column, task, weight in zip(
                row, columns, content["tasks"], weights, strict=True
            ):
                share = (value - min(column)) / (max(column) - min(column))
                score += weight / 10 * (share if task["higher"] else 1 - share)
            scores.append(score)
        assert best["score"] == pytest.approx(max(scores))
        assert scores[best["index"]] == pytest.approx(max(scores))
