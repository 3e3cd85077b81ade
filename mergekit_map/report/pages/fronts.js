// The page of several searches: their answers, volumes and fronts.
"use strict";

(() => {
  const { element, fill, shortLabel, taskTitle, layout, axis, titled, dots,
    colour, colours, chart, pickTasks } = drawing;
  const { head } = tables;
  const content = JSON.parse(document.getElementById("content").textContent);
  const place = (id) => document.getElementById(id);
  const SYMBOLS = ["diamond", "square", "triangle-up", "star", "hexagon"];
  const COLOURS = ["predicted", "measured", "good", "run-3", "run-4", "run-5"]; // of runs
  const alone = content.tasks.length === 1;
  const state = { x: 0, y: alone ? 0 : 1 };

  function start() {
    document.title = `${content.name}: mergekit-map`;
    place("name").textContent = content.name;
    fill("notes", ...content.notes.map((text) => element("p", { class: "hint" }, text)));
    fill("runs", ...content.runs.map((run, r) => element("div", { class: "card" },
      element("h2", {}, ...named(run, r)), ...tables.answer(run.answer))));
    showVolumes();
    if (content.tasks.length > 2) pickTasks(place("axes"), content.tasks, state, draw);
    const versions = drawing.versions({ ...content.page_by, "plotly.js": content.plotlyjs });
    fill("footer", `Page by ${versions}. It is one file and fetches nothing.`);
    draw();
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    document.querySelectorAll(".scroll").forEach(tables.watchScroll);
  }

  function named(run, r) {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(--${COLOURS[r % COLOURS.length]})`;
    return [swatch, run.name, element("small", {}, run.method)];
  }

  function colourOf(r) {
    return colour(COLOURS[r % COLOURS.length]);
  }

  function showVolumes() {
    const share = (value, unit, sign = "") => element("td", { class: "number" },
      `${sign}${Math.abs(100 * value).toFixed(1)} ${unit}`);
    const rows = content.volumes.map(({ value, ahead }, r) =>
      element("tr", {},
        element("th", { scope: "row" }, ...named(content.runs[r], r)),
        element("td", { class: "number" }, String(content.runs[r].merges.length)),
        share(value, "%"),
        r === 0 ? element("td", { class: "number soft" }, "–")
          : share(ahead, "points", ahead < 0 ? "−" : "+")));
    fill("volumes", head("search", "merges measured", "hypervolume",
      `more than ${content.runs[0].name}`), element("tbody", {}, ...rows));
  }

  // Of each merge, whether another one is better on some task and worse on none.
  function dominated(merges, tasks) {
    const rows = merges.map((merge) =>
      tasks.map((task, t) => (task.higher ? 1 : -1) * merge.measured[t][0]));
    return rows.map((row) => rows.some((other) =>
      other.every((value, t) => value >= row[t]) && other.some((value, t) => value > row[t])));
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
      ...content.runs.map((run, r) => ({
        ...scatter("", marks.readOn([run.chosen], "measured", state.x, state.y), "measured", r),
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
      "measurements with bars of one standard error; a faint one is better than another of " +
      "its search on no task. Rings are the chosen merges." +
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
    const lost = dominated(run.merges, content.tasks);
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
