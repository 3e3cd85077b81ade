// Nothing leaves this page: no chart can be uploaded, no window opened, no address
// followed. What the policy of the page allows, downloads made here, goes on.
"use strict";

(() => {
  const STAYS = /^(#|blob:)/;

  Plotly.setPlotConfig({ showSendToCloud: false, plotlyServerURL: "", showLink: false });
  window.open = () => null;
  const hold = (event) => {
    const link = event.target.closest?.("a");
    const to = link?.getAttribute("href") ?? link?.getAttribute("xlink:href") ?? "#";
    if (!STAYS.test(to)) event.preventDefault();
  };
  for (const kind of ["click", "auxclick"]) addEventListener(kind, hold, true);
})();
