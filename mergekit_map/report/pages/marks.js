// How merges look in every chart: predicted points are open circles, measured ones are
// filled; anchors (base model, single models, soup) have marks of their own.
"use strict";

const marks = (() => {
  const { label, shortLabel, reading, number } = drawing;

  const ANCHORS = {
    base: { name: "base model", symbol: "square" },
    model: { name: "single models", symbol: "triangle-up" },
    soup: { name: "uniform soup", symbol: "cross" },
  };

  function predicted(c, color) {
    return { symbol: "circle", size: 7, color: c.card, line: { width: 1.6, color } };
  }

  function measured(c, color) {
    return { symbol: "diamond", size: 9, color, line: edge(c) };
  }

  // On top of a measured point.
  function recommended(c) {
    return { ...measured(c, c.measured), symbol: "star", size: 13 };
  }

  function anchor(c, kind) {
    return { symbol: ANCHORS[kind].symbol, size: 10, color: c.anchor, line: edge(c) };
  }

  // Around the chosen point.
  function ring(c, symbol = "circle-open", size = 18) {
    return { symbol, size, color: c.chosen, line: { color: c.chosen, width: 3 } };
  }

  function edge(c) {
    return { color: c.card, width: 1 };
  }

  // Error bars of one standard error; where it is unknown, none.
  function bars(stderrs, color) {
    const array = stderrs.map((stderr) => stderr ?? 0);
    return { type: "data", array, color, thickness: 1, width: 0 };
  }

  // The points of the front, each with its number.
  function numbered(content) {
    return content.points.map((point, index) => ({ ...point, index }));
  }

  // Those that are read as measured, or predicted, on some tasks.
  function readOn(merges, kind, ...tasks) {
    return merges.filter((merge) => tasks.every((t) => merge[kind][t]));
  }

  // Those that pass a test, and the others.
  function parted(merges, passes) {
    return [merges.filter(passes), merges.filter((merge) => !passes(merge))];
  }

  function nameOf({ label: name, index, point }) {
    const n = index ?? point ?? null;
    return name ?? (n === null ? null : `point ${n}`);
  }

  // What a merge says under the mouse: its name, its tasks, its weights.
  function describe(content, merge) {
    const tasks = content.tasks.map(
      (task, t) => `${shortLabel(task.name)}: ${told(merge, t).join(", ") || "unknown"}`,
    );
    const weights = content.coefficients
      .map(({ name }, i) => [shortLabel(name, 16), merge.coefficients[i]])
      .filter(([, value]) => value !== null)
      .map(([name, value]) => `${name} ${number(value)}`);
    return [...heading(merge), ...tasks, ...inRows(weights, 3)].join("<br>");
  }

  // The same of one task.
  function describeTask(merge, t) {
    return [...heading(merge), ...told(merge, t)].join("<br>");
  }

  function heading(merge) {
    const name = nameOf(merge);
    const word = merge.recommended ? ", recommended" : "";
    return name === null ? [] : [`<b>${label(name)}${word}</b>`];
  }

  function told(merge, t) {
    const kinds = ["predicted", "measured"].filter((kind) => merge[kind][t]);
    return kinds.map((kind) => `${reading(merge[kind][t])} ${kind}`);
  }

  function inRows(words, length) {
    const rows = [];
    for (let i = 0; i < words.length; i += length) {
      rows.push(words.slice(i, i + length).join(", "));
    }
    return rows;
  }

  return {
    ANCHORS, predicted, measured, recommended, anchor, ring, bars, numbered, readOn,
    parted, nameOf, describe, describeTask,
  };
})();
