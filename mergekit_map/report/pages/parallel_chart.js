// All tasks at once, as parallel coordinates: an axis per task, on which better is up, or
// to the right where the page is narrow, and a line per point of the front.
"use strict";

const parallelChart = (() => {
  const { shortLabel, number, layout, axis, colours, isNarrow, chart } = drawing;
  const { bars, describe, numbered, parted } = marks;

  // A state has the `index` of the chosen point, and which points are `allowed`.
  function drawAll(place, content, state) {
    const c = colours();
    const scales = content.tasks.map((task, t) => scaleOf(content, task, t));
    const shown = { c, content, scales };
    const points = numbered(content);
    const [kept, left] = parted(points, (point) => state.allowed[point.index]);
    const checked = points.filter((point) => point.measured.some((pair) => pair));
    const traces = [
      lines(shown, "outside the limits", left, "predicted", {
        line: { color: c.out, width: 1 },
        opacity: 0.5,
      }),
      lines(shown, "front, predicted", kept, "predicted", {
        line: { color: c.predicted, width: 1 },
        opacity: 0.35,
      }),
      lines(shown, "front, measured", checked, "measured", {
        line: { color: c.measured, width: 1, dash: "dot" },
        opacity: 0.55,
        visible: "legendonly",
      }),
      ...content.anchors.map((anchor) =>
        lines(shown, shortLabel(anchor.label, 20), [anchor], "measured", {
          mode: "lines+markers",
          line: { color: c.anchor, width: 1, dash: "dash" },
          marker: { ...marks.anchor(c, anchor.kind), size: 9 },
          visible: anchor.kind === "model" ? true : "legendonly",
        }),
      ),
      ...chosenLines(shown, points[state.index]),
    ].filter((trace) => trace.customdata.length);
    const look = isNarrow() ? narrowLayout(shown) : wideLayout(shown);
    const words = `All ${content.tasks.length} tasks of the front as parallel coordinates.`;
    return chart(place, { traces, layout: look, words });
  }

  function chosenLines(shown, chosen) {
    const { c } = shown;
    const drawn = (name, kind, line, marker) =>
      lines(shown, name, chosen[kind].some((pair) => pair) ? [chosen] : [], kind, {
        mode: "lines+markers",
        line,
        marker,
        errors: bars(errorsOf(shown, chosen, kind), line.color),
      });
    return [
      drawn("chosen, predicted", "predicted", { color: c.chosen, width: 3.5 },
        { color: c.chosen, size: 7 }),
      drawn("chosen, measured", "measured", { color: c.measured, width: 2.5, dash: "dot" },
        { color: c.measured, size: 8, symbol: "diamond" }),
    ];
  }

  function errorsOf({ scales }, merge, kind) {
    return scales.map((scale, t) => {
      const pair = merge[kind][t];
      return pair && Math.abs(scale(pair[0] + (pair[1] ?? 0)) - scale(pair[0]));
    });
  }

  // A trace with a line per merge, each followed by a gap.
  function lines({ content, scales }, name, merges, kind, { errors, ...more }) {
    const repeated = (value) => Array(scales.length + 1).fill(value);
    const along = merges.flatMap(() => [...scales.keys(), null]);
    const heights = merges.flatMap((merge) => [
      ...scales.map((scale, t) => merge[kind][t] && onAxis(scale(merge[kind][t][0]))),
      null,
    ]);
    return {
      type: "scatter",
      mode: "lines",
      name,
      ...(isNarrow()
        ? { x: heights, y: along, error_x: errors }
        : { x: along, y: heights, error_y: errors }),
      customdata: merges.flatMap((merge) => repeated(merge.index ?? null)),
      hovertext: merges.flatMap((merge) => repeated(describe(content, merge))),
      hoverinfo: "text",
      ...more,
    };
  }

  // What lies beyond the end of an axis is drawn there.
  function onAxis(height) {
    return Math.min(Math.max(height, -0.05), 1.05);
  }

  function wideLayout(shown) {
    const { c, content } = shown;
    return layout({
      margin: { l: 24, r: 24, t: 12, b: 36 },
      xaxis: axis({
        ...taskAxis(shown),
        range: [-0.15, content.tasks.length - 0.7],
        ticktext: content.tasks.map((task) => `<b>${shortLabel(task.name, 22)}</b>`),
        tickfont: { color: c.ink, size: 12 },
      }),
      yaxis: axis(VALUES),
      annotations: written(shown, (t, height) => ({
        x: t, y: height, xshift: 6, xanchor: "left", yanchor: "middle",
      })),
    });
  }

  function narrowLayout(shown) {
    const { c, content } = shown;
    const last = content.tasks.length - 1;
    const names = content.tasks.map((task, t) => ({
      x: 0,
      y: t,
      yshift: 14,
      xanchor: "left",
      text: `<b>${shortLabel(task.name, 30)}</b>`,
      font: { color: c.ink, size: 12 },
      showarrow: false,
    }));
    const ends = { 0: "left", 0.5: "center", 1: "right" };
    const values = written(shown, (t, height) => ({
      x: height, y: t, yshift: -12, xanchor: ends[height],
    }));
    return layout({
      margin: { l: 8, r: 8, t: 12, b: 12 },
      height: 150 + 76 * content.tasks.length,
      legend: {
        orientation: "h", x: 0, y: 0, yanchor: "top", font: { size: 11 },
        entrywidth: 0.5, entrywidthmode: "fraction",
      },
      xaxis: axis(VALUES),
      yaxis: axis({ ...taskAxis(shown), range: [last + 0.5, -0.5], showticklabels: false }),
      annotations: [...values, ...names],
    });
  }

  const VALUES = {
    range: [-0.08, 1.08],
    showline: false,
    showgrid: false,
    showticklabels: false,
    fixedrange: true,
  };

  function taskAxis({ c, scales }) {
    return {
      tickvals: [...scales.keys()],
      gridcolor: c.line,
      gridwidth: 2,
      showline: false,
      fixedrange: true,
    };
  }

  // The values at the ends and in the middle of every axis.
  function written({ c, scales }, place) {
    return scales.flatMap((scale, t) =>
      [0, 0.5, 1].map((height) => ({
        ...place(t, height),
        text: number(scale.inverse(height)),
        showarrow: false,
        font: { color: c.soft, size: 11 },
        bgcolor: c.card,
        borderpad: 1,
      })),
    );
  }

  // Scale a task between its worst and best value on the front, predicted or measured.
  function scaleOf(content, task, t) {
    const values = (merges, kinds) =>
      merges
        .flatMap((merge) => kinds.map((kind) => merge[kind][t]))
        .filter((pair) => pair)
        .map((pair) => pair[0]);
    let known = values(content.points, ["predicted", "measured"]);
    if (new Set(known).size === 1) {
      known = [...known, ...values(content.anchors, ["measured"])];
    }
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const width = high - low || 1;
    const [worst, span] = task.higher ? [low, width] : [high, -width];
    const scale = (value) => (value - worst) / span;
    scale.inverse = (height) => worst + height * span;
    return scale;
  }

  return { drawAll };
})();
