// The point of the front for a preference and limits, by the rules of
// mergekit_map/optimize/scalarization.py: a weighted sum of values, each scaled to the range
// of the front. A test in a browser compares the two.
"use strict";

const choosing = (() => {
  // Scores and distances nearer than this are ties: they differ by rounding.
  const TIE = 1e-12;
  const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  const SHARE = /^(?=.*[1-9])\d*\.?\d+ ?%$/;

  // Return the `index` of the point for `weights` and `limits` (number or null) by task,
  // which are `shares` of gains (or 0), and which points are `allowed`. Where none is,
  // `index` is the nearest to the limits, and `missing` how far it is from them by task.
  function choose(content, { weights, limits, shares }) {
    const utilities = content.points.map((point) =>
      point.predicted.map((reading, t) => sign(content.tasks[t]) * reading[0]));
    const lower = content.tasks.map((task, t) =>
      (limits[t] === null ? -Infinity : sign(task) * limits[t]));
    const reached = utilities.map((row, i) => row.map((value, t) => {
      const known = content.points[i].measured[t];
      return known ? Math.min(value, sign(content.tasks[t]) * known[0]) : value;
    }));
    // What was measured may miss a limit by its noise (mergekit_map/results/limits.py).
    const allowed = reached.map((row, i) => row.every((value, t) => {
      const [base, parent, between] = content.points[i].variances[t];
      const s = shares[t];
      const noise = Math.sqrt(Math.max((1 - s) * base + s * parent - s * (1 - s) * between, 0));
      return utilities[i][t] >= lower[t] && value + noise >= lower[t];
    }));
    const open = content.points.map((point, i) => allowed[i] && !point.failed);
    const ranges = rangesOf(utilities);
    const scaled = utilities.map((row) => row.map((value, t) => {
      const { worst, width, constant } = ranges[t];
      return constant ? 1 : (value - worst) / width;
    }));
    if (!open.includes(true)) {
      const units = rangesOf(reached).map((r) => (r.constant ? Infinity : r.width));
      const scores = reached.map((row) => -sum(row.map((value, t) =>
        Math.max(lower[t] - value, 0) / units[t])));
      const index = best(scores, scaled, content.points.map((point) => !point.failed));
      const missing = lower.map((limit, t) => Math.max(limit - reached[index][t], 0));
      return { index, allowed, missing };
    }
    const preferred = sharesOf(weights);
    const scores = scaled.map((row) => sum(row.map((value, t) => value * preferred[t])));
    return { index: best(scores, scaled, open), allowed, missing: null };
  }

  // Read a limit as it is typed: a number in the task's own units, or a share such as
  // 95% of the best parent's gain over the base. Return it as `limit`, null where there
  // is none, or what is `wrong`.
  function readLimit(text, content, t) {
    const typed = text.trim();
    if (typed === "") return { limit: null };
    if (NUMBER.test(typed)) {
      const limit = Number(typed);
      if (!Number.isFinite(limit)) return { limit: null, wrong: "too large" };
      return isMistake(limit, content, t)
        ? { limit: null, wrong: `every model keeps it: did you mean ${typed}%?` } : { limit };
    }
    if (!SHARE.test(typed)) {
      return { limit: null, wrong: "write a number, or a share such as 95%" };
    }
    const values = (kind) => content.anchors
      .filter((anchor) => anchor.kind === kind && anchor.measured[t])
      .map((anchor) => anchor.measured[t][0]);
    const [base] = values("base");
    const parents = values("model");
    const parent = content.tasks[t].higher ? Math.max(...parents) : Math.min(...parents);
    // Nor does one that was not measured.
    if (!(sign(content.tasks[t]) * (parent - base) > 0)) {
      return { limit: null, wrong: "no parent beats the base here: write a number" };
    }
    const share = Number(typed.slice(0, -1)) / 100;
    return { limit: (1 - share) * base + share * parent, share };
  }

  // A limit of ten times all losses of reference points, such as 95 for 95%.
  function isMistake(limit, content, t) {
    const known = content.anchors.filter((anchor) => anchor.measured[t])
      .map((anchor) => sign(content.tasks[t]) * anchor.measured[t][0]);
    const allowed = 10 * Math.min(...known);
    return limit >= 5 && limit <= 100 && allowed < 0
      && sign(content.tasks[t]) * limit < allowed;
  }

  // Divide a preference by its sum; all 0 where nothing is preferred.
  function sharesOf(weights) {
    const largest = Math.max(...weights);
    if (largest === 0) return weights.map(() => 0);
    // Divided by the largest first, as the sum of huge weights may overflow.
    const relative = weights.map((weight) => weight / largest);
    const total = sum(relative);
    return relative.map((weight) => weight / total);
  }

  function rangesOf(utilities) {
    return utilities[0].map((_, t) => {
      const column = utilities.map((row) => row[t]);
      const worst = Math.min(...column);
      const width = Math.max(...column) - worst;
      const constant = width <= TIE * Math.max(...column.map(Math.abs));
      return { worst, width, constant };
    });
  }

  // The allowed row of the largest score; of ties the nearest to the ideal.
  function best(scores, scaled, allowed) {
    const open = scores.map((score, i) => (allowed[i] ? score : -Infinity));
    const top = Math.max(...open);
    const tied = [...open.keys()].filter((i) => open[i] >= top - TIE);
    const distances = tied.map((i) => Math.hypot(...scaled[i].map((v) => 1 - v)));
    const nearest = Math.min(...distances);
    return tied[distances.findIndex((distance) => distance <= nearest + TIE)];
  }

  function sign(task) {
    return task.higher ? 1 : -1;
  }

  function sum(values) {
    return values.reduce((total, value) => total + value, 0);
  }

  return { choose, readLimit, sharesOf };
})();
