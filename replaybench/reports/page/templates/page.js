"use strict";
// Chooses which panels, rows and traces are shown; what they show was drawn up in Python.
(() => {
  const root = document.documentElement;
  const places = [...document.querySelectorAll(".place")];
  const panels = [...document.querySelectorAll(".panel")];
  const dark = JSON.parse(document.getElementById("colors").textContent);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  // What is chosen: a set of places for each axis that has a filter with something left out.
  const chosen = new Map();
  const fits = (of) => [...chosen].every(([axis, set]) => of[axis] === undefined || set.has(String(of[axis])));

  const read = () => {
    const form = document.querySelector(".filters");
    chosen.clear();
    if (!form) return;
    for (const select of form.querySelectorAll("select")) {
      if (select.value !== "") chosen.set(select.name, new Set([select.value]));
    }
    for (const axis of new Set([...form.querySelectorAll("input")].map((input) => input.name))) {
      const inputs = [...form.querySelectorAll(`input[name=${axis}]`)];
      const on = inputs.filter((input) => input.checked);
      if (on.length < inputs.length) chosen.set(axis, new Set(on.map((input) => input.value)));
    }
  };

  const stepOf = (panel) => {
    const range = panel.closest("section").querySelector(".steps input");
    return range ? Number(range.value) : undefined;
  };

  const draw = (panel) => {
    const night = isDark();
    const step = stepOf(panel);
    const state = JSON.stringify([night, printing, step, [...chosen].map(([axis, set]) => [axis, ...set])]);
    if (panel.hidden || panel.drawn === state) return;
    const text = panel.querySelector("script").textContent;
    const recolored = (key, value) => (night && typeof value === "string" && dark[value]) || value;
    const figure = JSON.parse(text, recolored);
    const fitting = figure.data.filter((trace) => {
      const meta = trace.meta || {};
      return fits(meta) && (meta.step === undefined || step === undefined || meta.step === step);
    });
    // A band is two traces, and says beside how many others it can be seen.
    const bands = fitting.filter((trace) => trace.meta?.band).length / 2;
    const traces = fitting.filter((trace) => !(bands > trace.meta?.band));
    for (const trace of traces) if (trace.meta?.rows) trace.y = Array(trace.meta.rows).fill(trace.y[0]);
    const plot = panel.querySelector(".plot");
    Plotly.react(plot, traces, figure.layout, { displayModeBar: false, responsive: true });
    panel.drawn = state;
  };

  const near = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.add(entry.target);
        draw(entry.target);
      } else near.delete(entry.target);
    }
  }, { rootMargin: "400px" });

  const apply = () => {
    read();
    for (const element of places) element.hidden = !fits(element.dataset);
    for (const grid of document.querySelectorAll(".panels")) {
      grid.classList.toggle("square", [...grid.children].filter((panel) => !panel.hidden).length === 4);
    }
    for (const note of document.querySelectorAll(".empty")) {
      note.hidden = [...note.parentElement.querySelectorAll(".panel")].some((panel) => !panel.hidden);
    }
    for (const steps of document.querySelectorAll(".steps")) {
      steps.hidden = ![...steps.parentElement.querySelectorAll("[data-moves]")].some((panel) => !panel.hidden);
    }
    const status = document.getElementById("chosen");
    if (status) status.textContent = `${panels.filter((panel) => !panel.hidden).length} of ${panels.length} figures`;
    near.forEach(draw);
  };

  const paint = () => {
    const night = isDark();
    for (const swatch of document.querySelectorAll(".swatch[data-color]")) {
      swatch.style.color = (night && dark[swatch.dataset.color]) || swatch.dataset.color;
    }
    themeButton.textContent = night ? "Light page" : "Dark page";
    near.forEach(draw);
  };

  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    paint();
  });
  system.addEventListener("change", paint);
  document.querySelector(".filters")?.addEventListener("change", apply);
  document.querySelector(".filters")?.addEventListener("submit", (event) => event.preventDefault());

  for (const steps of document.querySelectorAll(".steps")) {
    const labels = JSON.parse(steps.dataset.steps);
    const range = steps.querySelector("input");
    const play = steps.querySelector(".play");
    let timer = 0;
    const show = () => {
      steps.querySelector("output").textContent = labels[range.value];
      range.setAttribute("aria-valuetext", labels[range.value]);
      near.forEach(draw);
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    range.addEventListener("input", () => { stop(); show(); });
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(range.value) === labels.length - 1) range.value = 0;
      play.textContent = "Stop";
      show();
      timer = setInterval(() => {
        range.value = Number(range.value) + 1;
        show();
        if (Number(range.value) === labels.length - 1) stop();
      }, 450);
    });
    show();
  }

  // Paper is white and narrow: all that is chosen is drawn anew for it, and again for the screen afterwards. What the
  // choice names is the legend of the figures.
  // Nobody can unfold what is folded on paper.
  const folds = [...document.querySelectorAll("details")];
  let folded = [];
  const print = (on) => {
    printing = on;
    if (on) folded = folds.filter((fold) => !fold.open);
    for (const fold of folded) fold.open = on;
    root.classList.toggle("printing", on);
    paint();
    panels.forEach(draw);
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));

  if (matchMedia("(max-width: 700px)").matches) document.getElementById("filters")?.removeAttribute("open");
  apply();
  paint();
  panels.forEach((panel) => watcher.observe(panel));
})();
