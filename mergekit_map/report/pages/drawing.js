// What all parts of the page share: elements, numbers in words, and how charts look.
// Text of the user gets into the page by textContent alone, and into charts by `label`.
"use strict";

const drawing = (() => {
  const NARROW = 700; // pixels, as in report.css

  // Make an element; children are elements or text.
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
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
    const words = onSome(pair);
    return number(pair[0]) + plusMinus(pair[1]) + (words && ` (${words})`);
  }

  // A mean token loss as a perplexity, with three digits as Python's :.3g; else nothing.
  function otherWords(task, value) {
    if (task.unit !== "nats/token" || value === null) return "";
    return `perplexity ${Number(Math.exp(Math.min(value, 700)).toPrecision(3))}`;
  }

  function onSome(pair) {
    return pair?.[2] ? `${pair[2]} documents` : "";
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
    return `${shortLabel(task.name, 32)}${unit}, ${better(task)}`;
  }

  function better(task) {
    return task.higher ? "higher is better" : "lower is better";
  }

  function isNarrow() {
    return window.innerWidth < NARROW;
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "soft", "line", "card", "predicted", "measured", "anchor"];
    const more = ["chosen", "beside", "out", "grid"];
    return Object.fromEntries(
      [...names, ...more].map((n) => [n, style.getPropertyValue(`--${n}`).trim()]),
    );
  }

  function layout(more) {
    const c = colours();
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: c.ink },
      margin: { l: 64, r: 16, t: 12, b: 48 },
      hovermode: "closest",
      hoverlabel: {
        align: "left",
        bgcolor: c.card,
        bordercolor: c.line,
        font: { color: c.ink, size: 12 },
      },
      legend: {
        orientation: "h",
        x: 0,
        y: 1.02,
        yanchor: "bottom",
        font: { size: 12 },
        ...(isNarrow() ? { entrywidth: 0.5, entrywidthmode: "fraction" } : {}),
      },
      // A finger on a chart scrolls the page.
      dragmode: isNarrow() ? false : "zoom",
      uirevision: "kept",
      ...more,
    };
  }

  function axis(more) {
    const c = colours();
    return {
      gridcolor: c.grid,
      linecolor: c.line,
      zeroline: false,
      fixedrange: isNarrow(),
      title: { standoff: 8, font: { color: c.soft } },
      tickfont: { color: c.soft },
      ...more,
    };
  }

  function titled(text, more = {}) {
    const start = axis(more);
    return { ...start, title: { ...start.title, text } };
  }

  const CONFIG = {
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
  };

  // A place for a chart, with its title.
  function figure(title, about, attributes = {}) {
    return element("figure", {},
      element("figcaption", {}, title, element("small", {}, about)),
      element("div", { class: "chart", ...attributes }));
  }

  function taskFigure(task) {
    return figure(task.name, task.facts);
  }

  // Draw or redraw a chart; what it shows is also said in words for who cannot see it.
  function chart(place, { traces, layout: look, words }) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", words);
    const config = { ...CONFIG, displayModeBar: isNarrow() ? false : "hover" };
    return Plotly.react(place, traces, look, config);
  }

  return {
    element, fill, number, reading, otherWords, onSome, plusMinus, label, shortLabel,
    taskTitle, better, isNarrow, colours, layout, axis, titled, figure, taskFigure, chart,
  };
})();
