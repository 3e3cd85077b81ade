// How merges look in every chart: predicted points are open circles, measured ones are
// filled; reference points (base, parents, soup) have marks of their own.
"use strict";

const marks = (() => {
  const { label, shortLabel, reading, number } = drawing;
  const SYMBOLS = { base: "square", model: "triangle-up", soup: "cross" };

  function predicted(c, color) {
    return { symbol: "circle", size: 7, color: c.card, line: { width: 1.6, color } };
  }

  function measured(c, color) {
    return { symbol: "diamond", size: 9, color, line: { color: c.card, width: 1 } };
  }

  function anchors(c, merges) {
    const symbol = merges.map(({ kind }) => SYMBOLS[kind] ?? "circle");
    return { symbol, size: 10, color: c.anchor, line: { color: c.card, width: 1 } };
  }

  // Around the point that is shown.
  function ring(color, size = 18) {
    return { symbol: "circle-open", size, color, line: { color, width: 3 } };
  }

  // Error bars of one standard error; where it is unknown, none.
  function bars(stderrs, color) {
    const array = stderrs.map((stderr) => stderr ?? 0);
    return { type: "data", array, color, thickness: 1, width: 0 };
  }

  // The merges that have a value on all of some tasks.
  function readOn(merges, kind, ...tasks) {
    return merges.filter((merge) => tasks.every((t) => merge[kind][t]));
  }

  function nameOf({ label: name, index, point }) {
    const n = index ?? point ?? null;
    return name ?? (n === null ? null : `point ${n}`);
  }

  // The text under the mouse: name, tasks and weights of a merge.
  function describe(tasks, coefficients, merge, name = nameOf(merge)) {
    const values = tasks.map((task, t) =>
      `${shortLabel(task.name)}: ${told(merge, t).join(", ") || "unknown"}`);
    const weights = coefficients
      .map((coefficient, i) => [shortLabel(coefficient, 16), merge.coefficients[i]])
      .filter(([, value]) => value !== null)
      .map(([coefficient, value]) => `${coefficient} ${number(value)}`);
    const rows = [];
    while (weights.length) rows.push(weights.splice(0, 3).join(", "));
    return [...heading(name), ...values, ...rows].join("<br>");
  }

  // The same of one task.
  function describeTask(merge, t) {
    return [...heading(nameOf(merge)), ...told(merge, t)].join("<br>");
  }

  function heading(name) {
    return name === null ? [] : [`<b>${label(name)}</b>`];
  }

  function told(merge, t) {
    const kinds = ["predicted", "measured"].filter((kind) => merge[kind]?.[t]);
    return kinds.map((kind) => `${reading(merge[kind][t])} ${kind}`);
  }

  return { predicted, measured, anchors, ring, bars, readOn, nameOf, describe, describeTask };
})();
