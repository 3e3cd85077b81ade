// The parts of the page that are text and tables.
"use strict";

const panels = (() => {
  const { element, fill, number, otherWords, onSome, plusMinus } = drawing;

  // The facts that stay: title, fits, versions.
  function showFacts(content) {
    const { facts } = content;
    document.title = `${content.name}: mergekit-map report`;
    document.getElementById("name").textContent = content.name;
    const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
    const subset = content.merges.filter((m) => m.measured.some(onSome)).length;
    fill("facts", [
      facts.method,
      count(content.coefficients.length, "coefficient"),
      count(content.tasks.length, "task"),
      `${count(content.merges.length, "merge")} measured` +
        (subset ? `, ${subset} of them on some documents` : ""),
      `${count(content.points.length, "point")} on the front`,
      ...(content.order ? [`merged in pairs: ${pairs(content.order)}`] : []),
    ].join(" · "));
    document.getElementById("lead").textContent = content.reason;
    fill("confirmed", ...content.confirmed.map((text) => element("p", {}, text)));
    showFits(content);
    showTests(content);
    showFooter(content);
  }

  // What is known of a point, what it means, and why it was chosen.
  function showPoint(content, index, reason) {
    const said = content.said[index].verdicts.map((s) => content.sentences[s]);
    fill("verdicts", ...said.map((text) => element("li", {}, text)));
    fill("verdicts-of", `With point ${index} chosen.`);
    const point = content.points[index];
    document.getElementById("point-title").textContent = `Point ${index}`;
    document.getElementById("recommended").hidden = !point.recommended;
    fill("reason", reason);
    fill("readings", ...readingsTable(content, point));
    const weights = content.coefficients.map((c, i) => weight(c, point.coefficients[i]));
    fill("weights", ...weights);
    fill("recipe", point.recipe);
    const select = `mergekit-map select ${content.run} --index ${index}`;
    fill("command", `${select}\nmergekit-map merge ${content.run} OUT`);
  }

  function readingsTable(content, point) {
    const rows = content.tasks.map((task, t) => {
      const single = choosing.bestSingleModel(content, t);
      const known = point.measured[t];
      const words = (pair) => otherWords(task, pair && pair[0]) || null;
      return element("tr", {},
        taskCell(task),
        readingCell(point.predicted[t], "predicted", "–", words(point.predicted[t])),
        readingCell(known, "measured", "not yet", words(known)),
        single === null
          ? element("td", { class: "number" }, "–")
          : readingCell([single.value, single.stderr], "anchor", "–",
            [single.label, words([single.value])].filter(Boolean).join(", ")),
      );
    });
    return [head("task", "predicted", "measured", "best single model"),
      element("tbody", {}, ...rows)];
  }

  function taskCell(task) {
    return element("th", { scope: "row" }, task.name, element("small", {}, task.facts));
  }

  function readingCell(pair, kind, otherwise = "–", name = "") {
    if (pair === null) return element("td", { class: "number soft" }, otherwise);
    return element("td", { class: `number ${kind}` },
      element("span", {}, number(pair[0])),
      element("span", { class: "error" }, plusMinus(pair[1])),
      name ? element("small", {}, name) : null,
      onSome(pair) ? element("small", {}, onSome(pair)) : null,
    );
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
    const share = (value) =>
      value == null ? "–" : `${Number((100 * value).toPrecision(2))} %`;
    const rows = content.tasks.map((task) => {
      const { fit } = task;
      return element("tr", {},
        taskCell(task),
        ...[
          `${fit.n}`,
          fit.kind ?? content.facts.surrogate ?? "quadratic",
          share(fit.error),
          share(fit.other_error),
          share(fit.front_error),
          number(fit.expected_r2 ?? null),
          number(fit.loo_r2),
          number(fit.r2),
          number(fit.residual_stderr ?? null),
        ].map((text) => element("td", { class: "number" }, text)));
    });
    fill("fits",
      head("task", "merges fitted", "surrogate", "error left out one by one",
        "with the other surrogate", "error near the front", "R² expected on the box",
        "R² left out one by one", "R² on fitted merges", "scatter around the fit"),
      element("tbody", {}, ...rows));
    const chosen = content.tasks.some(({ fit }) => fit.other_error != null);
    fill("fits-hint", "Errors are shares of the range of the task. ",
      chosen ? "A Gaussian process (residual_gp) was added to the quadratic " +
        "(regularized) where predictions left out one by one err less with it." : "");
  }

  // What was predicted before it was measured: the honest test.
  function showTests({ tasks, tested }) {
    document.getElementById("tested").hidden = tested.rows.length === 0;
    fill("tested-hint", tested.words);
    const rows = tested.rows.map((test) => {
      const missed = test.errors === null ? "–" : `${test.errors.toFixed(1)}`;
      return element("tr", {},
        element("th", { scope: "row" }, test.merge),
        element("td", {}, tasks[test.task].name),
        readingCell(test.foretold, "predicted"),
        readingCell(test.measured, "measured"),
        element("td", { class: `number${test.held ? "" : " failed"}` }, missed));
    });
    fill("tests", head("merge", "task", "predicted before", "measured after",
      "standard errors apart"), element("tbody", {}, ...rows));
  }

  function showFooter({ facts, plotlyjs }) {
    const listed = (versions) =>
      Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");
    fill("footer",
      element("p", {}, `Searched with ${listed(facts.searched_with)}; ` +
        `surrogate ${facts.surrogate ?? "quadratic"}, seed ${facts.seed}.`),
      element("p", {}, `Page by ${listed({ ...facts.page_by, "plotly.js": plotlyjs })}. ` +
        "It holds all that it shows and fetches nothing. Recipes name the models as the " +
        "search did, with local paths where they are local: look before you pass it on."));
  }

  function head(...names) {
    const cells = names.map((name) => element("th", { scope: "col" }, name));
    return element("thead", {}, element("tr", {}, ...cells));
  }

  // Nested lists of two with brackets: (math + code) + french
  function pairs(order) {
    if (!Array.isArray(order)) return String(order);
    const sides = order.map(pairs);
    return sides.map((s) => (s.includes(" + ") ? `(${s})` : s)).join(" + ");
  }

  return { showFacts, showPoint, head, readingCell };
})();
