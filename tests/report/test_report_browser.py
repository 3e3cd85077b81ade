"""The report in a real browser: it works, fits two widths, and harms nobody."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Watched, needs_browser, open_browser, watched_page
from playwright.sync_api import Browser, Page

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError
from mergekit_map.report.overlay import write_fronts_report
from mergekit_map.report.page import SCRIPTS, build_page, report_content, write_report
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Reading
from mergekit_map.results.limits import Anchors, Request, keep_limits
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.selection import choose, choose_point
from mergekit_map.results.surrogates import read_finished
from mergekit_map.types import Metric
from mergekit_map.utils.files import plain

Run = Callable[[str], Path]
Open = Callable[..., Watched]

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reported(finished_run: Run, module_folder: Path) -> Run:
    """Copy a run by its name, once, with a report."""

    @cache
    def make(name: str) -> Path:
        run = shutil.copytree(finished_run(name), module_folder / name / "run")
        write_report(run)
        return run

    return make


@pytest.fixture
def open_report(browser: Browser, reported: Run) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_one(name: str) -> Watched:
            path = reported(name) / "report.html"
            return stack.enter_context(watched_page(browser, path))

        yield open_one


SLIDE = """(weights) => weights.forEach((weight, t) => {
  const slider = document.getElementById(`slider-${t}`);
  slider.value = weight;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
})"""


def assert_shows(page: Page, run: Path, index: int) -> None:
    """Check that all parts of the page show a point."""
    assert page.input_value("#index") == f"{index}"
    assert page.text_content("#point-title") == f"Point {index}"
    recipe = (run / f"recipes/{index:03d}.yml").read_text()
    assert page.text_content("#recipe") == recipe
    assert (page.text_content("#command") or "").endswith(f"--index {index}")
    point = json.loads((run / "front.json").read_text())["points"][index]
    traces = "document.querySelector('#front-chart').data"
    ring = page.evaluate(f"{traces}.find((trace) => trace.name === 'shown').x")
    assert ring == [point["predicted"][next(iter(point["predicted"]))]["value"]]


def random_case(rng: np.random.Generator) -> dict[str, Any]:
    """Make a front, with ties now and then, and something to ask of it."""
    n, m = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    values = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-3, 4, size=m)
    if rng.random() < 0.3:
        values = np.round(values, 1)  # equal values
    if rng.random() < 0.2:
        values[:, 0] = values[0, 0]  # a task that is constant
    if rng.random() < 0.2:
        values = values[rng.integers(0, n, size=n)]  # equal points
    higher = rng.random(m) < 0.5
    weights = rng.choice([0.0, 0.5, 1, 3.3, 10], size=m)
    weights[0] = max(weights[0], 0.1)
    limits: list[str] = []
    singles = values[rng.integers(0, n, size=2)]
    worst = np.where(higher, singles.min(axis=0), singles.max(axis=0))
    base = worst + np.where(higher, -1, 1) * rng.choice([-0.1, 0.1, 2], size=m)
    for t in range(m):
        kind = rng.choice(["none", "number", "share"], p=[0.6, 0.25, 0.15])
        number = float(rng.choice(values[:, t]))
        share = f"{rng.choice([50, 80, 95, 99.5, 120]):g}%"
        limits.append({"none": "", "number": repr(number), "share": share}[str(kind)])
    rows = [base.tolist(), *singles.tolist()]
    return {
        "values": values.tolist(),
        "higher": higher.tolist(),
        "weights": weights.tolist(),
        "limits": limits,
        "failed": int(rng.integers(n)) if n > 1 and not any(limits) else None,
        "anchors": dict(zip(["base", "single", "another"], rows, strict=True)),
    }


def python_choice(case: dict[str, Any]) -> dict[str, Any]:
    """Choose by the rules of the package."""
    names = [f"t{t}" for t in range(len(case["higher"]))]

    def by_task(values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(names, values, strict=True))

    tasks = by_task([Metric(higher, None, None) for higher in case["higher"]])
    limits = {n: limit for n, limit in by_task(case["limits"]).items() if limit}
    require = {n: x if "%" in x else float(x) for n, x in limits.items()} or None
    select = SelectSpec(prefer=by_task(case["weights"]), require=require)
    anchors = Anchors({label: by_task(row) for label, row in case["anchors"].items()})
    request = Request(select, tasks, anchors)
    utilities = np.array(case["values"]) * np.where(case["higher"], 1.0, -1.0)
    try:
        found = request.required()
    except ConfigError:  # a share of a gain that there is not
        return {"wrong": True}
    kept = (utilities >= request.lower_bounds(found)).all(axis=1)
    excluded = [] if case["failed"] is None else [case["failed"]]
    return {
        "limits": [found[n].value if n in found else None for n in names],
        "index": choose(request, utilities, excluded),
        "allowed": kept.tolist(),
        "wrong": False,
    }


CHOOSE_ALL = """(cases) => cases.map((c) => {
  const content = c.content ?? {
    tasks: c.higher.map((higher, t) => ({name: `t${t}`, higher})),
    points: c.values.map((row, i) => (
      {predicted: row.map((v) => [v, null]), failed: i === c.failed,
       measured: row.map(() => null), variances: row.map(() => [0, 0, 0])})),
    anchors: Object.entries(c.anchors).map(([label, row]) => ({
      label, kind: label === "base" ? "base" : "model",
      measured: row.map((v) => [v, null])})),
  };
  const read = c.limits.map((text, t) => choosing.readLimit(text, content, t));
  if (read.some(({wrong}) => wrong !== undefined)) return {wrong: true};
  const limits = read.map(({limit}) => limit);
  const shares = read.map(({share}) => share ?? 0);
  const {index, allowed} = choosing.choose(content, {...c, limits, shares});
  return {index, limits, allowed, wrong: false};
})"""


def test_the_page_chooses_as_the_package_does(open_report: Open) -> None:
    rng = np.random.default_rng(0)
    cases = [random_case(rng) for _ in range(400)]

    found = open_report("two").page.evaluate(CHOOSE_ALL, cases)

    expected = [python_choice(case) for case in cases]
    assert found == expected
    assert {any(e["allowed"]) for e in expected if not e["wrong"]} == {True, False}
    assert 10 < sum(e["wrong"] for e in expected) < 200  # shares of no gain


def test_a_measured_limit_is_kept_on_the_page_where_select_takes_it_as_kept(
    open_report: Open, reported: Run
) -> None:
    finished = read_finished(reported("three"))
    front, metrics = finished.front, finished.front.metrics
    Y = front.utilities(front.points, "predicted")
    points = []
    for row, point in enumerate(front.points):  # one after the other misses more
        values = (Y[row] - 0.002 * row) * [m.sign for m in metrics.values()]
        measured = [Reading(value=value, stderr=0.02) for value in values]
        update = {"measured": dict(zip(metrics, measured, strict=True))}
        points.append(point.model_copy(update=update))
    front = front.model_copy(update={"points": tuple(points), "differences": {}})
    content = plain(report_content(replace(finished, front=front)))
    page = open_report("three").page
    for task, limit in itertools.product(metrics, ["55%", "70%", "85%", "98%", 5, 15]):
        if isinstance(limit, int):
            limit = points[limit].predicted[task].value
        select = SelectSpec.model_validate({"require": {task: limit}})
        wanted = front.model_copy(update={"select": select})

        limits = [str(limit) if name == task else "" for name in metrics]
        case = {"content": content, "limits": limits, "weights": [1] * len(metrics)}
        (found,) = page.evaluate(CHOOSE_ALL, [case])

        kept = keep_limits(wanted, np.arange(len(points)))
        kept &= (Request.of(wanted).scalarization().lower <= Y).all(axis=1)
        assert found["allowed"] == kept.tolist()


def test_sliders_and_limits_move_the_point_and_its_recipe(
    open_report: Open, reported: Run
) -> None:
    run, watched = reported("two"), open_report("two")
    page, front = watched.page, RunFolder(run).read_front()
    assert_shows(page, run, front.selected)
    first, second = front.tasks
    limit = front.points[3].predicted[first].value
    for weights in ([1, 9], [9, 1], [2, 5]):
        page.evaluate(SLIDE, weights)
        choice: dict[str, Any] = {"prefer": {first: weights[0], second: weights[1]}}
        for text, more in (("", {}), (repr(limit), {"require": {first: limit}})):
            page.fill("#limit-0", text)
            # Among the points alone: a page has no surrogates.
            select = SelectSpec.model_validate({**choice, **more})
            assert_shows(page, run, choose_point(front, select).selected)
    watched.settle()
    assert watched.problems == watched.fetched == []


@pytest.mark.parametrize("name", ["one", "three", "failing"])
def test_every_report_fits_two_widths_and_is_quiet(
    open_report: Open, name: str
) -> None:
    watched = open_report(name)
    watched.unfold()
    assert_fits_two_widths(watched)

    n_tasks = watched.page.evaluate(
        "JSON.parse(document.getElementById('content').textContent).tasks.length"
    )
    for section in ("surrogate-charts", "fit-charts"):
        drawn = watched.page.locator(f"#{section} .chart .main-svg:first-child")
        assert drawn.count() == n_tasks
    assert watched.page.locator("#all-tasks").is_visible() == (n_tasks > 2)
    assert watched.problems == watched.fetched == []


def assert_fits_two_widths(watched: Watched) -> None:
    """Check that nothing is wider than the page."""
    too_wide = """() => [...document.querySelectorAll(
        "main > *, .card, .chart, svg.main-svg")]
      .filter((e) => e.getBoundingClientRect().right > innerWidth)
      .map((e) => e.outerHTML.slice(0, 80))"""
    for width in (1280, 400):
        watched.page.set_viewport_size({"width": width, "height": 900})
        watched.settle()
        assert watched.page.evaluate("document.documentElement.scrollWidth") == width
        # Charts follow the page.
        fits = f"() => ({too_wide})().length === 0"
        watched.page.wait_for_function(fits, timeout=5000)


EVIL = [
    '<img src=x onerror="window.harmed=1">',
    "</script><script>window.harmed=2</script>",
    "$\\href{javascript:window.harmed=3}{x}$ %{x} {{y}}",
    "<a href='javascript:window.harmed=4'>\"quoted\" & 'so'</a> 😀",
    "<b>x</b><i>&lt;&#36;",
]


def spoiled(part: Any, names: Iterator[str]) -> Any:
    """Put markup in the place of every text that a page shows."""
    if isinstance(part, dict):
        read = {"kind", "limits"}  # by the script
        return {k: v if k in read else spoiled(v, names) for k, v in part.items()}
    if isinstance(part, (list, tuple)):
        return [spoiled(inner, names) for inner in part]
    return next(names) if isinstance(part, str) else part


USE_EVERY_CONTROL = """() => {
  const fire = (element, ...kinds) => kinds.forEach((kind) => element.dispatchEvent(
    new MouseEvent(kind, {bubbles: true, cancelable: true})));
  let used = 0;
  for (const name of ["select", "input", "button", ".legendtoggle"]) {
    for (const element of document.querySelectorAll(name)) {
      if (element.getClientRects().length === 0) continue;
      const values = [...(element.options ?? [])].map((option) => option.value);
      if (element.matches("input:not([type=radio], [type=checkbox])")) {
        values.push("1", "");
      }
      for (const value of values) {
        element.value = value;
        fire(element, "input", "change");
      }
      fire(element, "mousedown", "mouseup", "click");
      used += 1;
    }
  }
  return used;
}"""


def use_every_control(watched: Watched) -> int:
    """Use all that can be clicked, filled or chosen; gives how many that were."""
    watched.unfold()
    used: int = watched.page.evaluate(USE_EVERY_CONTROL)
    watched.settle()
    return used


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


def test_names_with_markup_do_no_harm_and_no_control_or_link_leads_away(
    browser: Browser, reported: Run, tmp_path: Path
) -> None:
    plain = report_content(read_finished(reported("three")))
    content = spoiled(plain, itertools.cycle(EVIL))
    content["answer"] |= {"headline": EVIL[2], "findings": EVIL, "details": EVIL}
    evil_page = tmp_path / "<b>&page#.html"
    evil = {**content, "name": EVIL[0]}
    evil_page.write_text(build_page("report.html", SCRIPTS, evil), encoding="utf-8")

    with watched_page(browser, evil_page) as watched:
        page = watched.page
        watched.unfold()
        for box in page.evaluate(
            """[...document.querySelectorAll(".chart .nsewdrag")].map((e) => {
              const r = e.getBoundingClientRect();
              return [r.x + scrollX + r.width / 2, r.y + scrollY + r.height / 2]; })"""
        ):
            page.evaluate("([x, y]) => scrollTo(0, y - 300)", box)
            page.mouse.move(box[0], 300)
            page.wait_for_timeout(30)
        page.wait_for_timeout(300)
        gone = []
        page.on("framenavigated", lambda frame: gone.append(frame.url))
        assert use_every_control(watched) > 25
        page.evaluate(FOLLOW)
        watched.settle()

        assert {url.partition("#")[0] for url in gone} <= {evil_page.as_uri()}
        assert page.url.partition("#")[0] == evil_page.as_uri()
        assert page.evaluate("window.harmed") is None
        for tag in ("img", "b > *", "main a", "main script", "iframe", "object"):
            assert page.locator(tag).count() == 0, tag
        assert page.title() == f"{EVIL[0]}: mergekit-map report"
        assert page.text_content("h1") == EVIL[0]
        assert page.text_content("#answer .headline") == EVIL[2]
        assert page.locator("#answer li").all_text_contents() == EVIL * 2
        axis = page.evaluate("document.querySelector('#axis-x').options[1].text")
        assert axis in EVIL
        assert watched.fetched == watched.problems == []


# Whether a table of gains, with cells of a usual length, is behind a scroll bar.
CUT_OFF = """[...document.querySelectorAll(".gains")].some((table) => {
  table.rows[2].cells[1].textContent = "predicted 4.459 (64 documents)";
  const text = "merge better by 0.0143 ± 0.0041, not significant";
  table.rows[3].cells[3].textContent = text;
  return table.offsetWidth > table.parentElement.clientWidth;
})"""


def texts(page: Page, selector: str) -> list[str]:
    found = page.locator(selector).all_text_contents()
    return [text.replace("\u00a0", " ") for text in found]


def cells(rows: tuple[tuple[str, ...], ...], name: str) -> list[str]:
    """List the texts of a table of gains: the task has a row of its own."""
    found: list[str] = []
    for task, first, *others in rows:
        found += [task] if task else []
        found += [name if task else first, *others]
    return found


def test_the_page_begins_with_the_answer_and_shows_gains_of_every_point(
    open_report: Open, reported: Run
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
        page.fill("#index", str(index))
        page.dispatch_event("#index", "change")
        found = answer(front.model_copy(update={"selected": index}))
        shown = texts(page, "#gains tbody :is(th, td)")
        assert shown == cells(found.table, f"point {index}")
        assert texts(page, "#gains .hint") == [found.sample.replace("`", "")]
        assert not page.evaluate(CUT_OFF)
    page.click("#reset")
    assert "#point" not in page.url
    assert texts(page, "#gains tbody") == []  # they are those of the answer


def test_several_searches_fit_the_page_and_stay_on_it(
    browser: Browser, reported: Run, tmp_path: Path
) -> None:
    path = tmp_path / "fronts.html"
    write_fronts_report([reported("three"), reported("nested")], path)

    with watched_page(browser, path) as watched:
        assert_fits_two_widths(watched)
        assert use_every_control(watched) > 5
        assert not watched.page.evaluate(CUT_OFF)
        assert len(texts(watched.page, "#volumes tbody th")) == 2
        assert watched.problems == watched.fetched == []
