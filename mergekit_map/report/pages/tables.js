// Tables that sort by a click on a column, show the rows that hold a word, are saved as
// CSV, and say that there is more of them than can be seen.
"use strict";

const tables = (() => {
  const { element } = drawing;

  // Let the columns of a table sort its rows; a cell may say its `data-value`.
  function sortable(table) {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = element("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("[aria-sort]").forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table, column, up);
      });
    });
  }

  // Numbers by size, words by the alphabet, what is missing last.
  function sort(table, column, up) {
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: keyOf(row, column) }));
    const compare = (a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
      const order = typeof a.key === "number" && typeof b.key === "number"
        ? a.key - b.key
        : String(a.key).localeCompare(String(b.key), "en", { numeric: true });
      return up ? order : -order;
    };
    table.tBodies[0].append(...rows.sort(compare).map(({ row }) => row));
  }

  function keyOf(row, column) {
    const cell = row.cells[column];
    const said = cell.dataset.value;
    if (said === undefined) return cell.textContent;
    return said === "" ? null : Number(said);
  }

  // Show the rows that hold all words; gives how many.
  function filter(table, text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const held = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => held.includes(word));
    }
    return rows.filter((row) => !row.hidden).length;
  }

  // Mark where a box hides a part of what it scrolls.
  function watchScroll(box) {
    const mark = () => {
      const right = box.scrollWidth - box.clientWidth - box.scrollLeft;
      const below = box.scrollHeight - box.clientHeight - box.scrollTop;
      box.classList.toggle("more-right", right > 1);
      box.classList.toggle("more-below", below > 1);
      box.classList.toggle("more-left", box.scrollLeft > 1);
    };
    box.addEventListener("scroll", mark, { passive: true });
    const observer = new ResizeObserver(mark);
    observer.observe(box);
    for (const child of box.children) observer.observe(child);
    mark();
  }

  // Rows of texts and numbers as CSV; no spreadsheet takes a text for a formula.
  function csv(rows) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      if (typeof value === "number") return String(value);
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  // Save a text as a file, which the page makes itself.
  function save(name, text) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = element("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  return { sortable, filter, watchScroll, csv, save };
})();
