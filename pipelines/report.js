"use strict";
// Filters of the samples, and heat maps of attention. Text reaches the page as text, never as HTML.

const samples = [...document.querySelectorAll(".sample")].map((element) => ({
  element,
  has: element.dataset.has.split(" "),
  wrong: element.dataset.wrong.split(" ").filter(Boolean),
  texts: [...element.querySelectorAll("dd")].map((dd) => folded(dd.textContent)),
}));

function folded(text) {
  return text.normalize("NFC").toLowerCase();
}

// ---- filters ----

const form = document.getElementById("filters");
const count = document.getElementById("count");

function filter() {
  const wanted = new FormData(form);
  const text = folded(wanted.get("text").trim());
  const has = wanted.getAll("has");
  const wrong = wanted.get("wrong");
  let shown = 0;
  for (const sample of samples) {
    const passes =
      has.every((name) => sample.has.includes(name)) &&
      (!wrong || (wrong === "any" ? sample.wrong.length > 0 : sample.wrong.includes(wrong))) &&
      sample.texts.some((line) => line.includes(text));
    sample.element.hidden = !passes;
    shown += passes;
  }
  count.textContent = `${shown} of ${samples.length} shown`;
}

form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter)); // after the fields are empty
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
