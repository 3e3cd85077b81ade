// The best merge of every search for one preference, on one scale for all.
"use strict";

const preferring = (() => {
  // Find, for each search, which of its merges of a `kind`, "measured" or "predicted", has
  // the largest weighted sum of values, scaled from the worst (0) to the best (1) of all;
  // with that score and its standard error.
  function best(content, weights, kind) {
    const shares = choosing.sharesOf(weights);
    const ranges = content.tasks.map((_, t) => rangeOf(content, kind, t));
    return content.runs.map((run) => {
      const scores = candidates(run, kind).map((merge) =>
        content.tasks.reduce((total, task, t) => {
          const { low, width } = ranges[t];
          const place = (merge[kind][t][0] - low) / (width || 1);
          return total + shares[t] * (width === 0 || task.higher ? place : 1 - place);
        }, 0));
      const score = Math.max(...scores);
      const index = scores.indexOf(score);
      const errors = candidates(run, kind)[index][kind].map(([, stderr], t) =>
        (shares[t] * (stderr ?? 0)) / (ranges[t].width || 1));
      return { index, score, stderr: Math.hypot(...errors) };
    });
  }

  // What a search can choose among.
  function candidates(run, kind) {
    return kind === "measured" ? run.merges : run.points;
  }

  function rangeOf(content, kind, t) {
    const values = content.runs.flatMap((run) =>
      candidates(run, kind).map((merge) => merge[kind][t][0]));
    const low = Math.min(...values);
    return { low, width: Math.max(...values) - low };
  }

  // Tell of each merge whether another one is better on some task, and worse on none.
  function beaten(merges, tasks) {
    const rows = merges.map((merge) =>
      tasks.map((task, t) => (task.higher ? 1 : -1) * merge.measured[t][0]));
    return rows.map((row) => rows.some((other) =>
      other.every((value, t) => value >= row[t]) && other.some((value, t) => value > row[t])));
  }

  return { best, candidates, beaten };
})();
