// The fronts of several searches in one chart of two tasks.
"use strict";

const frontsChart = (() => {
  const { shortLabel, taskTitle, reading, label, layout, titled, axis, chart, colours } = drawing;
  const SYMBOLS = ["diamond", "square", "triangle-up", "star", "hexagon", "pentagon"];

  function colourOf(r) {
    const style = getComputedStyle(document.documentElement);
    return style.getPropertyValue(`--run-${r % SYMBOLS.length}`).trim();
  }

  // A state has the tasks `x` and `y`, the `kind` to choose among and the `best` merges.
  function draw(place, content, state) {
    const c = colours();
    const traces = [
      ...content.runs.flatMap((run, r) => traceSearch(c, content, state, run, r)),
      anchors(c, content, state),
      ...content.runs.map((run, r) => ring(content, state, run, r)),
    ];
    const alone = content.tasks.length === 1;
    const look = layout({
      xaxis: titled(taskTitle(content.tasks[state.x])),
      yaxis: alone
        ? axis({ tickvals: [...content.runs.keys()],
          ticktext: content.runs.map(({ name }) => shortLabel(name, 18)),
          range: [content.runs.length - 0.5, -0.5] })
        : titled(taskTitle(content.tasks[state.y])),
    });
    if (alone) look.margin.l = 130;
    const names = content.runs.map(({ name }) => name).join(", ");
    return chart(place, { traces, layout: look, words: `The fronts of ${names}.` });
  }

  function traceSearch(c, content, state, run, r) {
    const color = colourOf(r);
    const lost = preferring.beaten(run.merges, content.tasks);
    const own = run.merges.filter(({ kind }) => kind !== "base" && kind !== "model");
    const kept = own.filter((merge) => !lost[run.merges.indexOf(merge)]);
    const left = own.filter((merge) => lost[run.merges.indexOf(merge)]);
    const name = shortLabel(run.name, 20);
    return [
      scatter(content, state, run, r, run.points, "predicted", {
        name: `${name}, predicted`,
        marker: { symbol: "circle", size: 6, color: c.card, line: { color, width: 1.4 } },
        opacity: 0.7,
      }),
      scatter(content, state, run, r, left, "measured", {
        name,
        marker: { symbol: SYMBOLS[r % SYMBOLS.length], size: 8, color },
        opacity: 0.35,
        showlegend: false,
      }),
      scatter(content, state, run, r, kept, "measured", {
        name: `${name}, measured`,
        marker: {
          symbol: SYMBOLS[r % SYMBOLS.length], size: 10, color,
          line: { color: c.card, width: 1 },
        },
        ...errors(state, kept, color, content),
      }),
    ];
  }

  function errors({ x, y }, merges, color, content) {
    const bars = (t) => marks.bars(merges.map((m) => m.measured[t][1]), color);
    return content.tasks.length === 1
      ? { error_x: bars(x) }
      : { error_x: bars(x), error_y: bars(y) };
  }

  function scatter(content, { x, y }, run, r, merges, kind, more) {
    const alone = content.tasks.length === 1;
    return {
      type: "scatter",
      mode: "markers",
      x: merges.map((m) => m[kind][x][0]),
      y: merges.map((m) => (alone ? r : m[kind][y][0])),
      hovertext: merges.map((m) => describe(content, run, m, kind)),
      hoverinfo: "text",
      ...more,
    };
  }

  // Base and single models that measured the same in several searches stand once.
  function anchors(c, content, state) {
    const known = new Map();
    content.runs.forEach((run, r) => {
      for (const merge of run.merges) {
        if (merge.kind !== "base" && merge.kind !== "model") continue;
        const key = JSON.stringify([merge.label, merge.measured]);
        if (!known.has(key)) known.set(key, { merge, run, r });
      }
    });
    const found = [...known.values()];
    const alone = content.tasks.length === 1;
    return {
      type: "scatter",
      mode: "markers+text",
      name: "base and single models",
      x: found.map(({ merge }) => merge.measured[state.x][0]),
      y: found.map(({ merge, r }) => (alone ? r : merge.measured[state.y][0])),
      text: found.map(({ merge }) => shortLabel(merge.label, 20)),
      textposition: "top center",
      textfont: { color: c.ink, size: 12 },
      marker: { symbol: "cross", size: 9, color: c.anchor },
      hovertext: found.map(({ merge, run }) => describe(content, run, merge, "measured")),
      hoverinfo: "text",
    };
  }

  function ring(content, state, run, r) {
    const merge = preferring.candidates(run, state.kind)[state.best[r].index];
    return scatter(content, state, run, r, [merge], state.kind, {
      name: `${shortLabel(run.name, 20)}, best`,
      marker: {
        symbol: "circle-open", size: 19, color: colourOf(r),
        line: { color: colourOf(r), width: 3 },
      },
      showlegend: false,
    });
  }

  function describe(content, run, merge, kind) {
    const name = merge.label ?? null;
    const weights = run.coefficients.map((coefficient, i) =>
      `${shortLabel(coefficient, 16)} ${drawing.number(merge.coefficients[i])}`);
    return [
      `<b>${label(run.name)}${name === null ? "" : `: ${label(name)}`}</b>`,
      ...content.tasks.map((task, t) =>
        `${shortLabel(task.name)}: ${reading(merge[kind][t])} ${kind}`),
      weights.join(", "),
    ].join("<br>");
  }

  return { draw, colourOf };
})();
