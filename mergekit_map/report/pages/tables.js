// Tables: of gains as the package words them, and such that sort by a click on a column.
"use strict";

const tables = (() => {
  const { element, number, plusMinus } = drawing;
  function head(...names) {
    const cells = names.map((name) => element("th", { scope: "col" }, name));
    return element("thead", {}, element("tr", {}, ...cells));
  }

  // Return a table of gains of a merge, by the `name` for it if not as it is, with its
  // documents. The task gets a row, so that the other columns have room on a telephone.
  function gains([, ...headings], rows, sample, name = null) {
    if (name) headings[headings.length - 1] = `${name} vs this model`;
    const body = rows.flatMap(([task, ...cells]) => {
      if (task && name) cells[0] = name;
      const row = element("tr", {}, ...cells.map((text, i) => element(i ? "td" : "th",
        /^merge (better|worse) [^,]+$/.test(text) ? { class: text.split(" ")[1] } : {},
        text.replace(" ± ", "\u00a0±\u00a0"))));
      const group = element("th", { scope: "rowgroup", colspan: cells.length }, task);
      return task ? [element("tr", { class: "group" }, group), row] : [row];
    });
    return [element("div", { class: "scroll" }, element("table", { class: "gains" },
      head(...headings), element("tbody", {}, ...body))),
    element("p", { class: "hint" }, ...prose(sample))];
  }

  // Return the answer of a search: its headline, table, sample line and findings, with
  // the details folded.
  function answer({ headline, headings, table, sample, findings, details }) {
    const list = (texts) => element("ul", {}, ...texts.map((t) => element("li", {}, ...prose(t))));
    return [
      element("p", { class: "headline" }, ...prose(headline)),
      ...gains(headings, table, sample),
      findings.length ? list(findings) : null,
      details.length ? element("details", {},
        element("summary", {}, "Details"), list(details)) : null,
    ].filter(Boolean);
  }

  // Set words between backticks as code.
  function prose(text) {
    return text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));
  }

  function readingCell(pair, note) {
    if (pair === null) return element("td", { class: "number soft" }, "–");
    return element("td", { class: "number" }, number(pair[0]),
      element("span", { class: "error" }, plusMinus(pair[1])),
      pair[2] ? element("small", {}, `${pair[2]} documents`) : null,
      note ? element("small", {}, note) : null);
  }

  // Let the columns of a table sort its rows by the `data-value` of their cells.
  function sortable(table) {
    table.querySelectorAll("thead th").forEach((th, column) => {
      const button = element("button", { type: "button", class: "sort" }, ...th.childNodes);
      th.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = th.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("[aria-sort]").forEach((h) => h.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.value;
        // What is missing comes last, whatever the direction.
        const rows = [...table.tBodies[0].rows].sort((a, b) =>
          (key(a) === "") - (key(b) === "") || (up ? 1 : -1) * (key(a) - key(b)));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // Mark where a box hides a part of what it scrolls.
  function watchScroll(box) {
    const mark = () => {
      box.classList.toggle("more-right",
        box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
      box.classList.toggle("more-left", box.scrollLeft > 1);
    };
    box.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(box);
    mark();
  }

  return { head, gains, answer, readingCell, sortable, watchScroll };
})();
