// Which point of the front is chosen: the rules of mergekit_map/search/selection.py and
// study/choosing.py, in the same order of arithmetic. A test in a browser holds the two
// against one another.
"use strict";

const choosing = (() => {
  // Scores and distances nearer than this are ties: they differ by rounding.
  const TIE = 1e-12;
  // Share of the sum in the achievement function.
  const AUGMENTATION = 1e-4;
  const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  const SHARE = /^(?=.*[1-9])\d*\.?\d+%$/;

  // Choose a point. `content` is the report's, a request has `weights` and `limits`
  // (number or null) by task, `rivals` (labels of anchors) that it must be as good as,
  // by a `margin` in standard errors, and a `scalarization`. Gives the `index` of the point,
  // which points are `allowed` and, where none is, what the nearest one, which `index`
  // is then, is `missing` by task.
  function choose(content, request) {
    const utilities = utilitiesOf(content);
    const rivals = content.anchors.filter(({ label }) => request.rivals.includes(label));
    const lower = content.tasks.map((task, t) => {
      const limits = [request.limits[t], ...rivals.map((r) => bar(r, task, t, request))];
      const known = limits.filter((limit) => limit !== null);
      return Math.max(-Infinity, ...known.map((limit) => sign(task) * limit));
    });
    const allowed = utilities.map((row) => row.every((value, t) => value >= lower[t]));
    if (!allowed.includes(true)) {
      const index = nearestToLimits(utilities, lower);
      const missing = lower.map((limit, t) => Math.max(limit - utilities[index][t], 0));
      return { index, allowed, missing };
    }
    const scaled = scale(utilities);
    const shares = sharesOf(request.weights);
    const score = SCORES[request.scalarization];
    const scores = scaled.map((row) => score(row, shares));
    return { index: best(scores, scaled, allowed), allowed, missing: null };
  }

  const SCORES = {
    sum: (row, shares) => sum(row.map((value, t) => value * shares[t])),
    achievement: (row, shares) => {
      const missing = row.map((value, t) => shares[t] * (1 - value));
      return -(Math.max(...missing) + AUGMENTATION * sum(missing));
    },
  };

  // Read a limit as it is typed: a number in the task's own units, or a share such as
  // 95% of the best single model's gain over the base. Gives a `limit`, null where there
  // is none, or says what is `wrong`.
  function readLimit(text, content, t) {
    const typed = text.trim();
    if (typed === "") return { limit: null };
    if (NUMBER.test(typed)) {
      const limit = Number(typed);
      return Number.isFinite(limit) ? { limit } : { limit: null, wrong: "too large" };
    }
    if (!SHARE.test(typed)) {
      return { limit: null, wrong: "write a number, or a share such as 95%" };
    }
    const single = bestSingleModel(content, t);
    const base = content.anchors.find(({ label }) => label === "base")?.measured[t];
    if (single === null || !base) {
      const what = single === null ? "no single model" : "no base";
      return { limit: null, wrong: `${what} was measured: write a number` };
    }
    if (sign(content.tasks[t]) * (single.value - base[0]) <= 0) {
      const wrong = "no single model gains on the base here: write a number";
      return { limit: null, wrong };
    }
    const share = Number(typed.slice(0, -1)) / 100;
    return { limit: (1 - share) * base[0] + share * single.value };
  }

  // What a rival demands on a task. Margins below 0 count the
  // error of a measurement, others that of a prediction.
  function bar({ measured, errors }, task, t, { margin }) {
    if (!measured[t]) return null;
    const error = margin === 0 ? 0 : errors[t][margin > 0 ? 1 : 0];
    return measured[t][0] + sign(task) * margin * error;
  }

  // The anchors that a choice may be asked not to be worse than: measured on all tasks.
  function rivalsOf(content) {
    return content.anchors.filter(({ measured }) => measured.every((pair) => pair));
  }

  // The single model that measured best on a task, or null.
  function bestSingleModel(content, t) {
    let found = null;
    for (const anchor of content.anchors) {
      const reading = anchor.measured[t];
      if (anchor.kind !== "model" || reading === null) continue;
      const ahead = found && sign(content.tasks[t]) * (reading[0] - found.value);
      if (found === null || ahead > 0) {
        found = { label: anchor.label, value: reading[0], stderr: reading[1] };
      }
    }
    return found;
  }

  // A preference, divided by its sum; all 0 where nothing is preferred.
  function sharesOf(weights) {
    const largest = Math.max(...weights);
    if (largest === 0) return weights.map(() => 0);
    // Divided by the largest first, as the sum of huge weights may overflow.
    const relative = weights.map((weight) => weight / largest);
    const total = sum(relative);
    return relative.map((weight) => weight / total);
  }

  function utilitiesOf(content) {
    return content.points.map((point) =>
      point.predicted.map((reading, t) => sign(content.tasks[t]) * reading[0]),
    );
  }

  // Map each task's worst value to 0 and its best to 1; a constant task to 1.
  function scale(utilities) {
    const ranges = rangesOf(utilities);
    return utilities.map((row) =>
      row.map((value, t) => {
        const { worst, width, constant } = ranges[t];
        return constant ? 1 : (value - worst) / width;
      }),
    );
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

  // The point that falls short of its limits by the smallest sum of shares.
  function nearestToLimits(utilities, lower) {
    const ranges = rangesOf(utilities);
    const scores = utilities.map((row) => {
      const short = row.map((value, t) => {
        const width = ranges[t].constant ? Infinity : ranges[t].width;
        return Math.max(lower[t] - value, 0) / width;
      });
      return -sum(short);
    });
    return best(scores, scale(utilities), utilities.map(() => true));
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

  return { choose, readLimit, rivalsOf, bestSingleModel, sharesOf };
})();
