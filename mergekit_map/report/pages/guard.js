// Nothing leaves this page: no chart can be uploaded, no window opened, no address
// followed, by whatever is on it. What the policy of the page allows, downloads made
// here, goes on; and whoever reads it goes where they like.
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

  // A policy has no word for a page that is left by a script or a refresh.
  const isHere = (address) => {
    const { protocol, host, pathname } = new URL(address, location.href);
    const there = protocol + host + pathname;
    return protocol === "blob:" || there === location.protocol + location.host + location.pathname;
  };
  window.navigation?.addEventListener("navigate", (event) => {
    if (event.cancelable && !isHere(event.destination.url)) event.preventDefault();
  });
})();
