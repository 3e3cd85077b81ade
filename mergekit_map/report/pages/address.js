// The points that are shown, kept in the address of the page: behind its #, so that
// nothing is asked for, and a link or a bookmark shows them again.
"use strict";

const address = (() => {
  // Read the `point` and the point `beside` it, each null where there is none.
  function read(count) {
    const found = new URLSearchParams(location.hash.slice(1));
    const number = (key) => {
      const text = found.get(key);
      return /^\d+$/.test(text ?? "") && Number(text) < count ? Number(text) : null;
    };
    return { point: number("point"), beside: number("beside") };
  }

  function write(point, beside) {
    const said = beside === null ? `#point=${point}` : `#point=${point}&beside=${beside}`;
    if (location.hash !== said) history.replaceState(null, "", said);
  }

  return { read, write };
})();
