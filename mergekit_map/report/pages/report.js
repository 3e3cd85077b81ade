// The page itself: what is asked for, what that chooses, and showing it.
"use strict";

(() => {
  const { element, number } = drawing;
  const content = JSON.parse(document.getElementById("content").textContent);
  const place = (id) => document.getElementById(id);
  const NEUTRAL = 5; // of sliders from 0 to 10

  // A point is chosen by the "search", by "preference" or by "index"; another one may be
  // kept `beside` it.
  const state = { by: "search", index: content.selected, beside: null, x: 0, y: 1 };
  state.view = views.of(content)[0];
  const wishes = content.tasks.map(makeWish);
  const rivals = choosing.rivalsOf(content).map(makeRival);
  const waiting = new Map(); // what is drawn later, to its timer

  function start() {
    panels.showFacts(content);
    place("wishes").append(...wishes.map((wish) => wish.row));
    place("rivals").lastElementChild.before(...rivals.map((rival) => rival.row));
    place("rivals").hidden = rivals.length === 0;
    const errors = content.anchors.flatMap((anchor) => anchor.errors.flat());
    place("margin").disabled = errors.some((error) => error === null);
    place("surrogates-hint").textContent = surrogateCharts.hint(content);
    place("views").append(...views.choosers(content, state, drawFront));
    place("front-hint").textContent = views.hint(content);
    historyChart.make(place("history-charts"), content);
    makeCharts("surrogate-charts");
    makeCharts("fit-charts");
    place("all-tasks").hidden = content.tasks.length === 1;
    place("index").max = place("beside").max = content.points.length - 1;
    evaluations.show(content);
    const asked = address.read(content.points.length); // before it is written
    asTheSearch();
    asTheAddress(asked);
    drawEverything();
    listen();
    document.querySelectorAll(".scroll").forEach(tables.watchScroll);
    printing.prepare(drawEverything);
  }

  function listen() {
    place("choose").addEventListener("input", () => choose("preference"));
    place("choose").addEventListener("submit", (event) => event.preventDefault());
    place("reset").addEventListener("click", asTheSearch);
    place("knee").addEventListener("click", knee);
    place("index").addEventListener("change", (event) => choosePoint(event.target.value));
    place("beside").addEventListener("change", (event) => keep(event.target.value));
    place("keep").addEventListener("click", () => keep(String(state.index)));
    window.addEventListener("hashchange",
      () => asTheAddress(address.read(content.points.length)));
    for (const id of ["recipe", "command"]) {
      copying.on(place(`copy-${id}`), () => place(id).textContent, place(id));
    }
    copying.on(place("copy-link"), () => location.href, place("link"));
    for (const chart of [place("front-chart"), place("all-tasks-chart")]) {
      chart.on?.("plotly_click", ({ points }) => {
        const index = points[0].customdata;
        if (Number.isInteger(index)) choosePoint(index);
      });
    }
    // The chart grows with what is said beside it.
    new ResizeObserver(() => Plotly.Plots.resize(place("front-chart")))
      .observe(place("front-chart"));
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (width !== window.innerWidth) later(drawEverything, 150);
      width = window.innerWidth;
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawEverything);
  }

  function makeWish(task, t) {
    const ids = { slider: `slider-${t}`, limit: `limit-${t}` };
    const share = element("output", { for: ids.slider });
    const slider = element("input",
      { id: ids.slider, type: "range", min: 0, max: 10, step: 0.1, "data-task": t });
    const limit = element("input",
      { id: ids.limit, type: "text", inputmode: "decimal", size: 7, "data-task": t,
        placeholder: "any", "aria-describedby": `wrong-${t}` });
    const wrong = element("span", { class: "wrong", id: `wrong-${t}` });
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

  function makeRival({ label }) {
    const box = element("input", { type: "checkbox", name: "rival", value: label });
    return { label, box, row: element("label", {}, box, ` ${label}`) };
  }

  // What is asked for, as choosing.choose takes it.
  function request() {
    const limits = wishes.map(({ limit, wrong }, t) => {
      const read = choosing.readLimit(limit.value, content, t);
      wrong.textContent = read.wrong ?? "";
      limit.setAttribute("aria-invalid", read.wrong !== undefined);
      return read.limit;
    });
    return {
      limits,
      margin: Number(place("margin").value) || 0,
      rivals: rivals.filter(({ box }) => box.checked).map(({ label }) => label),
      weights: wishes.map(({ slider }) => Number(slider.value)),
      scalarization: place("choose").elements.scalarization.value,
    };
  }

  // Take in what is asked for; choose by it, unless a point is chosen otherwise.
  function choose(by) {
    const asked = request();
    const shares = choosing.sharesOf(asked.weights);
    wishes.forEach(({ share }, t) => {
      share.textContent = `${Math.round(100 * shares[t])} %`;
    });
    const idle = asked.weights.every((weight) => weight === 0);
    const found = choosing.choose(content, asked);
    Object.assign(state, { asked, idle, found });
    state.allowed = found.allowed;
    state.limits = asked.limits;
    if (by !== "preference") state.by = by;
    if (by === "search") state.index = content.selected;
    if (by === "preference" && (found.missing || !idle)) {
      Object.assign(state, { by, index: found.index });
    }
    show();
  }

  function choosePoint(text) {
    const index = Math.round(Number(text));
    if (text === "" || !(index >= 0 && index < content.points.length)) {
      place("index").value = state.index;
      return;
    }
    state.index = index;
    choose("index");
  }

  // Keep a point beside the chosen one; an empty text keeps none.
  function keep(text) {
    const index = text === "" ? null : Math.round(Number(text));
    const known = index === null || (index >= 0 && index < content.points.length);
    if (known) state.beside = index;
    show();
  }

  // Show the points that an address names, if it does.
  function asTheAddress({ point, beside }) {
    if (point === null) return;
    Object.assign(state, { beside, index: point });
    choose(point === content.selected && state.by === "search" ? "search" : "index");
  }

  function asTheSearch() {
    const asked = content.start;
    const largest = asked ? Math.max(...asked.weights) : 1;
    wishes.forEach(({ slider, limit }, t) => {
      slider.value = asked ? (NEUTRAL * asked.weights[t]) / largest : NEUTRAL;
      limit.value = asked ? asked.limits[t] : "";
    });
    for (const { label, box } of rivals) {
      box.checked = asked !== null && asked.not_worse_than.includes(label);
    }
    place("margin").value = asked ? asked.margin : 0;
    place("choose").elements.scalarization.value = asked ? asked.scalarization : "sum";
    choose("search");
  }

  function knee() {
    for (const { slider } of wishes) slider.value = NEUTRAL;
    place("choose").elements.scalarization.value = "sum";
    choose("preference");
  }

  function show() {
    place("index").value = state.index;
    place("beside").value = state.beside ?? "";
    panels.showPoint(content, state.index, reason());
    gainPanel.show(content, state);
    itemsPanel.show(content, state.index);
    if (state.by !== "search" || state.beside !== null || location.hash) {
      address.write(state.index, state.beside);
    }
    place("link").textContent = location.href;
    const verdict = place("verdict-on-limits");
    verdict.textContent = onLimits();
    verdict.className = state.found.missing || state.idle ? "warning" : "";
    drawFront();
    later(drawRest, 60); // not at every step of a slider
  }

  // Say why the point that is shown was chosen, in the words of selection.py.
  function reason() {
    const { asked, found, by, index } = state;
    if (by === "search") return "The point that recipe.yml holds.";
    const start = `Point ${index} of ${content.points.length}`;
    if (by === "index") return `${start}, chosen by its number.`;
    if (found.missing) return `${start}, nearest to limits that no point keeps.`;
    const weights = content.tasks.map((task, t) => `${task.name}=${asked.weights[t]}`);
    const how = asked.scalarization === "achievement" ? " (achievement)" : "";
    const limits = content.tasks.flatMap((task, t) => {
      if (asked.limits[t] === null) return [];
      const word = task.higher ? "at least" : "at most";
      return [`${task.name} ${word} ${number(asked.limits[t])} ${task.unit}`.trimEnd()];
    });
    const kept = limits.length ? ` with ${limits.join(" and ")}` : "";
    const level = asked.rivals.map((label) => `, not worse than ${label}`).join("");
    const wish = `the preference ${weights.join(", ")}${how}`;
    return `${start}, chosen by ${wish}${kept}${level}.`;
  }

  function onLimits() {
    const { asked, found, idle } = state;
    if (found.missing) {
      const missed = content.tasks.flatMap((_, t) => missedBy(found, t));
      return "No point of the front keeps these limits. Nearest is point " +
        `${found.index}: ${missed.join("; ")}.`;
    }
    if (idle) return "No task counts: move a slider to choose.";
    const free = asked.limits.every((limit) => limit === null);
    if (free && asked.rivals.length === 0) return "";
    const kept = found.allowed.filter(Boolean).length;
    const here = found.allowed[state.index] ? "" : " The point shown is not one of them.";
    return `${kept} of ${content.points.length} points keep the limits.${here}`;
  }

  function missedBy({ index, missing }, t) {
    if (!(missing[t] > 0)) return [];
    const { name, higher } = content.tasks[t];
    const values = content.points.map((point) => point.predicted[t][0]);
    const best = higher ? Math.max(...values) : Math.min(...values);
    const short = Number(missing[t].toPrecision(2));
    return [`${name} is ${number(values[index])}, ${short} short ` +
      `(the best of the front is ${number(best)})`];
  }

  function makeCharts(id) {
    place(id).append(...content.tasks.map(drawing.taskFigure));
    place(id).classList.add(content.surfaces.kind);
    place(id).hidden = content.surfaces.kind === "none";
  }

  function drawFront() {
    frontCharts.drawFront(place("front-chart"), content, state);
  }

  // Do what takes time once, after the last of many calls.
  function later(draw, milliseconds) {
    clearTimeout(waiting.get(draw));
    waiting.set(draw, setTimeout(draw, milliseconds));
  }

  function drawRest() {
    const all = place("all-tasks-chart");
    if (content.tasks.length > 1) {
      inView.draw(all, () => parallelChart.drawAll(all, content, state));
    }
    const drawn = content.surfaces.kind === "none" ? [] : charts("surrogate-charts");
    drawn.forEach((chart, t) => {
      inView.draw(chart, () =>
        surrogateCharts.drawSurrogate(chart, content, state, t));
    });
  }

  function drawEverything() {
    drawFront();
    drawRest();
    charts("fit-charts").forEach((chart, t) => {
      inView.draw(chart, () => surrogateCharts.drawFit(chart, content, t));
    });
    historyChart.drawAll(place("history-charts"), content);
  }

  function charts(id) {
    return [...place(id).querySelectorAll(".chart")];
  }

  start();
})();
