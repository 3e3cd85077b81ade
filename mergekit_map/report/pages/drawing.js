// What all parts of the page share: elements, numbers in words, and how charts look.
// Text of the user gets into the page by textContent alone, and into charts by `label`.
"use strict";

const drawing = (() => {
  const NARROW = 700; // pixels, as in report.css

  // Make an element; children are elements or text, null for none.
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  function fill(id, ...children) {
    document.getElementById(id).replaceChildren(...children);
  }

  // Four digits, as Python's :.4g
  function number(value) {
    return value === null ? "–" : String(Number(value.toPrecision(4)));
  }

  // A reading is [value, standard error], with the number of documents that it is from
  // where these are not all; or null.
  function reading(pair) {
    if (pair === null) return "–";
    return number(pair[0]) + plusMinus(pair[1]) + (pair[2] ? ` (${pair[2]} documents)` : "");
  }

  function plusMinus(stderr) {
    return stderr ? ` ± ${String(Number(stderr.toPrecision(1)))}` : "";
  }

  // Escape text for plotly, which reads some markup, entities and $TeX$ in labels.
  function label(text) {
    return text
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll("$", "&#36;");
  }

  // The same for where there is little room.
  function shortLabel(text, length = 24) {
    const signs = Array.from(text);
    if (signs.length <= length) return label(text);
    const kept = (length - 1) / 2;
    const start = signs.slice(0, Math.ceil(kept)).join("");
    const end = signs.slice(-Math.floor(kept)).join("");
    return label(`${start}…${end}`);
  }

  function taskTitle(task) {
    const unit = task.unit ? ` (${label(task.unit)})` : "";
    const better = task.higher ? "higher is better" : "lower is better";
    return `${shortLabel(task.name, 32)}${unit}, ${better}`;
  }

  function versions(found) {
    return Object.entries(found).map(([name, version]) => `${name} ${version}`).join(", ");
  }

  function isNarrow() {
    return window.innerWidth < NARROW;
  }

  // Return the colour of a name, as report.css has it for light or dark.
  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function colours() {
    const names = ["ink", "soft", "line", "card", "grid", "predicted", "measured", "anchor",
      "chosen", "out"];
    return Object.fromEntries(names.map((name) => [name, colour(name)]));
  }

  // On a narrow page the legend has a row for each entry, below the chart, as a column
  // would cut names.
  function layout(more) {
    const c = colours();
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: c.ink },
      margin: { l: 64, r: 16, t: 12, b: 48 },
      hovermode: "closest",
      hoverlabel: { align: "left", bgcolor: c.card, bordercolor: c.line, font: { color: c.ink } },
      legend: isNarrow()
        ? { orientation: "v", x: 0, y: -0.16, yanchor: "top" }
        : { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      // A finger on a chart scrolls the page.
      dragmode: isNarrow() ? false : "zoom",
      uirevision: "kept",
      ...more,
    };
  }

  function axis(more = {}) {
    const c = colours();
    return {
      gridcolor: c.grid,
      linecolor: c.line,
      zeroline: false,
      fixedrange: isNarrow(),
      tickfont: { color: c.soft },
      ...more,
    };
  }

  function titled(text, more = {}) {
    const title = { text, standoff: 8, font: { color: colour("soft") } };
    return axis({ title, uirevision: text, ...more }); // what is zoomed stays of its task
  }

  // A trace of marks at values; text under the mouse.
  function dots(name, x, y, more) {
    return { type: "scatter", mode: "markers", name, x, y, hoverinfo: "text", ...more };
  }

  function line(name, x, y, style, more = {}) {
    return { type: "scatter", mode: "lines", name, x, y, line: style, hoverinfo: "skip",
      showlegend: false, ...more };
  }

  // Add a chart for every task to a box.
  function addCharts(box, tasks) {
    box.append(...tasks.map(({ name, facts }) => element("figure", {},
      element("figcaption", {}, name, element("small", {}, facts)),
      element("div", { class: "chart" }))));
  }

  // Add two lists to a box: the tasks of the axes `x` and `y` of a state.
  function pickTasks(box, tasks, state, changed) {
    box.append(...["x", "y"].map((key) => {
      const words = key === "x" ? "task across" : "task up";
      const options = tasks.map((task, t) => element("option", { value: t }, task.name));
      const select = element("select", { "aria-label": words, id: `axis-${key}` }, ...options);
      select.value = state[key];
      select.addEventListener("change", () => {
        state[key] = Number(select.value);
        changed();
      });
      return select;
    }));
  }

  // Draw or redraw a chart; `words` describe it to those who cannot see it. There is no
  // toolbar, which would cover the legend: dragging zooms, a double click goes back.
  function chart(place, traces, look, words) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", words);
    return Plotly.react(place, traces, look, { responsive: true, displayModeBar: false });
  }

  return {
    element, fill, number, reading, plusMinus, label, shortLabel, taskTitle, versions,
    colour, colours, layout, axis, titled, dots, line, addCharts, pickTasks, chart,
  };
})();
