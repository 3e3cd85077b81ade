// The page itself: the preference and limits of the reader, and the point they choose.
"use strict";

(() => {
  const { element, number, addCharts, pickTasks } = drawing;
  const content = JSON.parse(document.getElementById("content").textContent);
  const place = (id) => document.getElementById(id);
  const charts = (id) => [...place(id).querySelectorAll(".chart")];
  const NEUTRAL = 5; // of sliders from 0 to 10

  const state = { index: content.selected, x: 0, y: 1 };
  const wishes = content.tasks.map(makeWish);
  let waiting = 0; // timer of the charts that are drawn later

  function start() {
    panels.showSearch(content);
    place("wishes").append(...wishes.map((wish) => wish.row));
    if (content.tasks.length > 2) pickTasks(place("axes"), content.tasks, state, draw);
    place("all-tasks").hidden = content.tasks.length < 3;
    place("index").max = content.points.length - 1;
    if (content.surfaces.kind !== "none") {
      addCharts(place("surrogate-charts"), content.tasks);
      addCharts(place("fit-charts"), content.tasks);
      place("surrogate-charts").classList.add(content.surfaces.kind);
    }
    const linked = Number(location.hash.match(/^#point=(\d+)$/)?.[1] ?? NaN);
    reset();
    drawRest();
    if (linked < content.points.length && linked !== content.selected) showIndex(linked);
    listen();
    document.querySelectorAll(".scroll").forEach(tables.watchScroll);
  }

  function listen() {
    place("choose").addEventListener("input", () => choose("Best for your preference and limits."));
    place("choose").addEventListener("submit", (event) => event.preventDefault());
    place("reset").addEventListener("click", reset);
    place("index").addEventListener("change", ({ target }) => showIndex(target.valueAsNumber));
    for (const id of ["recipe", "command"]) {
      place(`copy-${id}`).addEventListener("click", (event) => copy(event.target, place(id)));
    }
    for (const chart of [place("front-chart"), place("all-tasks-chart")]) {
      chart.on?.("plotly_click", ({ points }) => showIndex(points[0].customdata));
    }
    place("surrogates").addEventListener("toggle", drawRest);
    // The chart grows with the text beside it.
    new ResizeObserver(() => Plotly.Plots.resize(place("front-chart")))
      .observe(place("front-chart"));
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  function makeWish(task, t) {
    const ids = { slider: `slider-${t}`, limit: `limit-${t}` };
    const share = element("output", { for: ids.slider });
    const slider = element("input",
      { id: ids.slider, type: "range", min: 0, max: 10, step: 0.1 });
    const limit = element("input",
      { id: ids.limit, type: "text", size: 7, placeholder: "no limit",
        "aria-label": `${task.name} ${task.higher ? "at least" : "at most"}` });
    const wrong = element("span", { class: "wrong" });
    const row = element("div", { class: "wish" },
      element("div", { class: "heading" },
        element("label", { for: ids.slider }, task.name), share),
      slider,
      element("div", { class: "limit" },
        element("label", { for: ids.limit }, task.higher ? "at least" : "at most"), limit,
        element("span", { class: "soft" }, task.unit)),
      wrong);
    return { row, slider, share, limit, wrong };
  }

  // Show the point that the preference and limits choose, or one that is chosen otherwise.
  function choose(reason, index = null) {
    const read = wishes.map(({ limit }, t) => choosing.readLimit(limit.value, content, t));
    read.forEach((one, t) => { wishes[t].wrong.textContent = one.wrong ?? ""; });
    const limits = read.map(({ limit }) => limit);
    const shares = read.map(({ share }) => share ?? 0);
    const weights = wishes.map(({ slider }) => Number(slider.value));
    choosing.sharesOf(weights).forEach((share, t) => {
      wishes[t].share.textContent = `${Math.round(100 * share)} %`;
    });
    const found = choosing.choose(content, { weights, limits, shares });
    if (location.hash) history.replaceState(null, "", "#"); // of another point
    Object.assign(state, { limits, allowed: found.allowed, index: index ?? found.index });
    place("limits-message").textContent = limitsMessage(found, limits);
    place("limits-message").className = found.missing ? "warning" : "";
    place("index").value = state.index;
    panels.showPoint(content, state.index, found.missing ? "" : reason);
    frontChart.draw(place("front-chart"), content, state);
    clearTimeout(waiting);
    waiting = setTimeout(drawRest, 60); // not at every step of a slider
  }

  function showIndex(index) {
    if (!Number.isInteger(index) || index < 0 || index >= content.points.length) {
      place("index").value = state.index;
      return;
    }
    choose("", index);
    history.replaceState(null, "", `#point=${index}`);
  }

  function reset() {
    for (const { slider, limit } of wishes) {
      slider.value = NEUTRAL;
      limit.value = "";
    }
    choose("", content.selected);
  }

  function limitsMessage({ index, allowed, missing }, limits) {
    if (missing) {
      const missed = content.tasks.flatMap(({ name }, t) => (missing[t] > 0
        ? [`${name} by ${number(missing[t])}`] : []));
      return "No point of the front keeps these limits. The nearest is point " +
        `${index}, which misses ${missed.join(" and ")}.`;
    }
    if (limits.every((limit) => limit === null)) return "";
    const kept = allowed.filter(Boolean).length;
    return `${kept} of ${content.points.length} points keep the limits.`;
  }

  async function copy(button, source) {
    // Browsers that do not let a page copy by itself leave the text selected.
    getSelection().selectAllChildren(source);
    const copied = await navigator.clipboard?.writeText(source.textContent)
      .then(() => true, () => false) || document.execCommand("copy");
    button.textContent = copied ? "Copied" : "Press Ctrl-C";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function draw() {
    frontChart.draw(place("front-chart"), content, state);
    drawRest();
  }

  function drawRest() {
    if (content.tasks.length > 2) {
      parallelChart.draw(place("all-tasks-chart"), content, state);
    }
    if (!place("surrogates").open) return; // a closed section has no width
    charts("surrogate-charts").forEach((chart, t) =>
      surrogateCharts.draw(chart, content, state, t));
    charts("fit-charts").forEach((chart, t) => surrogateCharts.drawFit(chart, content, t));
  }

  start();
})();
