// Puts the page together from its data.

async function unpacked() {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function section(name) {
  return document.getElementById(name);
}

function charted(name, chart) {
  const host = section(name);
  host.append(chart.element);
  host.hidden = false;
  chart.draw();
}

function drawLayers(page, graphs) {
  const guilty = new Set(["whole", "reduced"].flatMap((key) => (page[key] ? culpritNames(page[key]) : [])));
  const layers = page.layers.filter((layer) => layer.error !== null);
  const points = layers.map((layer, x) => ({
    x,
    y: layer.error,
    kind: guilty.has(layer.node) ? "culprit" : "",
    mark: guilty.has(layer.node) ? "chosen" : "dot",
    text: `${x}: ${layer.node}, error ${figure(layer.error)}${layer.own === null ? "" : `, own ${figure(layer.own)}`}`,
  }));
  const onChoose = (at) => graphs?.find(layers[at].tensor, layers[at].node);
  const title = "Error of each layer. Arrow keys move along, Enter shows the node in the graph.";
  const shape = { title, xLabel: "layer, in the model's order", yLabel: "error relative to the good values", log: true, line: true, onChoose };
  charted("layers", new Chart(points, shape));
}

function drawCurve(page) {
  const points = page.curve.map((point) => ({
    x: point.raised,
    y: point.error,
    mark: point.chosen ? "chosen" : point.outcome,
    kind: kind(point.outcome),
    text: `${counted(point.raised, "node")} raised: error ${figure(point.error)}, ${point.outcome}${point.chosen ? ", handed over" : ""}`,
  }));
  points.sort((one, other) => one.x - other.x);
  const title = "Error left, by nodes raised. Arrow keys move along.";
  charted("curve", new Chart(points, { title, xLabel: "nodes raised", yLabel: "error of the whole model; 1 is what is allowed", log: true, line: true, limit: 1 }));
}

function drawAlone(page) {
  const points = page.alone.map((layer, x) => ({
    x: x + 1,
    y: layer.error,
    mark: layer.raised ? "chosen" : layer.outcome,
    kind: kind(layer.outcome),
    text: `${x + 1}: ${layer.node} alone low: error ${figure(layer.error)}, ${layer.outcome}; ${layer.cost} bytes keep it high, ${figure((1024 * layer.error) / Math.max(layer.cost, 1))} a KB${layer.raised ? ", raised" : ""}`,
  }));
  const title = "Error of each layer when it alone is low, what buys most first. Arrow keys move along.";
  charted("alone", new Chart(points, { title, xLabel: "layers, what buys most first", yLabel: "error of the whole model; 1 is what is allowed", log: true, limit: 1 }));
}

function drawTrials(page, graphs) {
  const trials = new Trials(page, (trial) => {
    if (page.elements === "nodes") graphs?.mark(trial);
  });
  const host = section("trials");
  const asked = page.trials.map((trial, at) => ({ trial, at })).filter(({ trial }) => trial.number);
  const points = asked.map(({ trial }) => ({
    x: trial.number,
    y: trial.seconds,
    mark: trial.outcome,
    kind: kind(trial.outcome),
    text: `check ${trial.number}: ${trial.outcome}, ${trial.seconds.toFixed(2)} s${trial.reason ? `, ${trial.reason}` : ""}`,
  }));
  const title = "Outcome and time of each check. Arrow keys move along, Enter chooses.";
  const chart = new Chart(points, { title, xLabel: "check", yLabel: "seconds", onChoose: (at) => trials.choose(asked[at].at) });
  host.append(...(points.length > 1 ? [chart.element] : []), trials.element);
  host.hidden = false;
  chart.draw();
  trials.list.draw(true);
}

// Buttons in the heads of the table of jobs: each orders it by its column.
function orderJobs() {
  const body = document.querySelector(".jobs tbody");
  document.querySelectorAll(".jobs th").forEach((head, column) => {
    const button = html("button", { type: "button" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      document.querySelectorAll(".jobs th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent;
      const compare = (one, other) => text(one).localeCompare(text(other), "en", { numeric: true });
      body.append(...[...body.rows].sort((one, other) => (down ? compare(other, one) : compare(one, other))));
    });
  });
}

function addCopyButtons() {
  for (const { parentElement: block } of document.querySelectorAll("pre > code")) {
    const button = html("button", { type: "button", class: "copy", "aria-label": `Copy: ${block.getAttribute("aria-label")}` }, "Copy");
    button.addEventListener("click", () => copy(block.firstElementChild, button));
    block.parentElement.append(button);
  }
}

function addThemeButton() {
  const dark = () => getComputedStyle(document.documentElement).colorScheme === "dark" || (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  const button = html("button", { type: "button", class: "theme" }, "Dark or light");
  button.addEventListener("click", () => (document.documentElement.style.colorScheme = dark() ? "light" : "dark"));
  document.querySelector(".bar").append(button);
}

function addContents() {
  const sections = [...document.querySelectorAll("main > section[id]")].filter((one) => !one.hidden && one.querySelector("h2"));
  const links = sections.map((one) => html("a", { href: `#${one.id}` }, one.querySelector("h2").textContent));
  section("contents").append(...links);
}

async function start() {
  document.body.append(html("p", { id: "said", class: "unseen", role: "status" }));
  addThemeButton();
  addCopyButtons();
  orderJobs();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
  // what can be read is painted before anything is drawn
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const page = await unpacked();
  const graphs = section("graph") ? new GraphSection(section("graph"), page) : null;
  if (page.layers.some((layer) => layer.error !== null)) drawLayers(page, graphs);
  if (page.curve.length) drawCurve(page);
  if (page.alone.length) drawAlone(page);
  if (page.trials.length) drawTrials(page, graphs);
  addContents();
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  section("main").prepend(html("p", { class: "failed", role: "alert" }, `Nothing can be drawn in this browser: ${error.message}`));
});
