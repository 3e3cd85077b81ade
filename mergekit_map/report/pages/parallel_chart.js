// Three tasks or more at once, as parallel coordinates: an axis for each task, on which
// better is up, and a line for each of some points that show the whole front.
"use strict";

const parallelChart = (() => {
  const { shortLabel, number, layout, axis, colours, line, chart } = drawing;
  const MOST = 40; // lines that can be told apart
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

  function draw(place, content, { index, allowed }) {
    const c = colours();
    const scales = content.tasks.map((task, t) => scaleOf(content, task, t));
    const along = [...scales.keys()];
    const sorted = [...content.points.keys()]
      .filter((i) => allowed[i])
      .sort((a, b) => content.points[a].predicted[0][0] - content.points[b].predicted[0][0]);
    const step = Math.max(1, (sorted.length - 1) / (MOST - 1));
    const some = sorted.filter((_, place_) => Math.floor(place_ / step + 1e-9) !==
      Math.floor((place_ - 1) / step + 1e-9));
    const of = (name, merge, kind, style, more) =>
      line(name, along, scales.map((scale, t) =>
        merge[kind][t] && Math.min(Math.max(scale(merge[kind][t][0]), -0.05), 1.05)), style,
        { uid: name, ...more });
    const traces = [
      ...some.map((i) => of(`point ${i}`, content.points[i], "predicted",
        { color: hue(scales[0](content.points[i].predicted[0][0])), width: 1.2 },
        { opacity: 0.6, customdata: along.map(() => i), hoverinfo: "name" })),
      ...content.anchors.map((anchor, i) =>
        of(shortLabel(anchor.label, 20), anchor, "measured",
          { color: c.anchor, width: 2, dash: DASHES[i % DASHES.length] },
          { showlegend: true, hoverinfo: "name", mode: "lines+text",
            text: [shortLabel(anchor.label, 12)], textposition: "middle left",
            visible: anchor.kind === "model" ? true : "legendonly" })),
      of(`point ${index}, shown`, content.points[index], "predicted",
        { color: c.chosen, width: 4 }, { showlegend: true, hoverinfo: "name" }),
    ];
    const look = layout({
      margin: { l: 24, r: 24, t: 12, b: 36 },
      xaxis: axis({ tickvals: along, range: [-0.2, along.length - 0.65], fixedrange: true,
        ticktext: content.tasks.map((task) => shortLabel(task.name, 18)),
        tickfont: { color: c.ink }, gridcolor: c.line, gridwidth: 2 }),
      yaxis: axis({ range: [-0.08, 1.08], showgrid: false, showticklabels: false,
        fixedrange: true }),
      annotations: scales.flatMap((scale, t) => [0, 1].map((height) => ({
        x: t, y: height, xshift: 4, xanchor: "left", text: number(scale.ends[height]),
        showarrow: false, font: { color: c.soft, size: 11 }, bgcolor: c.card,
      }))),
    });
    return chart(place, traces, look,
      `${content.tasks.length} tasks of the front as parallel coordinates.`);
  }

  // From blue at the worst value of the first task to orange at the best.
  function hue(share) {
    return `hsl(${220 - 190 * Math.min(Math.max(share, 0), 1)}, 70%, 48%)`;
  }

  // Scale a task between its worst and best predicted value on the front.
  function scaleOf(content, task, t) {
    const [low, high] = [Math.min, Math.max].map((end) => end(...content.points.map((point) => point.predicted[t][0])));
    const ends = task.higher ? [low, high] : [high, low];
    const constant = high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high));
    const width = constant ? (task.higher ? 1e-9 : -1e-9) * (Math.abs(low) || 1) : ends[1] - ends[0];
    const scale = (value) => Number(constant) + (value - ends[0]) / width;
    return Object.assign(scale, { ends });
  }

  return { draw };
})();
