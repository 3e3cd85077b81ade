// On paper nothing scrolls: charts and tables are made as wide as the sheet.
"use strict";

const printing = (() => {
  const SHEET = 680; // pixels across A4 within its margins
  let before = null; // sizes as they were on the screen

  // Draw what is behind, and fit all to a sheet. `draw` draws every chart anew.
  function prepare(draw) {
    addEventListener("beforeprint", () => {
      if (before !== null) return;
      before = document.body.style.width;
      document.documentElement.classList.add("printed");
      document.body.style.width = `${SHEET}px`;
      draw();
      inView.drawAll();
      for (const chart of document.querySelectorAll(".chart")) fit(chart);
      for (const table of document.querySelectorAll(".scroll > table")) shrink(table);
    });
    addEventListener("afterprint", () => {
      document.documentElement.classList.remove("printed");
      document.body.style.width = before ?? "";
      before = null;
      for (const table of document.querySelectorAll(".scroll > table")) table.style.zoom = "";
      for (const chart of document.querySelectorAll(".chart")) {
        if (chart.data) Plotly.relayout(chart, { autosize: true });
      }
      draw();
    });
  }

  function fit(chart) {
    if (!chart.data || chart.clientWidth === 0) return;
    const { clientWidth: width, clientHeight: height } = chart;
    Plotly.relayout(chart, { width, height });
  }

  function shrink(table) {
    const room = table.parentElement.clientWidth;
    if (table.scrollWidth > room) table.style.zoom = room / table.scrollWidth;
  }

  return { prepare };
})();
