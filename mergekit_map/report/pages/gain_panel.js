// What a point gains over base, soup and the best parent of each task: a table for the
// chosen point, and one for a second point that is kept beside it.
"use strict";

const gainPanel = (() => {
  const { element, fill, number, plusMinus, otherWords } = drawing;
  const NOISE = 2; // standard errors within which noise explains a difference

  // Show the point `index` of a state, and the point `beside` it unless that is null.
  function show(content, { index, beside }) {
    fill("gain-chosen", ...side(content, index, null));
    fill("gain-beside", ...(beside === null ? [] : side(content, beside, index)));
    document.getElementById("gain-beside").hidden = beside === null;
    document.getElementById("gains").classList.toggle("two", beside !== null);
  }

  function side(content, index, other) {
    const said = content.said[index];
    const names = content.tasks.map((task) =>
      element("th", { scope: "col" }, task.name, element("small", {}, task.facts)));
    const rows = [
      pointRow(content, index),
      ...(other === null ? [] : [otherRow(content, index, other)]),
      ...content.rivals.map((rival, r) => rivalRow(content, rival, said.ahead[r])),
      ...(said.kept.some((share) => share !== null) ? [keptRow(said)] : []),
    ];
    const table = element("table", { class: "gain" },
      element("caption", {}, `Point ${index}`, element("small", {}, weights(content, index))),
      element("thead", {}, element("tr", {}, element("td", {}), ...names)),
      element("tbody", {}, ...rows));
    const words = said.gained.map((s) => element("p", {}, content.sentences[s]));
    return [element("div", { class: "scroll" }, table), ...words];
  }

  function weights(content, index) {
    const values = content.points[index].coefficients;
    return content.coefficients.map(({ name }, i) => `${name} ${number(values[i])}`).join(", ");
  }

  function row(name, note, cells) {
    return element("tr", {}, element("th", { scope: "row" }, name,
      note ? element("small", {}, note) : null), ...cells);
  }

  function pointRow(content, index) {
    return row(`Point ${index}`, null, content.tasks.map((task, t) => {
      const { kind, pair } = known(content.points[index], t);
      return cell(task, pair, kind, [kind]);
    }));
  }

  function rivalRow(content, { label, of }, ahead) {
    const anchors = of.map((place) => (place === null ? null : content.anchors[place]));
    const named = anchors.some((anchor) => anchor && anchor.label !== label);
    return row(label, null, content.tasks.map((task, t) => {
      const pair = anchors[t]?.measured[t] ?? null;
      if (pair === null) return element("td", { class: "number soft" }, "–");
      return cell(task, pair, "anchor", named ? [anchors[t].label] : [], ahead[t]);
    }));
  }

  function otherRow(content, index, other) {
    return row(`Point ${other}`, null, content.tasks.map((task, t) => {
      const [one, two] = [index, other].map((i) => known(content.points[i], t));
      if (one.pair[0] === null || two.pair[0] === null) {
        return cell(task, two.pair, two.kind, [two.kind]);
      }
      const amount = (task.higher ? 1 : -1) * (one.pair[0] - two.pair[0]);
      const stderr = apart(content, t, index, other, one.pair[1], two.pair[1]);
      const far = stderr !== null && Math.abs(amount) > NOISE * stderr;
      const verdict = far ? (amount > 0 ? "better" : "worse") : "noise";
      return cell(task, two.pair, two.kind, [two.kind], [amount, stderr, verdict]);
    }));
  }

  function keptRow({ kept }) {
    const cells = kept.map((share) =>
      element("td", { class: "number" }, share === null ? "–" : keptInWords(share)));
    return row("kept", "of the best parent's gain over the base", cells);
  }

  function keptInWords(share) {
    return share < 0 ? "below the base" : `${Math.round(100 * share)} %`;
  }

  // A value, what is to be said of it, and how the point of the table does beside it.
  function cell(task, pair, kind, notes, ahead = null) {
    const more = [...notes, otherWords(task, pair[0])].filter(Boolean);
    return element("td", { class: `number ${kind}` },
      element("span", {}, number(pair[0])),
      element("span", { class: "error" }, plusMinus(pair[1])),
      ...more.map((text) => element("small", {}, text)),
      ahead === null ? null : element("small", { class: ahead[2] }, inWords(ahead)));
  }

  function inWords([amount, stderr, verdict]) {
    const by = `${asExact(Math.abs(amount), stderr)}${plusMinus(stderr)}`;
    if (verdict !== "noise") return `▸ ${by} ${verdict}`;
    const sign = amount < 0 ? "−" : "+";
    return `▸ ${sign}${by}, within noise`;
  }

  // With as many decimals as its standard error is known to.
  function asExact(amount, stderr) {
    if (!stderr) return number(amount);
    const decimals = -Math.floor(Math.log10(Number(stderr.toPrecision(1))));
    return decimals > 0 ? amount.toFixed(Math.min(decimals, 20)) : number(Math.round(amount));
  }

  function known(point, t) {
    for (const kind of ["measured", "predicted"]) {
      if (point[kind][t]) return { kind, pair: point[kind][t] };
    }
    return { kind: "predicted", pair: [null, null] };
  }

  // The standard error of the difference of two points: item by item where it is known.
  function apart(content, t, one, other, ...errors) {
    if (one === other) return 0;
    const found = content.apart[t];
    const places = [one, other].map((i) => (found ? found.points.indexOf(i) : -1));
    const [low, high] = [Math.min(...places), Math.max(...places)];
    if (low >= 0) return found.stderr[high - 1][low];
    return errors.some((error) => error === null) ? null : Math.hypot(...errors);
  }

  return { show, apart };
})();
