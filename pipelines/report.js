"use strict";
// Filters of the samples by what is shown of them, and heat maps of attention. Text reaches the page as text, never as HTML.

const samples = [...document.querySelectorAll(".sample")].map((element) => ({
  element,
  has: element.dataset.has.split(" "),
  lines: [...element.querySelectorAll(".line")].map((line) => ({
    system: line.dataset.system, // none: source and reference
    text: line.dataset.text, // equal for outputs that are equal
    right: line.querySelector(".right") !== null,
    words: folded(line.querySelector("dd").textContent),
  })),
}));

function folded(text) {
  return text.normalize("NFC").toLowerCase();
}

// ---- filters ----

const form = document.getElementById("filters");
const count = document.getElementById("count");

// The style sheet hides the systems that are not chosen, in browsers that can.
const boxes = CSS.supports("selector(:has(a))") ? [...document.querySelectorAll("#choice input")] : [];

function filter() {
  const hidden = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
  for (const option of form.elements.wrong.options) option.disabled = hidden.has(option.value);
  if (form.elements.wrong.selectedOptions[0].disabled) form.elements.wrong.value = "";
  const wanted = new FormData(form);
  const text = folded(wanted.get("text").trim());
  const wantsAll = wanted.getAll("has");
  const wrong = wanted.get("wrong");
  const counts = { rare: 0, unseen: 0, differ: 0 };
  let shown = 0;
  for (const sample of samples) {
    const lines = sample.lines.filter((line) => !hidden.has(line.system));
    const outputs = lines.filter((line) => line.system);
    const has = new Set(sample.has);
    if (new Set(outputs.map((output) => output.text)).size > 1) has.add("differ");
    for (const name of Object.keys(counts)) counts[name] += has.has(name);
    const passes =
      wantsAll.every((name) => has.has(name)) &&
      (!wrong ||
        outputs.some((line) => !line.right && (wrong === "any" || wrong === line.system))) &&
      lines.some((line) => line.words.includes(text));
    sample.element.hidden = !passes;
    shown += passes;
  }
  for (const box of form.elements.has) {
    box.parentElement.querySelector("small").textContent = counts[box.value];
  }
  count.textContent = `${shown} of ${samples.length} shown`;
  if (boxes.length) {
    const chosen = boxes.length - hidden.size;
    document.getElementById("chosen").textContent = `: ${chosen} of ${boxes.length}`;
  }
}

for (const element of [form, document.getElementById("choice")].filter(Boolean)) {
  element.addEventListener("input", filter);
  element.addEventListener("submit", (event) => event.preventDefault());
  element.addEventListener("reset", () => setTimeout(filter)); // after the fields are as at first
}
for (const [id, checked] of Object.entries({ all: true, none: false })) {
  document.getElementById(id)?.addEventListener("click", () => {
    for (const box of boxes) box.checked = checked;
    filter();
  });
}
window.addEventListener("pageshow", filter); // a browser that goes back keeps what was in the fields

// ---- heat maps ----

const maps = JSON.parse(document.getElementById("maps").textContent);

function create(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function heatMap(map) {
  const head = create("tr", {}, create("td", {}));
  for (const piece of map.columns) {
    head.append(create("th", { scope: "col", dir: "auto" }, piece));
  }
  const body = create("tbody", {});
  map.rows.forEach((output, row) => {
    const line = create("tr", {}, create("th", { scope: "row", dir: "auto" }, output));
    map.columns.forEach((source, column) => {
      const weight = map.weights[row * map.columns.length + column] / 1000;
      const text = `${output} ← ${source}: ${weight.toFixed(3)}`;
      const cell = create("td", { title: text }, create("span", {}, weight.toFixed(3)));
      cell.style.setProperty("--weight", weight);
      line.append(cell);
    });
    body.append(line);
  });
  const reading = create("p", {}, "Rows: output pieces. Columns: source pieces.");
  body.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("td");
    if (cell) reading.textContent = cell.title;
  });
  const table = create("table", {}, create("thead", {}, head), body);
  return create("div", { className: "attention", dir: "ltr" }, table, reading);
}

for (const line of document.querySelectorAll("[data-map]")) {
  const button = create("button", { type: "button", className: "open" }, "attention");
  let drawn = null;
  button.setAttribute("aria-label", `attention of ${line.querySelector("bdi").textContent}`);
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    const opens = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(opens));
    if (opens) {
      drawn = heatMap(maps[Number(line.dataset.map)]);
      line.querySelector("dd").append(drawn);
    } else {
      drawn.remove();
    }
  });
  line.querySelector("dt").append(" ", button);
}

form.hidden = false;
for (const element of document.querySelectorAll("[data-scripted]")) element.hidden = false;
for (const element of document.querySelectorAll("[data-unscripted]")) element.hidden = true;
filter();
