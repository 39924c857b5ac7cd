"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const font = getComputedStyle(document.body).fontFamily;

  // Charts. Their colours are names of style.css, so they follow dark mode and print by themselves.
  function configuration(width) {
    const text = { labelColor: "var(--muted)", titleColor: "var(--muted)", labelFont: font, titleFont: font };
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: { ...text, gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)",
              labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" },
      axisY: { labelLimit: width < 480 ? 118 : 240 },
      legend: { ...text, labelFontSize: 12, symbolSize: 90 },
    };
  }

  async function draw(figure) {
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "1";
    const own = data.figures[figure.id];
    const plot = figure.querySelector(".plot");
    const rows = own.rows.map((values) => Object.fromEntries(
      own.columns.map((name, place) => [name, values[place]]).filter(([, value]) => value !== null)));
    const specification = structuredClone(data.charts[own.chart]);
    const width = plot.clientWidth;
    specification.description = own.title;
    specification.datasets = { rows };
    try {
      fit(specification, rows, width, own.chart === "counts");
      await vegaEmbed(plot, specification, {
        actions: false, renderer: "svg", config: configuration(width), tooltip: { theme: "custom" },
      });
    } catch (error) {
      plot.textContent = `This chart cannot be drawn: ${error.message}`;
    }
  }

  // Leave out what the rows do not have: layers without values, names in legends. Fewer columns of
  // a legend on a phone.
  function fit(specification, rows, width, exact) {
    const given = (field) => rows.some((row) => field in row);
    if (specification.layer) {
      specification.layer = specification.layer.filter(
        (layer) => ["x", "y"].every((axis) => {
          const field = layer.encoding[axis] && layer.encoding[axis].field;
          return !field || given(field);
        }));
    }
    // Whole numbers close together have ticks at whole numbers only.
    const counts = rows.map((row) => row.value).filter((value) => value !== undefined);
    const [low, high] = [Math.min(...counts), Math.max(...counts)];
    if (exact && counts.every(Number.isInteger) && high - low < 6) {
      const values = Array.from({ length: high - low + 1 }, (_, place) => low + place);
      for (const { encoding } of specification.layer) {
        if (encoding.y) Object.assign(encoding.y.axis, { values, format: "d" });
      }
    }
    if (width < 480) for (const row of rows) if (row.side) row.label = row.shown;
    const parts = [specification, ...(specification.layer || [])];
    // A height by step is one that Vega-Lite cannot fit, and says so in a warning.
    if (specification.height.step) {
      const y = parts.map((part) => part.encoding && part.encoding.y).find(Boolean).field;
      specification.height = specification.height.step * new Set(rows.map((row) => row[y])).size;
    }
    for (const part of parts) {
      const color = part.encoding && part.encoding.color;
      if (!color || !color.legend) continue;
      const names = new Set(rows.map((row) => row[color.field]));
      const kept = color.scale.domain.map((name, place) => [name, color.scale.range[place]])
        .filter(([name]) => names.has(name));
      color.scale.domain = kept.map(([name]) => name);
      color.scale.range = kept.map(([, range]) => range);
      color.legend.columns = width < 480 ? 2 : 6;
    }
  }

  // A closed section has no width to draw into, so its charts wait until it is opened.
  const queue = [];
  let drawing = false;
  async function drain() {
    if (drawing) return;
    drawing = true;
    while (queue.length) {
      await draw(queue.shift());
      await new Promise((go) => setTimeout(go));
    }
    drawing = false;
    document.body.dataset.ready = "1";
  }
  function draw_visible(root) {
    for (const figure of $("figure.chart", root)) {
      if (!figure.dataset.drawn && !figure.closest("details:not([open])")) queue.push(figure);
    }
    drain();
  }

  // Keys are written when they are asked for: a page may hold thousands.
  function write_keys(root) {
    for (const list of $("ol.keys", root)) {
      if (list.childElementCount || list.closest("details:not([open])")) continue;
      for (const key of data.lists[list.id]) {
        const item = document.createElement("li");
        item.textContent = data.keys[key].map((word) => data.words[word]).join("; ");
        list.append(item);
      }
    }
  }

  document.addEventListener("toggle", (event) => {
    if (!event.target.open) return;
    draw_visible(event.target);
    write_keys(event.target);
  }, true);

  function open_target() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
    target.scrollIntoView();
  }
  addEventListener("hashchange", open_target);

  // Tables: a click on a header sorts by it, a second click the other way round.
  function sort(header) {
    const table = header.closest("table");
    const column = Array.from(header.parentElement.children).indexOf(header);
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => {
      const text = row.cells[column].dataset.s ?? row.cells[column].textContent.toLowerCase();
      const number = Number(text);
      return text !== "" && !Number.isNaN(number) ? number : text;
    };
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x === typeof y) return x < y ? -1 : x > y ? 1 : 0;
      return typeof x === "number" ? -1 : 1;
    };
    const rows = Array.from(table.tBodies[0].rows).sort((a, b) => (down ? compare(b, a) : compare(a, b)));
    table.tBodies[0].append(...rows);
  }
  for (const button of $("thead button")) {
    button.addEventListener("click", () => sort(button.parentElement));
  }

  // Filter: all words have to be in the name of the scenario and case.
  const [words, bad, shown] = ["words", "bad", "shown"].map((id) => document.getElementById(id));
  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let [cases, all] = [0, 0];
    for (const part of $("[data-name]")) {
      const fits = wanted.every((word) => part.dataset.name.includes(word));
      part.hidden = !fits || (bad.checked && part.dataset.bad !== "1");
      if (part.tagName === "DETAILS") {
        all += 1;
        cases += !part.hidden;
      }
    }
    shown.textContent = wanted.length || bad.checked ? `${cases} of ${all} shown` : "";
  }
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  words.addEventListener("input", filter);
  bad.addEventListener("change", filter);

  const set_all = (open) => () => {
    for (const part of $("details.case")) if (!part.hidden) part.open = open;
  };
  document.getElementById("open-all")?.addEventListener("click", set_all(true));
  document.getElementById("close-all")?.addEventListener("click", set_all(false));

  open_target();
  draw_visible(document);
  write_keys(document);
})();
