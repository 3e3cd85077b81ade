// The parts of the page that are text and tables.
"use strict";

const panels = (() => {
  const { element, fill, number, reading, versions } = drawing;
  const { head, readingCell } = tables;
  const place = (id) => document.getElementById(id);

  // Show all that does not change: title, answer, fits, measurements, versions.
  function showSearch(content) {
    const { facts, answer } = content;
    document.title = `${content.name}: mergekit-map report`;
    place("name").textContent = content.name;
    const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
    fill("facts", [
      facts.method,
      count(content.coefficients.length, "coefficient"),
      count(content.tasks.length, "task"),
      `${count(content.merges.length, "merge")} measured`,
      `${count(content.points.length, "point")} on the front`,
      ...(content.order ? [`merged in pairs: ${pairs(content.order)}`] : []),
    ].join(" · "));
    fill("answer", ...tables.answer(answer));
    showFits(content);
    showEvaluations(content);
    fill("footer",
      element("p", {}, `Searched with ${versions(facts.searched_with)}; seed ${facts.seed}.`),
      element("p", {},
        `Page by ${versions({ ...facts.page_by, "plotly.js": content.plotlyjs })}. It is ` +
        "one file and fetches nothing. Recipes name the models as the search did, with " +
        "local paths: read them before you share the page."));
  }

  // Show a point: its gains, weights and recipe.
  function showPoint(content, index, reason) {
    const point = content.points[index];
    place("point-title").textContent = `Point ${index}`;
    const isChosen = index === content.selected;
    fill("reason", isChosen ? "The chosen merge: its gains are above." : reason);
    fill("gains", ...(isChosen ? []
      : tables.gains(content.answer.headings, point.gains, point.sample, `point ${index}`)));
    fill("weights",
      ...content.coefficients.map((c, i) => weight(c, point.coefficients[i])));
    fill("recipe", point.recipe);
    fill("command", `mergekit-map merge ${content.run} OUT --index ${index}`);
  }

  function weight({ name, bounds: [low, high] }, value) {
    const share = (length) => `${(100 * length) / (high - low)}%`;
    const zero = Math.min(Math.max(0, low), high);
    const filled = element("span", {});
    filled.style.left = share(Math.min(zero, value) - low);
    filled.style.width = share(Math.abs(value - zero));
    return element("div", { class: "weight" },
      element("span", { class: "name" }, name),
      element("span", { class: "bar" }, filled),
      element("span", { class: "number" }, value.toFixed(3)));
  }

  function showFits(content) {
    place("surrogates-hint").textContent = surrogateCharts.HINTS[content.surfaces.kind];
    const share = (value) =>
      (value == null ? "–" : `${Number((100 * value).toPrecision(2))} %`);
    const rows = content.tasks.map(({ name, fit }) => element("tr", {},
      element("th", { scope: "row" }, name),
      ...[fit.n, fit.kind, share(fit.front_error), number(fit.expected_r2 ?? null)]
        .map((text) => element("td", { class: "number" }, String(text)))));
    fill("fits", head("task", "merges fitted", "surrogate",
      "error on the front, of its range", "expected R² in the search space"),
      element("tbody", {}, ...rows));
  }

  // The table of all measured merges, with predictions in brackets.
  function showEvaluations(content) {
    const valued = (cell, value) => {
      cell.dataset.value = value ?? "";
      return cell;
    };
    const figure = (value, digits) => valued(element("td", { class: "number" },
      value === null ? "–" : value.toFixed(digits)), value);
    const cell = (merge, t) => {
      if (merge.errors[t] !== null) {
        return element("td", { class: "number worse" }, "failed",
          element("small", {}, merge.errors[t]));
      }
      const predicted = merge.predicted[t] && `(${reading(merge.predicted[t])})`;
      return readingCell(merge.measured[t], predicted);
    };
    const rows = content.merges.map((merge, i) => element("tr", {},
      valued(element("th", { scope: "row" }, marks.nameOf(merge),
        element("small", {}, merge.roles.join(", ").replace("anchor", "always measured"))), i),
      ...merge.coefficients.map((value) => figure(value, 3)),
      ...content.tasks.map((_, t) => valued(cell(merge, t), merge.measured[t]?.[0])),
      figure(merge.seconds, 1)));
    fill("evaluations",
      head("merge", ...content.coefficients.map((c) => c.name),
        ...content.tasks.map((t) => t.name), "seconds"),
      element("tbody", {}, ...rows));
    fill("evaluations-hint", `${content.merges.length} merges in the order of their ` +
      "measurement; predictions in brackets, ± one standard error. Click a heading to sort.");
    tables.sortable(place("evaluations"));
  }

  // Nested lists of two with brackets: (math + code) + french
  function pairs(order) {
    if (!Array.isArray(order)) return String(order);
    const sides = order.map(pairs);
    return sides.map((s) => (s.includes(" + ") ? `(${s})` : s)).join(" + ");
  }

  return { showSearch, showPoint };
})();
