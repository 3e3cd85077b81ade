// What the point that is shown won and lost against each anchor, item by item.
"use strict";

const itemsPanel = (() => {
  const { element, fill, number } = drawing;

  function show(content, index) {
    document.getElementById("items-card").hidden = content.items.length === 0;
    const found = content.items.find(({ point }) => point === index);
    fill("items-hint", found ? FOUND : missing(content, index));
    fill("items", ...(found ? table(content, found) : []));
  }

  const FOUND =
    "Documents, blocks or questions on which the point is better, worse or equal, and " +
    "the numbers of those that differ most, as samples/ counts them. Their text is not " +
    "in this page.";

  function missing({ items }, index) {
    const points = items.map(({ point }) => point);
    const some = points.length > 12 ? [...points.slice(0, 12), "…"] : points;
    return `Point ${index} was not measured item by item. These were: ${some.join(", ")}.`;
  }

  function table(content, { against }) {
    const rows = content.anchors.flatMap((anchor, a) =>
      against[a].every((cell) => cell === null) ? [] : [element("tr", {},
        element("th", { scope: "row" }, anchor.label), ...against[a].map(cellOf))]);
    const names = ["against", ...content.tasks.map((task) => task.name)];
    return [
      element("thead", {}, element("tr", {},
        ...names.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows),
    ];
  }

  function cellOf(found) {
    if (found === null) return element("td", { class: "number soft" }, "–");
    const [won, lost, level, most] = found;
    const part = (sign) => most
      .filter(([, ahead]) => Math.sign(ahead) === sign)
      .map(([name, ahead]) => `#${name} ${sign > 0 ? "+" : "−"}${number(Math.abs(ahead))}`);
    const shares = [won, lost, level].map((n) => (100 * n) / (won + lost + level));
    const bar = element("span", { class: "won-bar", "aria-hidden": "true" });
    bar.style.setProperty("--won", `${shares[0]}%`);
    bar.style.setProperty("--lost", `${shares[1]}%`);
    return element("td", { class: "number" },
      element("span", {}, `${won} won, ${lost} lost${level ? `, ${level} equal` : ""}`),
      bar,
      ...[part(1), part(-1)].filter((names) => names.length)
        .map((names) => element("small", {}, names.join(", "))));
  }

  return { show };
})();
