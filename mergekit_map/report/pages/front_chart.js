// The front as a chart: one task in rows, two as a scatter.
"use strict";

const frontChart = (() => {
  const { shortLabel, taskTitle, layout, axis, titled, colours, dots, line, chart } = drawing;
  const { bars, describe, readOn } = marks;

  // Draw the front for a state: the `index` of the point that is shown, which points are
  // `allowed`, the `limits` by task, and the tasks `x` and `y`.
  function draw(place, content, state) {
    return (content.tasks.length === 1 ? drawRows : drawScatter)(place, content, state);
  }

  function drawScatter(place, content, state) {
    const { x, y } = state;
    const c = colours();
    const points = content.points.map((point, index) => ({ ...point, index }));
    const kept = points.filter(({ index }) => state.allowed[index]);
    const left = points.filter(({ index }) => !state.allowed[index]);
    const shown = (name, merges, kind, marker, more = {}) => ({
      ...dots(name, merges.map((m) => m[kind][x][0]), merges.map((m) => m[kind][y][0])),
      customdata: merges.map((m) => m.index ?? null),
      hovertext: merges.map((m) =>
        describe(content.tasks, content.coefficients.map(({ name: n }) => n), m)),
      showlegend: merges.length > 0,
      marker,
      ...more,
    });
    const errors = (merges, kind, color) => ({
      error_x: bars(merges.map((m) => m[kind][x][1]), color),
      error_y: bars(merges.map((m) => m[kind][y][1]), color),
    });
    const measured = (name, merges, color) => {
      const known = readOn(merges, "measured", x, y);
      return shown(name, known, "measured", marks.measured(c, color),
        errors(known, "measured", color));
    };
    const checked = readOn(points, "measured", x, y);
    const recommended = readOn(kept, "measured", x, y).filter((p) => p.recommended);
    const anchors = readOn(content.anchors, "measured", x, y);
    const others = readOn(content.merges, "measured", x, y).filter((m) =>
      m.point === null && !content.anchors.some(({ label }) => label === m.label));
    const chosen = [points[state.index]];
    const ends = (t) => checked.flatMap((m) => [m.predicted[t][0], m.measured[t][0], null]);
    const traces = [
      ...(content.tasks.length === 2 ? [frontLine(c, points)] : []),
      line("", ends(x), ends(y), { color: c.measured, width: 1 }),
      shown("other merges", others, "measured",
        { color: c.soft, size: 5, opacity: 0.6 }, { visible: "legendonly" }),
      shown("outside the limits", left, "predicted", marks.predicted(c, c.out)),
      { ...measured("", left, c.out), showlegend: false },
      shown("predicted", kept, "predicted", marks.predicted(c, c.predicted)),
      measured("measured", kept, c.measured),
      shown("recommended", recommended, "measured",
        { ...marks.measured(c, c.measured), symbol: "star", size: 13 }),
      shown("base, parents, soup", anchors, "measured", marks.anchors(c, anchors), {
        mode: "markers+text",
        text: anchors.map((anchor) => shortLabel(anchor.label, 20)),
        textfont: { color: c.ink, size: 12, shadow: `0 0 2px ${c.card}, 0 0 3px ${c.card}` },
        textposition: anchors.map((anchor) => textPlace(content, anchor, x, y)),
        ...errors(anchors, "measured", c.anchor),
      }),
      shown("shown", chosen, "predicted", marks.ring(c.chosen),
        errors(chosen, "predicted", c.predicted)),
    ];
    const [across, up] = [content.tasks[x], content.tasks[y]];
    const look = layout({
      xaxis: titled(taskTitle(across)),
      yaxis: titled(taskTitle(up)),
      shapes: limitLines(c, state),
    });
    return chart(place, traces, look,
      `The front of ${across.name} and ${up.name}: ${points.length} points, ` +
      `${checked.length} of them measured.`);
  }

  // The front of two tasks is a line.
  function frontLine(c, points) {
    const sorted = [...points].sort((a, b) => a.predicted[0][0] - b.predicted[0][0]);
    const [x, y] = [0, 1].map((t) => sorted.map((point) => point.predicted[t][0]));
    return line("", x, y, { color: c.predicted, width: 1 }, { opacity: 0.5 });
  }

  // Keep a label inside the chart: on the side of its mark where the middle is.
  function textPlace(content, anchor, x, y) {
    const place = (t) => {
      const merges = [...content.points, ...content.anchors];
      const known = merges.flatMap((m) => [m.predicted[t], m.measured[t]]).filter(Boolean);
      const values = known.map((pair) => pair[0]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return (anchor.measured[t][0] - low) / (high - low || 1);
    };
    return `${place(y) > 0.9 ? "bottom" : "top"} ${place(x) > 0.6 ? "left" : "right"}`;
  }

  function limitLines(c, { limits, x, y }) {
    const style = { type: "line", line: { color: c.chosen, width: 1.5, dash: "dash" } };
    const across = { ...style, x0: limits[x], x1: limits[x], y0: 0, y1: 1, yref: "paper" };
    const up = { ...style, y0: limits[y], y1: limits[y], x0: 0, x1: 1, xref: "paper" };
    return [
      ...(limits[x] === null ? [] : [across]),
      ...(y === null || limits[y] === null ? [] : [up]),
    ];
  }

  // One task: a row for every reference point and point.
  function drawRows(place, content, state) {
    const c = colours();
    const points = content.points.map((point, index) => ({ ...point, index }));
    const merges = [...content.anchors, ...points];
    const names = merges.map((merge) => shortLabel(marks.nameOf(merge), 20));
    const traces = ["predicted", "measured"].map((kind) => {
      const known = readOn(merges, kind, 0);
      return {
        ...dots(kind, known.map((m) => m[kind][0][0]), known.map((m) => merges.indexOf(m))),
        error_x: bars(known.map((m) => m[kind][0][1]), c[kind]),
        customdata: known.map((m) => m.index ?? null),
        hovertext: known.map((m) => marks.describeTask(m, 0)),
        marker: marks[kind](c, c[kind]),
      };
    });
    const row = content.anchors.length + state.index;
    traces.push({ ...dots("shown", [content.points[state.index].predicted[0][0]], [row]),
      marker: marks.ring(c.chosen), hoverinfo: "skip" });
    const look = layout({
      margin: { l: 12 + 7 * Math.max(...names.map((n) => n.length)), r: 16, t: 12, b: 48 },
      xaxis: titled(taskTitle(content.tasks[0])),
      yaxis: axis({ tickvals: [...names.keys()], ticktext: names, fixedrange: true,
        range: [names.length - 0.5, -0.5] }),
      shapes: limitLines(c, { ...state, x: 0, y: null }),
    });
    return chart(place, traces, look, `${content.tasks[0].name} of every point.`);
  }

  return { draw };
})();
