// How the search went: every value in the order in which it was measured, with the
// reason why it was, and the hypervolume that the merges reached together.
"use strict";

const historyChart = (() => {
  const { layout, axis, titled, colours, chart, number, figure, taskFigure } = drawing;
  const { bars, describeTask } = marks;

  // The roles of merges, as marks and words; one measured for several has its first.
  const ROLES = {
    anchor: { symbol: "square", color: "anchor" },
    design: { symbol: "circle", color: "soft" },
    imported: { symbol: "x", color: "soft" },
    refinement: { symbol: "diamond", color: "predicted" },
    front: { symbol: "star", color: "measured" },
  };

  // Make places for the charts: of the volume, if it ever grew, and of each task.
  function make(box, content) {
    const grows = content.history.volume.some((share) => share !== null);
    box.append(
      ...(grows ? [figure("All tasks", "hypervolume", { id: "volume-chart" })] : []),
      ...content.tasks.map(taskFigure));
  }

  function drawAll(box, content) {
    const places = [...box.querySelectorAll(".chart")];
    const grown = places[0].id === "volume-chart" ? places.shift() : null;
    if (grown) inView.draw(grown, () => drawVolume(grown, content));
    places.forEach((place, t) => inView.draw(place, () => drawTask(place, content, t)));
  }

  function drawTask(place, content, t) {
    const c = colours();
    const task = content.tasks[t];
    const own = merges(content).filter(({ merge }) => merge.measured[t]);
    const traces = [
      bestLine(c, task, own.map(({ at, merge }) => [at, merge.measured[t][0]])),
      ...Object.entries(ROLES).flatMap(([role, { symbol, color }]) => {
        const some = own.filter(({ merge }) => merge.roles.find((r) => r in ROLES) === role);
        if (!some.length) return [];
        const values = some.map(({ merge }) => merge.measured[t]);
        return [{
          type: "scatter",
          mode: "markers",
          name: role,
          x: some.map(({ at }) => at),
          y: values.map((pair) => pair[0]),
          error_y: bars(values.map((pair) => pair[1]), c[color]),
          marker: {
            color: c[color],
            size: 8,
            symbol,
          },
          customdata: some.map(({ merge }) => merge.point),
          hovertext: some.map(({ at, merge }) =>
            [`${at}: ${merge.roles.join(", ")}`, describeTask(merge, t)].join("<br>")),
          hoverinfo: "text",
        }];
      }),
    ];
    const words = `Every measured value of ${task.name}, in order.`;
    return chart(place, { traces, layout: look(content, { yaxis: axis() }), words });
  }

  function drawVolume(place, content) {
    const c = colours();
    const { volume } = content.history;
    const at = volume.map((_, i) => i + 1);
    const traces = [{
      type: "scatter",
      mode: "lines+markers",
      name: "hypervolume",
      x: at,
      y: volume.map((share) => share && 100 * share),
      line: { color: c.measured, width: 2, shape: "hv" },
      marker: { color: c.measured, size: 5 },
      hovertext: volume.map((share, i) =>
        share === null ? "" : `after ${at[i]} merges: ${number(100 * share)} %`),
      hoverinfo: "text",
    }];
    const yaxis = axis({ range: [0, 105], ticksuffix: " %" });
    const words = "The hypervolume of the measured merges, in order, as a share of the last.";
    return chart(place, { traces, layout: look(content, { yaxis, showlegend: false }), words });
  }

  function merges(content) {
    return content.history.places.map((place, i) =>
      ({ at: i + 1, merge: content.merges[place] }));
  }

  // The best value until then.
  function bestLine(c, task, values) {
    const keep = task.higher ? Math.max : Math.min;
    let best = null;
    const y = values.map(([, value]) => {
      if (value !== null) best = best === null ? value : keep(best, value);
      return best;
    });
    return {
      type: "scatter",
      mode: "lines",
      name: "best so far",
      x: values.map(([at]) => at),
      y,
      line: { color: c.line, width: 2, shape: "hv" },
      hoverinfo: "skip",
      showlegend: false,
    };
  }

  function look({ history }, more) {
    const whole = history.places.length < 12 ? { dtick: 1 } : {};
    return layout({
      margin: { l: 52, r: 12, t: 8, b: 40 },
      xaxis: titled("merge, in order", whole),
      ...more,
    });
  }

  return { make, drawAll };
})();
