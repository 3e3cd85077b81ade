// Buttons that copy a text.
"use strict";

const copying = (() => {
  // Let a button copy a text, which `find` gives, and say so; `source` is selected where
  // a browser does not let a page copy by itself.
  function on(button, find, source) {
    const words = button.textContent;
    button.addEventListener("click", async () => {
      button.textContent = (await copied(find(), source)) ? "Copied" : "Press Ctrl-C";
      setTimeout(() => { button.textContent = words; }, 1500);
    });
  }

  async function copied(text, source) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Browsers that allow it on secure pages only: leave the text selected.
      source.hidden = false;
      getSelection().selectAllChildren(source);
      return document.execCommand("copy");
    }
  }

  return { on };
})();
