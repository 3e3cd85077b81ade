// The page of several searches: their answers, volumes and fronts, and the best merge of
// each for a preference.
"use strict";

const fronts = (() => {
  // Find, for each search, the index of the measured merge with the largest weighted sum
  // of values, scaled from the worst (0) to the best (1) of all searches; with its score.
  function best(content, weights) {
    const shares = choosing.sharesOf(weights);
    const ranges = content.tasks.map((_, t) => {
      const values = content.runs.flatMap((run) => run.merges.map((m) => m.measured[t][0]));
      const low = Math.min(...values);
      return { low, width: Math.max(...values) - low };
    });
    return content.runs.map((run) => {
      const scores = run.merges.map((merge) => content.tasks.reduce((total, task, t) => {
        const { low, width } = ranges[t];
        const place = (merge.measured[t][0] - low) / (width || 1);
        return total + shares[t] * (width === 0 || task.higher ? place : 1 - place);
      }, 0));
      const score = Math.max(...scores);
      return { index: scores.indexOf(score), score };
    });
  }

  // Of each merge, whether another one is better on some task and worse on none.
  function dominated(merges, tasks) {
    const rows = merges.map((merge) =>
      tasks.map((task, t) => (task.higher ? 1 : -1) * merge.measured[t][0]));
    return rows.map((row) => rows.some((other) =>
      other.every((value, t) => value >= row[t]) && other.some((value, t) => value > row[t])));
  }

  return { best, dominated };
})();

(() => {
  const { element, fill, number, plusMinus, shortLabel, taskTitle, layout, axis, titled,
    dots, colour, colours, chart, pickTasks } = drawing;
  const { head, readingCell } = tables;
  const content = JSON.parse(document.getElementById("content").textContent);
  const place = (id) => document.getElementById(id);
  const SYMBOLS = ["diamond", "square", "triangle-up", "star", "hexagon", "pentagon"];
  const alone = content.tasks.length === 1;
  const state = { x: 0, y: alone ? 0 : 1, best: [] };
  const sliders = content.tasks.map(makeSlider);

  function start() {
    document.title = `${content.name}: mergekit-map`;
    place("name").textContent = content.name;
    fill("notes", ...content.notes.map((text) => element("p", { class: "hint" }, text)));
    fill("runs", ...content.runs.map((run, r) => element("div", { class: "card" },
      element("h2", {}, ...named(run, r)), ...tables.answer(run.answer))));
    showVolumes();
    if (content.tasks.length > 2) pickTasks(place("axes"), content.tasks, state, draw);
    place("prefer").addEventListener("input", choose);
    place("prefer").addEventListener("submit", (event) => event.preventDefault());
    const versions = drawing.versions({ ...content.page_by, "plotly.js": content.plotlyjs });
    fill("footer", `Page by ${versions}. It is one file and fetches nothing.`);
    choose();
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    document.querySelectorAll(".scroll").forEach(tables.watchScroll);
  }

  function named(run, r) {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colourOf(r);
    return [swatch, run.name, element("small", {}, run.method)];
  }

  function colourOf(r) {
    return colour(`run-${r % SYMBOLS.length}`);
  }

  function showVolumes() {
    const share = (value, stderr, sign = "") => element("td", { class: "number" },
      `${sign}${Math.abs(100 * value).toFixed(1)}${plusMinus(100 * stderr)} %`);
    const rows = content.volumes.map(({ value, stderr, ahead, ahead_stderr: error }, r) =>
      element("tr", {},
        element("th", { scope: "row" }, ...named(content.runs[r], r)),
        element("td", { class: "number" }, String(content.runs[r].merges.length)),
        share(value, stderr),
        r === 0 ? element("td", { class: "number soft" }, "–")
          : share(ahead, error, ahead < 0 ? "−" : "+")));
    fill("volumes", head("search", "merges measured", "hypervolume",
      `more than ${content.runs[0].name}`), element("tbody", {}, ...rows));
  }

  function makeSlider(task, t) {
    const slider = element("input",
      { id: `slider-${t}`, type: "range", min: 0, max: 10, step: 0.1, value: 5 });
    const output = element("output", { for: `slider-${t}` });
    place("wishes").append(element("div", { class: "wish" },
      element("div", { class: "heading" },
        element("label", { for: `slider-${t}` }, task.name), output), slider));
    return { slider, output };
  }

  function choose() {
    const weights = sliders.map(({ slider }) => Number(slider.value));
    choosing.sharesOf(weights).forEach((share, t) => {
      sliders[t].output.textContent = `${Math.round(100 * share)} %`;
    });
    state.best = fronts.best(content, weights);
    showBest();
    draw();
  }

  function bestOf(r) {
    return content.runs[r].merges[state.best[r].index];
  }

  function showBest() {
    const scores = state.best.map(({ score }) => score);
    const winner = scores.indexOf(Math.max(...scores));
    const rows = content.runs.map((run, r) => {
      const merge = bestOf(r);
      const weights = run.coefficients
        .filter((_, i) => merge.coefficients[i] !== null)
        .map((name, i) => `${name} ${number(merge.coefficients[i])}`).join(", ");
      return element("tr", {},
        element("th", { scope: "row" }, ...named(run, r)),
        element("td", {}, marks.nameOf(merge) ?? "a merge", element("small", {}, weights)),
        ...content.tasks.map((_, t) => readingCell(merge.measured[t], "measured")),
        element("td", { class: "number" }, scores[r].toFixed(3)));
    });
    fill("best", head("search", "merge", ...content.tasks.map(({ name }) => name), "score"),
      element("tbody", {}, ...rows));
    fill("best-hint", `The largest score is that of ${content.runs[winner].name}.`);
  }

  function draw() {
    const c = colours();
    const corners = content.runs.flatMap(({ merges }, r) => merges
      .filter((merge) => merge.label !== null && !merge.reference)
      .map((merge) => ({ ...merge, r })));
    const traces = [
      ...content.runs.flatMap((run, r) => traceRun(c, run, r)),
      cornerTrace(c, corners),
      { ...scatter("base, parents, soup", content.references, "measured", -1),
        mode: "markers+text",
        text: content.references.map(({ label }) => shortLabel(label, 20)),
        textposition: "top center",
        textfont: { color: c.ink },
        marker: marks.anchors(c, content.references) },
      ...content.runs.map((run, r) => ({ ...scatter("", [bestOf(r)], "measured", r),
        marker: marks.ring(colourOf(r)), showlegend: false })),
    ];
    const look = layout({
      xaxis: titled(taskTitle(content.tasks[state.x])),
      yaxis: alone
        ? axis({ tickvals: [-1, ...content.runs.keys()],
          ticktext: ["", ...content.runs.map(({ name }) => shortLabel(name, 18))],
          range: [content.runs.length - 0.5, -1.5] })
        : titled(taskTitle(content.tasks[state.y])),
    });
    if (alone) look.margin.l = 130;
    place("front-hint").textContent = "Open circles are predictions, filled marks are " +
      "measurements with bars of one standard error; a faint one is worse than another of " +
      "its search on every task. Rings are the best merges for the preference." +
      (corners.length ? " Crosses are merges by the method with one model at weight 1, or " +
        "with equal weights: not the models themselves." : "");
    return chart(place("front-chart"), traces, look, `The fronts of ${content.name}.`);
  }

  function scatter(name, merges, kind, r) {
    return {
      ...dots(name, merges.map((m) => m[kind][state.x][0]),
        merges.map((m) => (alone ? m.r ?? r : m[kind][state.y][0]))),
      showlegend: merges.length > 0,
      hovertext: merges.map((m) => describe(m, r)),
    };
  }

  function describe(merge, r) {
    const run = content.runs[merge.r ?? r];
    const name = marks.nameOf(merge);
    return marks.describe(content.tasks, run?.coefficients ?? [], merge,
      run ? [run.name, name].filter(Boolean).join(": ") : name);
  }

  // Base, parents and soup are drawn once, and the method's corners by themselves.
  function traceRun(c, run, r) {
    const color = colourOf(r);
    const symbol = SYMBOLS[r % SYMBOLS.length];
    const name = shortLabel(run.name, 20);
    const lost = fronts.dominated(run.merges, content.tasks);
    const own = (isLost) => run.merges.filter((m, i) => m.label === null && lost[i] === isLost);
    const [kept, left] = [own(false), own(true)];
    const bars = (t) => marks.bars(kept.map((m) => m.measured[t][1]), color);
    return [
      { ...scatter(`${name}, predicted`, run.points, "predicted", r),
        marker: { ...marks.predicted(c, color), size: 6 }, opacity: 0.7 },
      { ...scatter("", left, "measured", r), marker: { symbol, size: 8, color },
        opacity: 0.35, showlegend: false },
      { ...scatter(`${name}, measured`, kept, "measured", r),
        marker: { symbol, size: 10, color, line: { color: c.card, width: 1 } },
        error_x: bars(state.x), ...(alone ? {} : { error_y: bars(state.y) }) },
    ];
  }

  function cornerTrace(c, corners) {
    const methods = [...new Set(corners.map(({ r }) => content.runs[r].method))].join(", ");
    return { ...scatter(`${shortLabel(methods, 30)} with weight 1, or equal weights`, corners,
      "measured", -1),
      mode: "markers+text",
      text: corners.map(({ label }) => shortLabel(label, 24)),
      textposition: "bottom center",
      textfont: { color: c.soft, size: 11 },
      marker: { symbol: "x", size: 8, color: corners.map(({ r }) => colourOf(r)) } };
  }

  start();
})();
