// The front as a chart: one task in rows, two as a scatter; for three in space see
// space_chart.js.
"use strict";

const frontCharts = (() => {
  const { shortLabel, taskTitle, layout, axis, titled, colours, chart } = drawing;
  const { bars, describe, numbered, parted, readOn } = marks;

  const DRAW = { rows: drawRows, scatter: drawScatter, space: spaceChart.drawSpace };

  // Draw the front in the `view` of a state, which also has the `index` of the chosen
  // point, that of the point `beside` it or null, which points are `allowed`, the
  // `limits` by task, and the tasks `x` and `y` that a scatter shows.
  function drawFront(place, content, state) {
    return DRAW[state.view](place, content, state);
  }

  function drawScatter(place, content, state) {
    const { x, y } = state;
    const c = colours();
    const shown = { x, y, c, content };
    const points = numbered(content);
    const isKept = (point) => state.allowed[point.index];
    const [kept, left] = parted(points, isKept);
    const checked = readOn(points, "measured", x, y);
    const [keptChecked, leftChecked] = parted(checked, isKept);
    const recommended = keptChecked.filter((point) => point.recommended);
    const others = content.merges.filter((m) => marks.nameOf(m) === null);
    const chosen = [points[state.index]];
    const beside = points.filter((point) => point.index === state.beside);
    const traces = [
      ...(content.tasks.length === 2 ? [frontLine(shown, points)] : []),
      scatter(shown, "other merges", readOn(others, "measured", x, y), "measured", {
        marker: { color: c.soft, size: 5, opacity: 0.6 },
        visible: "legendonly",
      }),
      scatter(shown, "outside the limits", left, "predicted", {
        marker: marks.predicted(c, c.out),
        showlegend: left.length > 0,
      }),
      scatter(shown, "front, predicted", kept, "predicted", {
        marker: marks.predicted(c, c.predicted),
      }),
      fromPredictedToMeasured(shown, checked),
      scatter(shown, "outside the limits, measured", leftChecked, "measured", {
        marker: marks.measured(c, c.out),
        ...errors(shown, leftChecked, "measured", c.out),
        showlegend: false,
      }),
      scatter(shown, "front, measured", keptChecked, "measured", {
        marker: marks.measured(c, c.measured),
        ...errors(shown, keptChecked, "measured", c.measured),
      }),
      scatter(shown, "recommended", recommended, "measured", {
        marker: marks.recommended(c),
        showlegend: recommended.length > 0,
      }),
      ...Object.keys(marks.ANCHORS).map((kind) => anchors(shown, kind)),
      scatter(shown, "kept beside", beside, "predicted", {
        marker: marks.ring({ ...c, chosen: c.beside }),
        showlegend: beside.length > 0,
      }),
      scatter(shown, "chosen", chosen, "predicted", {
        marker: marks.ring(c),
        ...errors(shown, chosen, "predicted", c.predicted),
      }),
      scatter(shown, "chosen, measured", readOn(chosen, "measured", x, y), "measured", {
        marker: marks.ring(c, "diamond-open", 15),
        showlegend: false,
      }),
    ];
    const [across, up] = [content.tasks[x], content.tasks[y]];
    const look = layout({
      xaxis: titled(taskTitle(across)),
      yaxis: titled(taskTitle(up)),
      shapes: limitLines(c, state),
      annotations: [towardsBetter(c, across, up)],
    });
    const words =
      `The front of ${across.name} and ${up.name}: ${points.length} predicted points, ` +
      `${checked.length} of them measured, and ${content.anchors.length} anchors.`;
    return chart(place, { traces, layout: look, words });
  }

  function scatter({ x, y, content }, name, merges, kind, more) {
    return {
      type: "scatter",
      mode: "markers",
      name,
      x: merges.map((m) => m[kind][x][0]),
      y: merges.map((m) => m[kind][y][0]),
      customdata: merges.map((m) => m.index ?? null),
      hovertext: merges.map((m) => describe(content, m)),
      hoverinfo: "text",
      ...more,
    };
  }

  function errors({ x, y }, merges, kind, color) {
    return {
      error_x: bars(merges.map((m) => m[kind][x][1]), color),
      error_y: bars(merges.map((m) => m[kind][y][1]), color),
    };
  }

  function anchors(shown, kind) {
    const { c, content, x, y } = shown;
    const some = content.anchors.filter((anchor) => anchor.kind === kind);
    const known = readOn(some, "measured", x, y);
    return scatter(shown, marks.ANCHORS[kind].name, known, "measured", {
      mode: "markers+text",
      marker: marks.anchor(c, kind),
      text: known.map((anchor) => shortLabel(anchor.label, 20)),
      textfont: { color: c.ink, size: 12, shadow: halo(c) },
      textposition: known.map((anchor) => textPlace(shown, anchor)),
      ...errors(shown, known, "measured", c.anchor),
    });
  }

  // The front of two tasks is a line.
  function frontLine({ c, x, y }, points) {
    const sorted = [...points].sort((a, b) => a.predicted[x][0] - b.predicted[x][0]);
    return {
      type: "scatter",
      mode: "lines",
      x: sorted.map((point) => point.predicted[x][0]),
      y: sorted.map((point) => point.predicted[y][0]),
      line: { color: c.predicted, width: 1 },
      opacity: 0.5,
      hoverinfo: "skip",
      showlegend: false,
    };
  }

  function fromPredictedToMeasured({ c, x, y }, checked) {
    const ends = (t) => checked.flatMap((m) => [m.predicted[t][0], m.measured[t][0], null]);
    return {
      type: "scatter",
      mode: "lines",
      x: ends(x),
      y: ends(y),
      line: { color: c.measured, width: 1 },
      hoverinfo: "skip",
      showlegend: false,
    };
  }

  // Keep a label inside the chart: on the side of its mark where the middle is.
  function textPlace({ content, x, y }, anchor) {
    const place = (t) => {
      const merges = [...content.points, ...content.anchors];
      const readings = merges.flatMap((m) => [m.predicted[t], m.measured[t]]);
      const values = readings.filter((pair) => pair).map((pair) => pair[0]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return (anchor.measured[t][0] - low) / (high - low || 1);
    };
    return `${place(y) > 0.9 ? "bottom" : "top"} ${place(x) > 0.6 ? "left" : "right"}`;
  }

  function halo(c) {
    return [1, 2, 3].map((blur) => `0 0 ${blur}px ${c.card}`).join(", ");
  }

  function limitLines(c, { limits, x, y }) {
    const line = { color: c.chosen, width: 1.5, dash: "dash" };
    const shapes = [];
    if (limits[x] !== null) {
      shapes.push({ x0: limits[x], x1: limits[x], y0: 0, y1: 1, yref: "paper", line });
    }
    if (y !== null && limits[y] !== null) {
      shapes.push({ y0: limits[y], y1: limits[y], x0: 0, x1: 1, xref: "paper", line });
    }
    return shapes.map((shape) => ({ type: "line", ...shape }));
  }

  // A word in the corner of the best values, where no point of a front is.
  function towardsBetter(c, across, up) {
    const [right, top] = [across.higher, up.higher];
    const arrow = top ? (right ? "↗" : "↖") : right ? "↘" : "↙";
    return {
      xref: "paper",
      yref: "paper",
      x: right ? 1 : 0,
      y: top ? 1 : 0,
      xanchor: right ? "right" : "left",
      yanchor: top ? "top" : "bottom",
      text: right ? `better ${arrow}` : `${arrow} better`,
      showarrow: false,
      font: { color: c.soft, size: 12 },
    };
  }

  // One task: a row per anchor and point.
  function drawRows(place, content, state) {
    const c = colours();
    const merges = [...content.anchors, ...numbered(content)];
    const names = merges.map((merge) => shortLabel(marks.nameOf(merge), 20));
    const kinds = ["predicted", "measured"];
    const traces = kinds.map((kind) => {
      const known = readOn(merges, kind, 0);
      const color = c[kind] ?? c.measured;
      return {
        type: "scatter",
        mode: "markers",
        name: kind,
        x: known.map((m) => m[kind][0][0]),
        y: known.map((m) => merges.indexOf(m)),
        error_x: bars(known.map((m) => m[kind][0][1]), color),
        customdata: known.map((m) => m.index ?? null),
        hovertext: known.map((m) => describe(content, m)),
        hoverinfo: "text",
        marker: { ...marks[kind](c, color), size: 10 },
        showlegend: known.length > 0,
      };
    });
    const longest = Math.max(...names.map((name) => name.length));
    const look = layout({
      margin: { l: 12 + 7 * longest, r: 16, t: 12, b: 48 },
      xaxis: titled(taskTitle(content.tasks[0])),
      yaxis: axis({
        tickvals: [...names.keys()],
        ticktext: names,
        range: [names.length - 0.5, -0.5],
        fixedrange: true,
      }),
      shapes: limitLines(c, { ...state, x: 0, y: null }),
    });
    const words = `${content.tasks[0].name} of the anchors and the front.`;
    return chart(place, { traces, layout: look, words });
  }

  return { drawFront };
})();
