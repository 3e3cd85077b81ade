// The front of three tasks in space.
"use strict";

const spaceChart = (() => {
  const { shortLabel, better, layout, colours, chart } = drawing;
  const { bars, describe, numbered, readOn } = marks;

  function drawSpace(place, content, state) {
    const c = colours();
    const points = numbered(content);
    const checked = readOn(points, "measured", 0, 1, 2);
    const known = readOn(content.anchors, "measured", 0, 1, 2);
    const colour = (point) => (state.allowed[point.index] ? c.predicted : c.out);
    const traces = [
      inSpace(content, "front, predicted", points, "predicted", {
        marker: { color: points.map(colour), size: 4, symbol: "circle-open" },
      }),
      inSpace(content, "front, measured", checked, "measured", {
        marker: { color: c.measured, size: 4, symbol: "diamond" },
        error_x: bars(checked.map((m) => m.measured[0][1]), c.measured),
        error_y: bars(checked.map((m) => m.measured[1][1]), c.measured),
        error_z: bars(checked.map((m) => m.measured[2][1]), c.measured),
      }),
      inSpace(content, "anchors", known, "measured", {
        mode: "markers+text",
        marker: { color: c.anchor, size: 5, symbol: "square" },
        text: known.map((anchor) => shortLabel(anchor.label, 20)),
        textfont: { color: c.anchor, size: 11 },
      }),
      inSpace(content, "kept beside", points.filter((p) => p.index === state.beside),
        "predicted", { marker: { color: c.beside, size: 9, symbol: "circle" } }),
      inSpace(content, "chosen", [points[state.index]], "predicted", {
        marker: { color: c.chosen, size: 9, symbol: "circle" },
      }),
    ];
    const [xaxis, yaxis, zaxis] = content.tasks.map((task) => ({
      title: { text: `${shortLabel(task.name, 18)}, ${better(task)}`, font: { size: 11 } },
      color: c.soft,
      gridcolor: c.line,
      backgroundcolor: "rgba(0,0,0,0)",
      showspikes: false,
    }));
    const look = layout({
      margin: { l: 0, r: 0, t: 0, b: 16 },
      dragmode: "orbit",
      scene: { xaxis, yaxis, zaxis, camera: { eye: { x: 1.3, y: 1.3, z: 0.7 } } },
    });
    const words = `The front of ${content.tasks.map((t) => t.name).join(", ")} in space.`;
    return chart(place, { traces, layout: look, words });
  }

  function inSpace(content, name, merges, kind, more) {
    const [x, y, z] = [0, 1, 2].map((t) => merges.map((m) => m[kind][t][0]));
    return {
      type: "scatter3d",
      mode: "markers",
      name,
      x,
      y,
      z,
      customdata: merges.map((m) => m.index ?? null),
      hovertext: merges.map((m) => describe(content, m)),
      hoverinfo: "text",
      ...more,
    };
  }

  return { drawSpace };
})();
