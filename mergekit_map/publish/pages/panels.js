// The parts of the page that are text and tables.
"use strict";

const panels = (() => {
  const { element, fill, number, reading, otherWords, onSome, plusMinus, better } =
    drawing;

  // The facts that stay: title, verdicts, fits, evaluations, versions.
  function showFacts(content) {
    const { facts } = content;
    document.title = `${content.name}: mergekit-map report`;
    document.getElementById("name").textContent = content.name;
    const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
    const inPart = content.merges.filter((m) => m.estimated.some((pair) => pair)).length;
    fill("facts", [
      facts.method,
      count(content.coefficients.length, "coefficient"),
      count(content.tasks.length, "task"),
      `${count(content.merges.length, "merge")} measured` +
        (inPart ? `, ${inPart} of them on some documents` : ""),
      `${count(content.points.length, "point")} on the front`,
      ...(content.order ? [`merged in pairs: ${pairs(content.order)}`] : []),
    ].join(" · "));
    document.getElementById("lead").textContent = content.reason;
    fill("confirmed", ...content.confirmed.map((text) => element("p", {}, text)));
    fill("verdicts", ...content.verdicts.map((text) => element("li", {}, text)));
    showFits(content);
    showTests(content);
    showEvaluations(content);
    showFooter(content);
  }

  // What is known of a point, and why it was chosen.
  function showPoint(content, index, reason) {
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
      const known = point.measured[t] ?? point.estimated[t];
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
    const about = [task.unit, better(task)].filter(Boolean).join(", ");
    return element("th", { scope: "row" }, task.name, element("small", {}, about));
  }

  function readingCell(pair, kind, otherwise = "–", name = null) {
    if (pair === null) return element("td", { class: "number soft" }, otherwise);
    return element("td", { class: `number ${kind}` },
      element("span", {}, number(pair[0])),
      element("span", { class: "error" }, plusMinus(pair[1])),
      name === null ? null : element("small", {}, name),
      onSome(pair) ? element("small", {}, `estimated, ${onSome(pair)}`) : null,
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

  function showEvaluations(content) {
    const rows = content.merges.map((merge) =>
      element("tr", {},
        mergeCell(merge),
        ...merge.coefficients.map((value) =>
          element("td", { class: "number" }, value === null ? "–" : value.toFixed(3))),
        ...content.tasks.map((_, t) => taskReading(merge, t)),
        element("td", { class: "number soft" },
          merge.seconds === null ? "–" : merge.seconds.toFixed(1))));
    fill("evaluations",
      head("merge", ...content.coefficients.map((c) => c.name),
        ...content.tasks.map((t) => t.name), "seconds"),
      element("tbody", {}, ...rows));
    const failed = content.merges.flatMap((m) => m.errors).filter(Boolean).length;
    const some = content.merges.some((m) => m.estimated.some((pair) => pair));
    fill("evaluations-hint",
      "What was measured, and in brackets what is predicted there. ± is one standard " +
      `error.${some ? " Estimated is what so many documents say of all." : ""}${failed ? ` ${failed} measurements failed and are fitted nowhere.` : ""}`);
  }

  function taskReading(merge, t) {
    if (merge.errors[t] !== null) {
      return element("td", { class: "number failed", title: merge.errors[t] }, "failed",
        element("small", {}, merge.errors[t]));
    }
    const cell = readingCell(merge.measured[t] ?? merge.estimated[t], "measured");
    if (merge.predicted[t] !== null) {
      cell.append(element("small", {}, `(${reading(merge.predicted[t])})`));
    }
    return cell;
  }

  function mergeCell({ label, point, roles }) {
    const role = roles.join(", ");
    const name = label ?? (point === null ? null : `point ${point}`);
    if (name === null) return element("th", { scope: "row", class: "role" }, role);
    return element("th", { scope: "row" }, name, element("small", {}, role));
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

  return { showFacts, showPoint };
})();
