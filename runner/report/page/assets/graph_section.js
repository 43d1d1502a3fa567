// The graphs: all nodes at one side, the drawing in the middle, the chosen node at the other side.

// One graph with its three panes.
class Workbench {
  constructor(graph, tensors, layers, title) {
    this.graph = new ModelGraph(graph, layers);
    this.item = null;
    const choose = (item) => this.choose(item);
    this.list = new NodeList(this.graph, (node) => choose(this.graph.items[node]));
    this.view = new GraphView(this.graph, `${title}, drawn. Arrow keys move, Enter opens a block, plus and minus zoom.`, choose);
    this.details = new NodeDetails(this.graph, tensors, title, choose);
    const tool = (text, name, onclick) => html("button", { type: "button", "aria-label": name, title: name, onclick }, text);
    const tools = html(
      "div",
      { class: "tools" },
      tool("+", "Zoom in", () => this.view.zoom(1.3)),
      tool("\u2212", "Zoom out", () => this.view.zoom(1 / 1.3)),
      tool("Fit", "Show all of the graph", () => this.view.fit()),
      document.fullscreenEnabled ? tool("\u2922", "Full screen, and back", () => this.fullScreen()) : null,
      this.graph.culprits.length ? tool("\u2605", "Go to the next culprit", () => this.nextCulprit()) : null,
    );
    const drawing = html("div", { class: "drawing" }, this.view.element, tools);
    this.element = html("div", { class: "workbench" }, this.list.element, drawing, this.details.element);
    this.drawn = false;
  }

  // Draws, once it is on the page and has a size.
  draw() {
    if (this.drawn) return;
    this.drawn = true;
    this.view.draw();
    this.view.start();
    this.list.list.draw(true);
    if (this.graph.culprits.length) this.nextCulprit();
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.element.requestFullscreen();
  }

  nextCulprit() {
    const { culprits, items } = this.graph;
    const at = culprits.indexOf(this.item?.node ?? -1);
    this.choose(items[culprits[(at + 1) % culprits.length]]);
  }

  // What has to be laid out first is drawn after the details are painted, and not at all if more is chosen by then.
  later(draw, wait) {
    const { element } = this.view;
    this.drawing = wait ? draw : null;
    element.setAttribute("aria-busy", String(wait));
    if (!wait) return draw();
    requestAnimationFrame(() =>
      setTimeout(() => {
        if (this.drawing !== draw) return;
        draw();
        element.setAttribute("aria-busy", "false");
      }),
    );
  }

  choose(item) {
    this.item = item;
    this.list.choose(item.node);
    this.details.show(item, () => this.view.toggle(item));
    this.later(() => this.view.show(item), !this.view.boxes.has(item));
    said(`Chosen: ${item.node < 0 ? "block" : this.graph.typeOf(item.node)} ${item.name}`);
  }
}

class GraphSection {
  constructor(section, page) {
    this.section = section;
    this.benches = new Map();
    const graphs = [["reduced", "the reduced model"], ["whole", "the whole model"]].filter(([key]) => page[key]?.names.length);
    this.tabs = html("div", { class: "tabs", role: "tablist", "aria-label": "Which graph" });
    for (const [key, title] of graphs) this.add(key, title, page);
    const first = this.benches.values().next().value;
    if (!first) return;
    section.append(...(graphs.length > 1 ? [this.tabs] : []), ...[...this.benches.values()].map(({ panel }) => panel), this.legend(page));
    this.tabs.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
      const keys = [...this.benches.keys()];
      this.show(keys[(keys.indexOf(this.shown) + 1) % keys.length]);
      this.benches.get(this.shown).tab.focus();
    });
    section.hidden = false;
    this.show(graphs[0][0]);
  }

  add(key, title, page) {
    const count = nodesOf(page[key]);
    const name = { reduced: "Reduced", whole: "Where it sits" }[key];
    const tab = html("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, onclick: () => this.show(key) }, `${name} `, html("span", {}, count));
    const panel = html("div", { id: `panel-${key}`, role: "tabpanel", "aria-labelledby": `tab-${key}` });
    this.tabs.append(tab);
    if (this.tabs.childElementCount === 1 && !page.whole?.names.length) panel.removeAttribute("role");
    this.benches.set(key, { tab, panel, title, make: () => new Workbench(page[key], page.tensors, page.layers, title) });
  }

  show(key) {
    this.shown = key;
    for (const [other, one] of this.benches) {
      fill(one.tab, { "aria-selected": String(other === key), tabindex: other === key ? 0 : -1 }, []);
      one.panel.hidden = other !== key;
    }
    const one = this.benches.get(key);
    if (!one.bench) {
      one.bench = one.make();
      one.panel.append(one.bench.element);
    }
    one.bench.draw();
    return one.bench;
  }

  // Shows a node by its tensor or name, in the graph that is in sight if it has it.
  find(tensor, name) {
    const keys = [this.shown, ...this.benches.keys()];
    for (const key of keys) {
      const bench = this.benches.get(key)?.bench ?? (this.benches.has(key) ? this.show(key) : null);
      if (!bench) continue;
      const node = bench.graph.nodeOf(tensor, name);
      if (node === undefined) continue;
      this.show(key).choose(bench.graph.items[node]);
      return;
    }
  }

  // Shows in the whole graph what a trial kept.
  mark({ kept, number }) {
    if (!this.benches.has("whole")) return;
    const { graph, view } = this.show("whole");
    // what is not known to be left out is not dimmed
    if (!kept.length) return this.clear();
    const nodes = new Uint8Array(graph.size);
    for (const [first, last] of kept) nodes.fill(1, first, last + 1);
    // trials are sets of nodes of the top level; what lies in one goes with it
    for (const { owner, node, nodes: count } of graph.bodies) nodes.fill(nodes[owner], node, node + count);
    view.mark(nodes);
    this.unmark.textContent = `Dimmed: what check ${number || "known before"} left out. Show all nodes`;
    this.unmark.hidden = false;
  }

  legend(page) {
    const items = [];
    const culprits = ["reduced", "whole"].some((key) => page[key]?.culprits.length);
    if (culprits) items.push(html("li", {}, html("span", { class: "swatch culprit" }, "\u2605"), " culprit"));
    if (page.layers.some((layer) => layer.error !== null)) {
      items.push(html("li", {}, "error:"));
      ERRORS.forEach((text, at) => items.push(html("li", {}, html("span", { class: `swatch error-${at}` }), ` ${text}`)));
    }
    this.unmark = html("button", { type: "button", hidden: true, onclick: () => this.clear() });
    const hint = matchMedia("(pointer: coarse)").matches
      ? "Two fingers zoom and move; one finger moves the drawing once it is tapped. Tap a block, then Open block."
      : "Drag to move, Ctrl and wheel to zoom, double click or Enter to open a block.";
    return html("div", { class: "below" }, html("ul", { class: "legend" }, items), this.unmark, html("p", { class: "hint" }, hint));
  }

  clear() {
    const { view } = this.benches.get("whole").bench;
    view.mark(null);
    if (this.unmark === document.activeElement) view.element.focus({ preventScroll: true });
    this.unmark.hidden = true;
  }
}

// Says how many nodes a graph has, those of nested graphs apart.
function nodesOf(graph) {
  const top = topNodes(graph);
  const nested = graph.names.length - top;
  return `${counted(top, "node")}${nested ? `, ${nested.toLocaleString("en")} nested` : ""}`;
}
