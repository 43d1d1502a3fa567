// All nodes of a graph beside the drawing: found by typing, ordered as the model does or by error.

class NodeList {
  constructor(graph, onChoose) {
    this.graph = graph;
    this.found = [];
    this.words = graph.names.map((_, node) => plain(`${graph.nodeName(node)} ${graph.typeOf(node)}`).toLowerCase());
    this.search = html("input", { type: "search", placeholder: "Find a node or operator", "aria-label": "Find a node" });
    this.order = html("select", { "aria-label": "Order of nodes" }, [
      html("option", { value: "model" }, "in the model's order"),
      graph.culprits.length ? html("option", { value: "culprits" }, "culprits first") : null,
      graph.errors.size ? html("option", { value: "error" }, "largest error first") : null,
    ].filter(Boolean));
    this.count = html("p", { class: "count" });
    this.list = new VirtualList("Nodes", 40, (at) => this.line(this.found[at]), (at) => onChoose(this.found[at]));
    this.search.addEventListener("input", () => this.find());
    this.order.addEventListener("change", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "Enter") {
        event.preventDefault();
        this.list.element.focus();
        if (this.found.length) onChoose(this.found[0]);
      }
    });
    const order = this.order.options.length > 1 ? this.order : null;
    this.element = html("div", { class: "nodes" }, html("div", { class: "finder" }, this.search, order), this.count, this.list.element);
    this.find();
  }

  find() {
    const typed = this.search.value.split(/\s+/).filter(Boolean);
    const words = typed.map((word) => [plain(word), respelled(word)].map((one) => one.toLowerCase()));
    this.found = [];
    for (const node of this.graph.order) {
      if (words.every((spelled) => spelled.some((word) => this.words[node].includes(word)))) this.found.push(node);
    }
    const rank = { culprits: (node) => (this.graph.guilty.has(node) ? 0 : 1), error: (node) => -this.error(node) }[this.order.value];
    if (rank) this.found.sort((one, other) => rank(one) - rank(other));
    const all = this.found.length === this.graph.size;
    this.count.textContent = all ? nodesOf(this.graph) : `${counted(this.found.length, "node")} of ${this.graph.size.toLocaleString("en")}`;
    this.places = new Map(this.found.map((node, at) => [node, at]));
    this.list.chosen = this.places.get(this.node) ?? -1;
    this.list.element.scrollTop = 0;
    this.list.fill(this.found.length);
  }

  error(node) {
    const error = this.graph.errors.get(node)?.error;
    return error === undefined || error === null ? -1 : typeof error === "number" ? error : Infinity;
  }

  line(node) {
    const error = this.graph.errors.get(node)?.error ?? null;
    const guilty = this.graph.guilty.has(node);
    return html(
      "div",
      { class: guilty ? "culprit" : "" },
      html("span", { class: "operator" }, `${guilty ? "\u2605 " : ""}${this.graph.typeOf(node)}`),
      error === null ? null : html("span", { class: `score error-${badness(error)}` }, figure(error)),
      html("span", { class: "name" }, html("bdi", {}, this.graph.nodeName(node))),
    );
  }

  choose(node) {
    this.node = node;
    this.list.choose(this.places.get(node) ?? -1);
  }
}
