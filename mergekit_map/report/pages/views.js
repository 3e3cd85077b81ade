// In which view the front is shown: which tasks across and up, or three in space.
"use strict";

const views = (() => {
  const { element } = drawing;

  function of(content) {
    if (content.tasks.length === 1) return ["rows"];
    if (content.tasks.length === 3 && hasWebGl()) return ["scatter", "space"];
    return ["scatter"];
  }

  function hasWebGl() {
    return Boolean(document.createElement("canvas").getContext("webgl"));
  }

  // Make what picks the `view` of a state and its tasks `x` and `y`, and draws anew.
  function choosers(content, state, draw) {
    const pick = (key, words) => {
      const select = element("select", { "aria-label": words, id: `axis-${key}` });
      content.tasks.forEach((task, t) => {
        select.append(element("option", { value: t }, task.name));
      });
      select.value = state[key];
      select.addEventListener("change", () => {
        state[key] = Number(select.value);
        draw();
      });
      return select;
    };
    const made = [];
    const axes = element("span", { id: "axes" });
    if (content.tasks.length > 2) {
      axes.append(pick("x", "task across"), " × ", pick("y", "task up"));
      made.push(axes);
    }
    if (of(content).length > 1) {
      const button = element("button", { type: "button", id: "space" }, "In space");
      button.addEventListener("click", () => {
        state.view = state.view === "space" ? "scatter" : "space";
        button.textContent = state.view === "space" ? "In the plane" : "In space";
        axes.hidden = state.view === "space";
        draw();
      });
      made.push(button);
    }
    return made;
  }

  function hint(content) {
    return "Open circles are predicted, filled marks are measured, bars are one standard " +
      "error. " +
      "Click a point to choose it.";
  }

  return { of, choosers, hint };
})();
