// The predictions of the surrogates with the measured merges: a curve over one
// coefficient, contours over two, slices through the chosen point along each of more.
"use strict";

const surrogateCharts = (() => {
  const { reading, shortLabel, layout, axis, titled, colours, dots, line, chart } = drawing;
  const { bars, describeTask } = marks;

  const DRAW = { curve: drawCurve, contour: drawContour, slices: drawSlices };
  const SLICE_WIDTH = 150; // pixels, at least
  const MARGIN = { l: 48, r: 12, t: 8, b: 40 };

  const HINTS = {
    curve: "Predictions for each weight with their standard errors; diamonds are measured.",
    contour: "Predictions for the two weights; brighter is better. The colour of a mark is " +
      "the measured value: a mark that is hard to see was predicted well.",
    slices: "Predictions when one weight changes and the others stay as in the merge that " +
      "the search chose (ring), with standard errors; diamonds are measured.",
    none: "These predictions cannot be computed again: another version or other measurements " +
      "made them, or there are over 1000 merges.",
  };

  // Draw task t; a state has the `index` of the point that is shown.
  function draw(place, content, state, t) {
    const [traces, look] = DRAW[content.surfaces.kind](content, state, t, place.clientWidth);
    return chart(place, traces, layout({ margin: MARGIN, showlegend: false, ...look }),
      `Predictions of ${content.tasks[t].name}.`);
  }

  function drawCurve(content, { index }, t) {
    const c = colours();
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const merges = measuredAt(content, t);
    const traces = [
      ...bandAndLine(c, nodes[0], value[t], stderr[t]),
      {
        ...dots("measured", merges.map((m) => m.at[0]), merges.map((m) => m.measured[t][0])),
        error_y: bars(merges.map((m) => m.measured[t][1]), c.measured),
        marker: marks.measured(c, c.measured),
        hovertext: merges.map((m) => describeTask(m, t)),
      },
      shownMark(c, points[index][0], content.points[index].predicted[t][0]),
    ];
    return [traces, { xaxis: titled(shortLabel(axes[0])), yaxis: axis() }];
  }

  function drawContour(content, { index }, t) {
    const c = colours();
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const merges = measuredAt(content, t);
    const all = [...value[t].flat(), ...merges.map((m) => m.measured[t][0])];
    // The same colours for predictions and measurements; bright is better.
    const colouring = (letter) => ({
      colorscale: "Viridis",
      reversescale: !content.tasks[t].higher,
      [`${letter}min`]: Math.min(...all),
      [`${letter}max`]: Math.max(...all),
    });
    const traces = [
      {
        type: "contour",
        x: nodes[0],
        y: nodes[1],
        z: value[t],
        hovertext: value[t].map((row, j) =>
          row.map((v, i) => `${reading([v, stderr[t][j][i]])} predicted`)),
        hoverinfo: "text",
        ...colouring("z"),
        colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: c.soft }, len: 1 },
        ncontours: 14,
        contours: { coloring: "heatmap" },
        line: { width: 0.5, color: "rgba(255,255,255,0.55)" },
      },
      dots("front", points.map((p) => p[0]), points.map((p) => p[1]),
        { marker: { color: "rgba(255,255,255,0.9)", size: 3 }, hoverinfo: "skip" }),
      dots("measured", merges.map((m) => m.at[0]), merges.map((m) => m.at[1]), {
        marker: {
          color: merges.map((m) => m.measured[t][0]),
          ...colouring("c"),
          symbol: merges.map((m) => (m.fitted[t] ? "circle" : "diamond")),
          size: 10,
          line: { color: "#fff", width: 1.5 },
        },
        hovertext: merges.map((m) => describeTask(m, t)),
      }),
      shownMark(c, ...points[index]),
    ];
    const [xaxis, yaxis] = [0, 1].map((i) =>
      titled(shortLabel(axes[i]), { range: widened(nodes[i]), showgrid: false }));
    return [traces, { xaxis, yaxis }];
  }

  function drawSlices(content, _, t, width) {
    const c = colours();
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const chosen = content.points[content.selected];
    const at = points[content.selected];
    const known = chosen.measured[t];
    const columns = Math.max(1, Math.min(axes.length, Math.floor(width / SLICE_WIDTH)));
    const rows = Math.ceil(axes.length / columns);
    const look = { height: 30 + 180 * rows,
      grid: { rows, columns, pattern: "independent", xgap: 0.12, ygap: 0.35 } };
    const traces = axes.flatMap((name, k) => {
      const suffix = k ? String(k + 1) : "";
      look[`xaxis${suffix}`] = titled(shortLabel(name, 20), { nticks: 5 });
      look[`yaxis${suffix}`] = axis({ nticks: 5, showticklabels: k % columns === 0,
        ...(k ? { matches: "y" } : {}) });
      return [
        ...bandAndLine(c, nodes[k], value[t][k], stderr[t][k]),
        shownMark(c, at[k], chosen.predicted[t][0]),
        dots("measured", known ? [at[k]] : [], known ? [known[0]] : [], {
          error_y: bars(known ? [known[1]] : [], c.measured),
          marker: marks.measured(c, c.measured),
          hovertext: [`${reading(known)} measured`],
        }),
      ].map((trace) => ({ ...trace, xaxis: `x${suffix}`, yaxis: `y${suffix}` }));
    });
    return [traces, look];
  }

  // Compare predictions, made before the measurement where there are such, with it.
  function drawFit(place, content, t) {
    const c = colours();
    const merges = measuredAt(content, t);
    const predicted = (m) => m.foretold[t] ?? m.predicted[t];
    const values = merges.flatMap((m) => [m.measured[t][0], predicted(m)[0]]);
    const ends = [Math.min(...values), Math.max(...values)];
    const traces = [line("", ends, ends, { color: c.soft, width: 1 })];
    for (const [isTest, color, symbol] of [[false, c.anchor, "circle"],
      [true, c.measured, "diamond"]]) {
      const some = merges.filter((m) => (m.foretold[t] !== null || !m.fitted[t]) === isTest);
      traces.push({
        ...dots("", some.map((m) => predicted(m)[0]), some.map((m) => m.measured[t][0])),
        error_x: bars(some.map((m) => predicted(m)[1]), color),
        error_y: bars(some.map((m) => m.measured[t][1]), color),
        marker: { color, symbol, size: 8, line: { color: c.card, width: 1 } },
        hovertext: some.map((m) =>
          describeTask({ ...m, predicted: { [t]: predicted(m) } }, t)),
      });
    }
    const look = layout({ margin: MARGIN, showlegend: false, xaxis: titled("predicted"),
      yaxis: titled("measured") });
    return chart(place, traces, look,
      `Predicted and measured values of ${content.tasks[t].name}.`);
  }

  function measuredAt(content, t) {
    return content.merges.filter((m) => m.at && m.measured[t] && m.predicted[t]);
  }

  function bandAndLine(c, x, value, stderr) {
    const known = value.map((v, i) => ({ v, x: x[i], e: stderr[i] ?? 0 }));
    const back = [...known].reverse();
    return [
      line("", [...known, ...back].map((n) => n.x),
        [...known.map((n) => n.v + n.e), ...back.map((n) => n.v - n.e)],
        { width: 0 }, { fill: "toself", fillcolor: c.predicted, opacity: 0.2 }),
      line("predicted", x, value, { color: c.predicted, width: 2 }, { hoverinfo: "text",
        hovertext: known.map((n) => `${reading([n.v, n.e])} predicted`) }),
    ];
  }

  function shownMark(c, x, y) {
    return dots("shown", [x], [y], { marker: marks.ring(c.chosen, 17), hoverinfo: "skip" });
  }

  // Make room for the marks at the ends of an axis.
  function widened(nodes) {
    const [low, high] = [nodes[0], nodes[nodes.length - 1]];
    return [low - 0.04 * (high - low), high + 0.04 * (high - low)];
  }

  return { HINTS, draw, drawFit };
})();
