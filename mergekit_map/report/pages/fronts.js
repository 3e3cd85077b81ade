// The page of several searches: their volumes, their fronts, and the best of each.
"use strict";

(() => {
  const { element, fill, number, plusMinus, better, otherWords } = drawing;
  const content = JSON.parse(document.getElementById("content").textContent);
  const place = (id) => document.getElementById(id);
  const NEUTRAL = 5; // of sliders from 0 to 10

  const alone = content.tasks.length === 1;
  const state = { x: 0, y: alone ? 0 : 1, kind: "measured", best: [] };
  const sliders = content.tasks.map(makeSlider);

  function start() {
    document.title = `${content.name}: mergekit-map`;
    place("name").textContent = content.name;
    const n = content.tasks.length;
    place("lead").textContent =
      `${content.runs.length} searches over one another, on ` +
      `${n === 1 ? "the task" : `the ${n} tasks`} that they share: ` +
      `${content.tasks.map(({ name }) => name).join(", ")}. Nothing was measured for this.`;
    fill("left-out", ...content.left_out.map((text) => element("p", { class: "hint" }, text)));
    showVolumes();
    if (n > 2) place("views").append(pick("x", "task across"), " × ", pick("y", "task up"));
    place("prefer").addEventListener("input", choose);
    place("prefer").addEventListener("submit", (event) => event.preventDefault());
    showFooter();
    choose();
    new ResizeObserver(() => Plotly.Plots.resize(place("front-chart")))
      .observe(place("front-chart"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    document.querySelectorAll(".scroll").forEach(tables.watchScroll);
    printing.prepare(draw);
  }

  function head(...names) {
    const cells = names.map((name) => element("th", { scope: "col" }, name));
    return element("thead", {}, element("tr", {}, ...cells));
  }

  function named(run, r) {
    const sign = element("span", { class: "swatch", "aria-hidden": "true" });
    sign.style.background = `var(--run-${r % 6})`;
    return element("th", { scope: "row" }, sign, run.name, element("small", {}, run.method));
  }

  function showVolumes() {
    const { measured, predicted } = content.volumes;
    const rows = content.runs.map((run, r) => element("tr", {},
      named(run, r),
      counted(run.merges.length), counted(run.points.length),
      share(measured[r].value, measured[r].stderr),
      r === 0 ? element("td", { class: "number soft" }, "–")
        : share(measured[r].ahead, measured[r].ahead_stderr, "signed"),
      share(predicted[r].value, predicted[r].stderr)));
    const first = content.runs[0].name;
    fill("volumes", head("search", "merges measured", "points on the front",
      "hypervolume, measured", `more than ${first}`, "hypervolume, predicted"),
      element("tbody", {}, ...rows));
    const at = content.tasks.map((task, t) =>
      `${task.name} ${number(content.reference[t])}`).join(", ");
    fill("volumes-hint",
      `Shares of the box from ${at} to the best values measured, the same for all: it ` +
      "starts a tenth below the worst of the measured merges that no other beats. " +
      `± is one standard error: ${errorsInWords()}`);
  }

  function errorsInWords() {
    const predicted = "for what is predicted as if all points of a front erred together.";
    const unpaired = content.tasks.filter((_, t) => !content.paired[t]);
    if (unpaired.length === 0) {
      return "for what is measured by drawing the documents anew, the same for all " +
        `searches, so that their difference is paired; ${predicted}`;
    }
    const tasks = unpaired.length < content.tasks.length
      ? ` on ${unpaired.map(({ name }) => name).join(", ")}`
      : "";
    return `for what is measured as if every merge erred by itself${tasks}; ${predicted}`;
  }

  function counted(n) {
    return element("td", { class: "number" }, String(n));
  }

  function share(value, stderr, signed = "") {
    const percent = Math.abs(100 * value).toFixed(1);
    const sign = value < 0 ? "−" : signed && "+";
    const error = stderr === null ? "" : plusMinus(100 * stderr);
    return element("td", { class: "number" }, `${sign}${percent}${error} %`);
  }

  function makeSlider(task, t) {
    const slider = element("input", { id: `slider-${t}`, type: "range", min: 0, max: 10,
      step: 0.1, value: NEUTRAL });
    const output = element("output", { for: `slider-${t}` });
    place("wishes").append(element("div", { class: "wish" },
      element("div", { class: "heading" },
        element("label", { for: `slider-${t}` }, task.name), output), slider));
    return { slider, output };
  }

  function pick(key, words) {
    const select = element("select", { "aria-label": words, id: `axis-${key}` });
    content.tasks.forEach((task, t) => select.append(element("option", { value: t }, task.name)));
    select.value = state[key];
    select.addEventListener("change", () => {
      state[key] = Number(select.value);
      draw();
    });
    return select;
  }

  function choose() {
    const weights = sliders.map(({ slider }) => Number(slider.value));
    const shares = choosing.sharesOf(weights);
    sliders.forEach(({ output }, t) => {
      output.textContent = `${Math.round(100 * shares[t])} %`;
    });
    state.kind = place("prefer").elements.kind.value;
    state.best = preferring.best(content, weights, state.kind);
    showBest();
    draw();
  }

  function showBest() {
    const scores = state.best.map(({ score }) => score);
    const winner = scores.indexOf(Math.max(...scores));
    const rows = content.runs.map((run, r) => {
      const merge = preferring.candidates(run, state.kind)[state.best[r].index];
      return element("tr", { class: r === winner ? "winner" : "" },
        named(run, r),
        element("td", {}, nameOf(run, merge), element("small", {}, weights(run, merge))),
        ...content.tasks.map((task, t) => valueCell(task, merge[state.kind][t])),
        element("td", { class: "number" }, scores[r].toFixed(3),
          element("span", { class: "error" }, plusMinus(state.best[r].stderr))));
    });
    fill("best", head("search", "merge", ...content.tasks.map(titleOf), "score"),
      element("tbody", {}, ...rows));
    fill("best-hint", `For this preference, as ${state.kind}, the highest score is that of ` +
      `${content.runs[winner].name}. ± of a score is that of its values, as if tasks erred ` +
      "independently; the best of many is often the luckiest, too.");
  }

  function nameOf(run, merge) {
    const index = merge.point === undefined ? run.points.indexOf(merge) : merge.point;
    return merge.label ?? (index === null ? "a merge" : `point ${index}`);
  }

  function weights(run, merge) {
    const given = run.coefficients.filter((_, i) => merge.coefficients[i] !== null);
    return given.map((name, i) => `${name} ${number(merge.coefficients[i])}`).join(", ");
  }

  function valueCell(task, pair) {
    return element("td", { class: `number ${state.kind}` }, number(pair[0]),
      element("span", { class: "error" }, plusMinus(pair[1])),
      element("small", {}, otherWords(task, pair[0])));
  }

  function titleOf(task) {
    const about = [task.unit, better(task)].filter(Boolean).join(", ");
    return element("span", {}, task.name, element("small", {}, about));
  }

  function showFooter() {
    const versions = { ...content.page_by, "plotly.js": content.plotlyjs };
    const said = Object.entries(versions).map(([name, v]) => `${name} ${v}`).join(", ");
    fill("footer", element("p", {}, `Page by ${said}. It holds all that it shows and ` +
      "fetches nothing."));
  }

  function draw() {
    frontsChart.draw(place("front-chart"), content, state);
  }

  start();
})();
