// All that was measured, as a table that sorts, filters and is saved as CSV.
"use strict";

const evaluations = (() => {
  const { element, fill, reading, onSome } = drawing;
  const { head, readingCell } = panels;

  function show(content) {
    const table = document.getElementById("evaluations");
    const rows = content.merges.map((merge, i) =>
      element("tr", { "data-merge": i },
        mergeCell(merge, i),
        ...merge.coefficients.map((value) =>
          valued(element("td", { class: "number" }, value === null ? "–" : value.toFixed(3)),
            value)),
        ...content.tasks.map((_, t) =>
          valued(taskReading(merge, t), merge.measured[t]?.[0] ?? null)),
        valued(element("td", { class: "number soft" },
          merge.seconds === null ? "–" : merge.seconds.toFixed(1)), merge.seconds)));
    fill("evaluations",
      head("merge", ...content.coefficients.map((c) => c.name),
        ...content.tasks.map((t) => t.name), "seconds"),
      element("tbody", {}, ...rows));
    const failed = content.merges.flatMap((m) => m.errors).filter(Boolean).length;
    const some = content.merges.some((m) => m.measured.some(onSome));
    fill("evaluations-hint",
      "What was measured, and in brackets what is predicted there. ± is one standard " +
      `error.${some ? " A number of documents: the value on all, estimated by these." : ""}` +
      `${failed ? ` ${failed} measurements failed and are fitted nowhere.` : ""} ` +
      "A click on a column sorts by it.");
    tables.sortable(table);
    listen(content, table);
  }

  function listen(content, table) {
    const sought = document.getElementById("evaluations-filter");
    const count = () => {
      const shown = tables.filter(table, sought.value);
      fill("evaluations-count", `${shown} of ${content.merges.length} merges`);
    };
    sought.addEventListener("input", count);
    count();
    document.getElementById("evaluations-csv").addEventListener("click", () =>
      tables.save(`${content.name.replaceAll(/[^\w.-]+/g, "-")}.csv`, csvOf(content, table)));
  }

  // The rows that are shown, in the order in which they are.
  function csvOf(content, table) {
    const kinds = ["measured", "stderr", "documents", "predicted", "predicted stderr"];
    const first = ["merge", "roles", ...content.coefficients.map((c) => c.name),
      ...content.tasks.flatMap((t) => kinds.map((kind) => `${t.name} ${kind}`)), "seconds"];
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const rows = shown.map((row) => {
      const merge = content.merges[Number(row.dataset.merge)];
      return [nameOf(merge) ?? "", merge.roles.join(" "), ...merge.coefficients,
        ...content.tasks.flatMap((_, t) => valuesOf(merge, t)), merge.seconds];
    });
    return tables.csv([first, ...rows]);
  }

  function valuesOf(merge, t) {
    const [value, stderr, documents] = merge.measured[t] ?? [];
    const [predicted, predictedStderr] = merge.predicted[t] ?? [];
    return [value, stderr, documents, predicted, predictedStderr];
  }

  function valued(cell, value) {
    cell.dataset.value = value ?? "";
    return cell;
  }

  function taskReading(merge, t) {
    if (merge.errors[t] !== null) {
      return element("td", { class: "number failed", title: merge.errors[t] }, "failed",
        element("small", {}, merge.errors[t]));
    }
    const cell = readingCell(merge.measured[t], "measured");
    if (merge.predicted[t] !== null) {
      cell.append(element("small", {}, `(${reading(merge.predicted[t])})`));
    }
    return cell;
  }

  function nameOf({ label, point }) {
    return label ?? (point === null ? null : `point ${point}`);
  }

  function mergeCell(merge, i) {
    const role = merge.roles.join(", ");
    const name = nameOf(merge);
    const cell = name === null
      ? element("th", { scope: "row", class: "role" }, role)
      : element("th", { scope: "row" }, name, element("small", {}, role));
    return valued(cell, i); // in the order in which they were measured
  }

  return { show };
})();
