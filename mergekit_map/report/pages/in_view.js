// Charts that are drawn again only where they can be seen: a slider moves many.
"use strict";

const inView = (() => {
  const MARGIN = "300px"; // how near to the window is in view
  const known = new Set();
  const seen = new Set();
  const waiting = new Map(); // chart out of view, to what draws it

  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target);
      else seen.delete(target);
      if (isIntersecting) catchUp(target);
    }
  }, { rootMargin: MARGIN });

  // Draw a chart: the first time at once, later when it is in view.
  function draw(chart, drawn) {
    waiting.set(chart, drawn);
    if (!known.has(chart) || seen.has(chart)) catchUp(chart);
    if (!known.has(chart)) observer.observe(chart);
    known.add(chart);
  }

  function catchUp(chart) {
    const drawn = waiting.get(chart);
    waiting.delete(chart);
    drawn?.();
  }

  // Draw all that waits, as for paper, where nothing is out of view.
  function drawAll() {
    [...waiting.keys()].forEach(catchUp);
  }

  return { draw, drawAll };
})();
