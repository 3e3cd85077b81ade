"""What one does with a report: compare, link, save, sort, print; and it stays put."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Watched, find_chromium, watched_page
from playwright.sync_api import Browser, Page

from mergekit_map.publish.fronts_report import write_fronts_report
from mergekit_map.results.finished import read_finished
from mergekit_map.results.front import Front
from mergekit_map.results.gain_words import gains_in_words
from mergekit_map.results.gained import gains
from mergekit_map.results.verdict_words import verdicts_in_words

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


def test_no_chart_can_be_uploaded(open_report: Open, reported: Reported) -> None:
    page = open_report("three").page
    buttons = page.locator(".modebar-btn")

    titles = [b.get_attribute("data-title") or "" for b in buttons.all()]

    assert any("Download plot" in title for title in titles)
    assert not [title for title in titles if re.search("share|cloud|send", title, re.I)]
    text = (reported("three") / "report.html").read_text()
    assert "cloud.plotly.com" not in text
    # Even a chart that asks for the button, as a later plotly.js may by default.
    shared = """() => {
      const place = document.getElementById("front-chart");
      const logged = [];
      place.on("plotly_exportfail", () => logged.push("failed"));
      return [window.open("https://example.com"), logged];
    }"""
    assert page.evaluate(shared) == [None, []]


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


def test_a_gain_is_written_with_its_error_and_what_it_means(
    open_report: Open, reported: Reported
) -> None:
    run = reported("two")
    page = open_report("two").page
    front = read_finished(run).front
    found = gains(front)

    cells = page.locator("#gain-chosen tbody tr:nth-child(2) td").all_inner_texts()

    rival = found.rivals[0]
    for text, (task, gained) in zip(cells, rival.tasks.items(), strict=True):
        value, amount = text.split("\n")[0], text.split("▸ ")[1]
        assert float(value.split(" ± ")[0]) == pytest.approx(
            front.anchors[0].measured[task].value, rel=1e-3
        )
        shown, error = re.findall(r"([\d.]+) ± ([\d.e-]+)", amount)[0]
        assert float(error) == pytest.approx(gained.stderr, rel=0.5)
        assert float(shown) == pytest.approx(abs(gained.amount), abs=float(error))
        assert amount.endswith(
            "within noise" if gained.verdict == "noise" else gained.verdict
        )


def test_two_points_stand_side_by_side_and_a_link_keeps_both(
    browser: Browser, open_report: Open, reported: Reported
) -> None:
    run = reported("two")
    page = open_report("two").page
    assert page.locator("#gain-beside").is_hidden()
    show_point(page, 2)
    page.click("#keep")
    show_point(page, 6)

    assert texts(page, "#gain-chosen caption")[0].startswith("Point 6")
    assert texts(page, "#gain-beside caption")[0].startswith("Point 2")
    one, two = (page.locator(f"#gain-{s}").bounding_box() for s in ("chosen", "beside"))
    assert one is not None
    assert two is not None
    assert one["y"] == two["y"]
    assert one["x"] + one["width"] <= two["x"]
    assert page.evaluate("location.hash") == "#point=6&beside=2"

    path = run / "report.html"
    with watched_page(browser, path, place="#point=6&beside=2") as again:
        assert again.page.input_value("#index") == "6"
        assert again.page.input_value("#beside") == "2"
        assert "--index 6\n" in (again.page.text_content("#command") or "")
        again.page.evaluate("location.hash = '#point=1'")
        again.settle()
        assert again.page.input_value("#index") == "1"
        assert again.page.locator("#gain-beside").is_hidden()
        assert again.problems == again.fetched == []
    with watched_page(browser, path, place="#point=9999&beside=-1") as other:
        selected = read_finished(run).front.selected
        assert other.page.input_value("#index") == str(selected)


def test_points_differ_as_the_package_says(open_report: Open) -> None:
    page = open_report("two").page
    content = {"apart": [{"points": [1, 4, 7], "stderr": [[0.5], [0.25, 0.125]]}, None]}
    asked = [(0, 4, 1), (0, 4, 7), (0, 7, 1), (0, 2, 1), (1, 4, 1), (1, 4, 4)]
    script = """([content, asked]) => [
      ...asked.map((places) => gainPanel.apart(content, ...places, 3, 4)),
      gainPanel.apart(content, 1, 4, 1, null, 4)]"""
    found = page.evaluate(script, [content, asked])
    assert found == [0.5, 0.125, 0.25, 5, 5, 0, None]


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


def test_a_column_sorts_by_number_and_what_failed_is_last(open_report: Open) -> None:
    page = open_report("failing").page
    head = page.locator("#evaluations thead th", has_text="sometimes")
    column = texts(page, "#evaluations thead th").index("sometimes") + 1
    cells = f"#evaluations tbody td:nth-child({column})"
    read = f"[...document.querySelectorAll('{cells}')].map((c) => c.dataset.value)"

    for order in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == order
        values = page.evaluate(read)
        known = [float(value) for value in values if value != ""]
        assert known == sorted(known, reverse=order == "descending")
        assert values[len(known) :] == [""] * (len(values) - len(known))
        assert "" in values
    page.locator("#evaluations thead th button").first.click()
    assert texts(page, "#evaluations tbody th")[0].startswith("base")


def test_a_table_says_that_it_scrolls_until_its_end(open_report: Open) -> None:
    page = open_report("failing", width=400).page
    box = page.locator("#evaluations").locator("..")
    assert "more-below" in (box.get_attribute("class") or "")
    assert "more-right" in (box.get_attribute("class") or "")

    box.evaluate("(box) => box.scrollTo(1e6, 1e6)")
    page.wait_for_timeout(200)

    assert "more-below" not in (box.get_attribute("class") or "")
    assert "more-right" not in (box.get_attribute("class") or "")
    assert "more-left" in (box.get_attribute("class") or "")


# --- looking -------------------------------------------------------------------------

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["three", "failing"])
def test_every_text_has_contrast(open_report: Open, name: str, scheme: str) -> None:
    page = open_report(name, color_scheme=scheme).page
    show_point(page, 1)
    page.click("#keep")
    page.fill("#limit-0", "half")
    page.wait_for_timeout(300)

    *worst, count = page.evaluate(CONTRAST)

    assert count[0] > 300
    assert worst[0][0] >= 4.5, worst


def test_what_is_printed_is_whole(open_report: Open) -> None:
    watched = open_report("failing", color_scheme="dark")
    page = watched.page
    before = page.locator("#front-chart").bounding_box()
    rows = page.locator("#evaluations tbody tr").count()
    page.evaluate(
        """() => addEventListener("beforeprint", () => { window.printed = {
          cut: [...document.querySelectorAll(".scroll, pre, .chart")]
            .filter((e) => e.scrollWidth > e.clientWidth + 1
              || e.scrollHeight > e.clientHeight + 1)
            .map((e) => e.outerHTML.slice(0, 200)),
          wide: [...document.querySelectorAll(".card *:not(svg *)")]
            .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > 681)
            .map((e) => e.outerHTML.slice(0, 200)),
          drawn: [...document.querySelectorAll(".chart")]
            .filter((e) => e.checkVisibility())
            .every((e) => e.querySelector(".main-svg")),
          rows: [...document.querySelectorAll("#evaluations tbody tr")]
            .filter((e) => e.checkVisibility()).length,
          paper: getComputedStyle(document.body).backgroundColor,
          contrast: (CONTRAST)(),
        }; })""".replace("CONTRAST", CONTRAST)
    )

    pdf = page.pdf(format="A4")

    printed = page.evaluate("window.printed")
    assert printed["cut"] == []
    assert printed["wide"] == []
    assert printed["drawn"]
    assert printed["rows"] == rows
    assert printed["paper"] == "rgb(255, 255, 255)"
    assert printed["contrast"][0][0] >= 4.5, printed["contrast"]
    assert pdf.count(b"/Type /Page\n") > 4
    page.wait_for_timeout(500)
    assert page.locator("#front-chart").bounding_box() == before
    assert watched.problems == watched.fetched == []


def test_losses_are_perplexities_too(open_report: Open) -> None:
    page = open_report("two").page
    task = '{unit: "nats/token"}'
    assert page.evaluate(f"drawing.otherWords({task}, 1.5)") == "perplexity 4.48"
    assert page.evaluate("drawing.otherWords({unit: ''}, 1.5)") == ""


def test_the_history_shows_every_merge_in_order(
    open_report: Open, reported: Reported
) -> None:
    page = open_report("three").page
    log = [
        json.loads(x)
        for x in (reported("three") / "evaluations.jsonl").read_text().splitlines()
    ]
    first = "document.querySelectorAll('#history-charts .chart')"

    traces = page.evaluate(
        f"{first}[1].data.filter((d) => d.mode === 'markers')"
        ".flatMap((d) => d.x.map((x, i) => [x, d.y[i], d.name]))"
    )

    math = [e for e in log if e["task"] == "math"]
    assert sorted(traces) == [
        [number, e["value"], e["role"]] for number, e in enumerate(math, start=1)
    ]
    grown = page.evaluate(f"{first}[0].data[0].y")
    assert grown == sorted(grown)
    assert grown[-1] == 100


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_of_several_searches_has_contrast(
    fronts: Callable[..., Watched], scheme: str
) -> None:
    *worst, count = fronts(color_scheme=scheme).page.evaluate(CONTRAST)

    assert count[0] > 40
    assert worst[0][0] >= 4.5, worst


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
