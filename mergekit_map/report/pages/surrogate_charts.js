// What the surrogates predict, with the merges that were measured, and how well the two
// agree: a curve with its error over one coefficient, contours over two, slices through
// the chosen point along each of more.
"use strict";

const surrogateCharts = (() => {
  const { reading, shortLabel, layout, axis, titled, colours, chart } = drawing;
  const { bars, describeTask } = marks;

  const DRAW = { curve: drawCurve, contour: drawContour, slices: drawSlices };
  const SLICE_WIDTH = 150; // pixels, at least

  const WORDS = {
    curve:
      "Predictions over the coefficient with their standard errors, and what was measured.",
    contour:
      "Predictions over the two coefficients. A mark has the colour of what was " +
      "measured there: where it fades into its surroundings, the prediction came true. " +
      "Small marks are estimates from some documents.",
    none: "Too few merges are measured to predict others.",
    slices:
      "Predictions through the chosen point, along one coefficient at a time, with their " +
      "standard errors. The ring is that point, the diamond what was measured there.",
  };

  function hint(content) {
    const { kind, through } = content.surfaces;
    const some = kind === "slices" && through.length < content.points.length;
    return WORDS[kind] + (some ? ` There are slices of ${through.length} of the ` +
      `${content.points.length} points; of others those of the nearest are shown.` : "");
  }

  // The slices of a point, or of the nearest that has some, and which point that is.
  function nearestSlice({ through, points }, index) {
    const apart = (other) =>
      points[other].reduce((sum, v, k) => sum + (v - points[index][k]) ** 2, 0);
    const nearest = (best, other) => (apart(other) < apart(best) ? other : best);
    const point = through.includes(index) ? index : through.reduce(nearest);
    return [through.indexOf(point), point];
  }

  // Draw the surrogate of task t; a state has the `index` of the chosen point.
  function drawSurrogate(place, content, state, t) {
    return DRAW[content.surfaces.kind](place, content, state, t);
  }

  function drawCurve(place, content, { index }, t) {
    const c = colours();
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const merges = measuredAt(content, t);
    const traces = [
      ...bandAndLine(c, nodes[0], value[t], stderr[t]),
      {
        type: "scatter",
        mode: "markers",
        name: "measured",
        x: merges.map((m) => m.at[0]),
        y: merges.map((m) => m.measured[t][0]),
        error_y: bars(merges.map((m) => m.measured[t][1]), c.measured),
        marker: { color: c.measured, size: 8, symbol: "diamond" },
        hovertext: merges.map((m) => describeTask(m, t)),
        hoverinfo: "text",
      },
      chosenMark(c, [points[index][0]], [content.points[index].predicted[t][0]]),
    ];
    const look = layout({
      margin: { l: 48, r: 12, t: 8, b: 40 },
      showlegend: false,
      xaxis: titled(shortLabel(axes[0])),
      yaxis: axis(),
    });
    const words = `The surrogate of ${content.tasks[t].name} as a curve.`;
    return chart(place, { traces, layout: look, words });
  }

  function drawContour(place, content, { index }, t) {
    const c = colours();
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const merges = measuredAt(content, t);
    const task = content.tasks[t];
    const all = [...value[t].flat(), ...merges.map((m) => m.measured[t][0])];
    // The same colours for what is predicted and measured; bright is better.
    const colouring = (letter) => ({
      colorscale: "Viridis",
      reversescale: !task.higher,
      [`${letter}min`]: Math.min(...all),
      [`${letter}max`]: Math.max(...all),
    });
    const measured = (chosen, symbol) => ({
      type: "scatter",
      mode: "markers",
      x: chosen.map((m) => m.at[0]),
      y: chosen.map((m) => m.at[1]),
      marker: {
        color: chosen.map((m) => m.measured[t][0]),
        ...colouring("c"),
        symbol,
        size: 10,
        line: { color: "#fff", width: 1.5 },
      },
      hovertext: chosen.map((m) => describeTask(m, t)),
      hoverinfo: "text",
    });
    const traces = [
      {
        type: "contour",
        x: nodes[0],
        y: nodes[1],
        z: value[t],
        hovertext: value[t].map((row, j) =>
          row.map((v, i) => `${reading([v, stderr[t][j][i]])} predicted`),
        ),
        hoverinfo: "text",
        ...colouring("z"),
        colorbar: { thickness: 10, outlinewidth: 0, tickfont: { color: c.soft }, len: 1 },
        ncontours: 14,
        contours: { coloring: "heatmap" },
        line: { width: 0.5, color: "rgba(255,255,255,0.55)" },
      },
      {
        type: "scatter",
        mode: "markers",
        name: "front",
        x: points.map((p) => p[0]),
        y: points.map((p) => p[1]),
        marker: { color: "rgba(255,255,255,0.9)", size: 3 },
        hoverinfo: "skip",
      },
      measured(merges.filter((m) => m.fitted[t]), "circle"),
      measured(merges.filter((m) => !m.fitted[t]), "diamond"),
      chosenMark(c, [points[index][0]], [points[index][1]]),
    ];
    const look = layout({
      margin: { l: 48, r: 8, t: 8, b: 40 },
      showlegend: false,
      xaxis: titled(shortLabel(axes[0]), { range: widened(nodes[0]), showgrid: false }),
      yaxis: titled(shortLabel(axes[1]), { range: widened(nodes[1]), showgrid: false }),
    });
    const words = `Contours of the surrogate of ${task.name}, and the measured merges.`;
    return chart(place, { traces, layout: look, words });
  }

  function drawSlices(place, content, state, t) {
    const c = colours();
    const [slice, index] = nearestSlice(content.surfaces, state.index);
    const { axes, nodes, value, stderr, points } = content.surfaces;
    const chosen = content.points[index];
    const known = chosen.measured[t];
    const fit = Math.floor(place.clientWidth / SLICE_WIDTH);
    const columns = Math.max(1, Math.min(axes.length, fit));
    const rows = Math.ceil(axes.length / columns);
    const range = rangeOf(value[t], stderr[t]);
    const traces = [];
    const look = layout({
      margin: { l: 48, r: 12, t: 8, b: 40 },
      showlegend: false,
      height: 30 + 180 * rows,
      grid: { rows, columns, pattern: "independent", xgap: 0.12, ygap: 0.35 },
    });
    axes.forEach((name, k) => {
      const suffix = k ? String(k + 1) : "";
      const on = { xaxis: `x${suffix}`, yaxis: `y${suffix}` };
      const lines = bandAndLine(c, nodes[k], value[t][slice][k], stderr[t][slice][k]);
      const mark = chosenMark(c, [points[index][k]], [chosen.predicted[t][0]]);
      const measured = {
        type: "scatter",
        mode: "markers",
        x: known ? [points[index][k]] : [],
        y: known ? [known[0]] : [],
        error_y: bars(known ? [known[1]] : [], c.measured),
        marker: { color: c.measured, size: 8, symbol: "diamond" },
        hovertext: [`${reading(known)} measured`],
        hoverinfo: "text",
      };
      traces.push(...[...lines, mark, measured].map((trace) => ({ ...trace, ...on })));
      look[`xaxis${suffix}`] = titled(shortLabel(name, 20), { nticks: 5 });
      look[`yaxis${suffix}`] = axis({ range, nticks: 5, showticklabels: k % columns === 0 });
    });
    const words = `Slices of the surrogate of ${content.tasks[t].name} at point ${index}.`;
    return chart(place, { traces, layout: look, words });
  }

  // Hold what was predicted, before it was measured where that is known, against what was
  // measured, merge by merge.
  function drawFit(place, content, t) {
    const c = colours();
    const merges = measuredAt(content, t);
    const groups = [
      { name: "fitted", color: c.anchor, symbol: "circle", isTest: false },
      { name: "tests", color: c.measured, symbol: "diamond", isTest: true },
    ];
    const predicted = (m) => m.foretold[t] ?? m.predicted[t];
    const values = merges.flatMap((m) => [m.measured[t][0], predicted(m)[0]]);
    const ends = [Math.min(...values), Math.max(...values)];
    const traces = [
      {
        type: "scatter",
        mode: "lines",
        x: ends,
        y: ends,
        line: { color: c.soft, width: 1 },
        hoverinfo: "skip",
        showlegend: false,
      },
      ...groups.map(({ name, color, symbol, isTest }) => {
        const some = merges.filter(
          (m) => (m.foretold[t] !== null || !m.fitted[t]) === isTest);
        return {
          type: "scatter",
          mode: "markers",
          name,
          x: some.map((m) => predicted(m)[0]),
          y: some.map((m) => m.measured[t][0]),
          error_x: bars(some.map((m) => predicted(m)[1]), color),
          error_y: bars(some.map((m) => m.measured[t][1]), color),
          marker: {
            color,
            symbol,
            size: 8,
            line: { color: c.card, width: 1 },
          },
          hovertext: some.map((m) => describeTask(m, t)),
          hoverinfo: "text",
        };
      }),
    ];
    const look = layout({
      margin: { l: 48, r: 12, t: 8, b: 40 },
      showlegend: false,
      xaxis: titled("predicted"),
      yaxis: titled("measured"),
    });
    const words = `Predicted against measured ${content.tasks[t].name}.`;
    return chart(place, { traces, layout: look, words });
  }

  function measuredAt(content, t) {
    const merges = content.merges;
    return merges.filter((m) => m.at && m.measured[t] && m.predicted[t]);
  }

  function bandAndLine(c, x, value, stderr) {
    const known = value.map((v, i) => ({ v, x: x[i], e: stderr[i] ?? 0 }));
    const back = [...known].reverse();
    return [
      {
        type: "scatter",
        mode: "lines",
        x: [...known, ...back].map((n) => n.x),
        y: [...known.map((n) => n.v + n.e), ...back.map((n) => n.v - n.e)],
        fill: "toself",
        fillcolor: c.predicted,
        opacity: 0.2,
        line: { width: 0 },
        hoverinfo: "skip",
      },
      {
        type: "scatter",
        mode: "lines",
        name: "predicted",
        x,
        y: value,
        line: { color: c.predicted, width: 2 },
        hovertext: known.map((n) => `${reading([n.v, n.e])} predicted`),
        hoverinfo: "text",
      },
    ];
  }

  function chosenMark(c, x, y) {
    return {
      type: "scatter",
      mode: "markers",
      name: "chosen",
      x,
      y,
      marker: marks.ring(c, "circle-open", 17),
      hoverinfo: "skip",
    };
  }

  // One range for all points, so that slices can be compared while the choice moves.
  function rangeOf(value, stderr) {
    const all = value.flat(2);
    const errors = stderr.flat(2);
    let [low, high] = [Infinity, -Infinity]; // too many for Math.min(...all)
    all.forEach((v, i) => {
      low = Math.min(low, v - (errors[i] ?? 0));
      high = Math.max(high, v + (errors[i] ?? 0));
    });
    const space = 0.05 * (high - low || 1);
    return [low - space, high + space];
  }

  // Room for the marks at the ends of an axis.
  function widened(nodes) {
    const [low, high] = [nodes[0], nodes[nodes.length - 1]];
    const room = 0.04 * (high - low);
    return [low - room, high + room];
  }

  return { hint, drawSurrogate, drawFit };
})();
