// A graph as a drawing that can be moved, zoomed and walked through with arrow keys. Only open blocks are drawn.

const MOST_OPEN = 9;
// where the drawing is so narrow, its buttons are as wide as it is: nothing is fitted behind them
const NARROW = 500;
const TOOLS = 48;

class GraphView {
  constructor(graph, title, onChoose) {
    this.graph = graph;
    this.onChoose = onChoose;
    this.boxes = new Map();
    this.lines = new Map();
    this.opened = [];
    this.chosen = null;
    this.kept = null;
    this.scene = svg("g");
    this.arrow = `arrow-${(GraphView.made = (GraphView.made ?? 0) + 1)}`;
    this.element = svg("svg", { class: "graph", role: "group", "aria-label": title, tabindex: -1 }, arrowhead(this.arrow), this.scene);
    this.view = { x: 0, y: 0, scale: 1 };
    this.openCulprits();
    this.listen();
  }

  openCulprits() {
    for (const node of this.graph.culprits) {
      if (this.opened.length < MOST_OPEN / 2) this.openTo(this.graph.items[node]);
    }
  }

  openTo(item) {
    for (let block = item.parent; block?.parent; block = block.parent) this.setOpen(block, true, item);
  }

  // Opens or closes a block; with many open, that which was opened first closes unless `wanted` lies in it.
  setOpen(block, open, wanted = block) {
    if (block.open === open) return;
    block.open = open;
    for (let at = block; at; at = at.parent) if (at !== block || !open) at.layout = null;
    this.opened = this.opened.filter((one) => one !== block);
    if (!open) return;
    this.opened.push(block);
    const around = (one) => {
      for (let at = wanted; at; at = at.parent) if (at === one) return true;
      return false;
    };
    const oldest = this.opened.find((one) => !around(one));
    if (this.opened.length > MOST_OPEN && oldest) this.setOpen(oldest, false);
  }

  draw() {
    const within = this.scene.contains(document.activeElement);
    this.boxes.clear();
    this.lines.clear();
    this.scene.replaceChildren();
    this.drawBlock(this.graph.root, this.scene, 0, 0);
    this.choose(this.chosen);
    if (within) this.boxes.get(this.chosen)?.element.focus({ preventScroll: true });
    this.mark(this.kept);
  }

  drawBlock(block, host, x, y) {
    const layout = layoutOf(this.graph, block);
    const lines = svg("g");
    host.append(lines);
    for (const edge of layout.edges) {
      const names = edge.tensors.slice(0, 4).map((tensor) => `${this.graph.tensors[tensor]} ${this.graph.types[tensor]}`);
      const more = edge.tensors.length > 4 ? [`and ${edge.tensors.length - 4} more`] : [];
      const title = svg("title", {}, [...names, ...more].map((line) => plain(line)).join("; "));
      const line = svg("path", { class: "edge", d: curve(edge.points), "marker-end": `url(#${this.arrow})` }, title);
      lines.append(line);
      for (const at of [edge.from, edge.to]) {
        if (at < 0) continue;
        const item = block.children[at];
        if (!this.lines.has(item)) this.lines.set(item, []);
        this.lines.get(item).push(line);
      }
    }
    for (const [port, place] of layout.ports) host.append(this.port(block, port, place));
    block.children.forEach((item, at) => {
      const place = layout.children[at];
      const where = { x: x + place.x, y: y + place.y, width: place.width, height: place.height };
      const group = svg("g", { transform: `translate(${place.x} ${place.y})` });
      const box = this.box(item, place);
      group.append(box);
      host.append(group);
      this.boxes.set(item, { element: box, where });
      if (item.open) {
        // the head may be wider than what lies below it
        const left = (place.width - layoutOf(this.graph, item).width) / 2;
        const inside = svg("g", { transform: `translate(${left} ${HEAD})` });
        group.append(inside);
        this.drawBlock(item, inside, where.x + left, where.y + HEAD);
      }
    });
  }

  port(block, port, { x, y, width, height }) {
    const { tensors, types } = this.graph;
    const names = this.graph[port === "in" ? "feeds" : "results"].map((tensor) => plain(`${tensors[tensor]} ${types[tensor]}`));
    const texts = [svg("title", {}, block.parent ? `values that come ${port}` : names.slice(0, 20).join("; "))];
    if (!block.parent) texts.push(svg("text", { x: x + width / 2, y: y + 16 }, counted(names.length, `${port}put`)));
    const shape = svg("rect", { x, y, width, height, rx: height / 2 });
    return svg("g", { class: "port" }, shape, texts);
  }

  box(item, { width, height }) {
    const [first, second] = item.open ? [openText(this.graph, item), ""] : boxText(this.graph, item);
    const kinds = ["box", item.node < 0 ? "block" : "node", item.node >= 0 && item.children.length && "owner", item.open && "open", item.culprits && "culprit"];
    const shade = item.worst >= 0 && !item.open ? `error-${item.worst}` : "";
    const kind = item.node < 0 ? "block" : "nested graphs";
    const what = item.children.length ? `${kind}, ${item.open ? "open" : "closed"}, ${second}` : second;
    return svg(
      "g",
      {
        class: [...kinds, shade].filter(Boolean).join(" "),
        role: "button",
        tabindex: -1,
        "aria-label": `${plain(item.name)}, ${first}, ${what}${item.culprits ? ", culprit" : ""}`,
        onclick: () => this.clicked(item),
        ondblclick: () => item.children.length && this.toggle(item),
      },
      svg("title", {}, plain(item.name || "")),
      svg("rect", { width, height, rx: item.node < 0 ? 8 : 4 }),
      svg("text", { class: "first", x: item.open ? 12 : width / 2, y: item.open ? 18 : 19 }, first),
      second ? svg("text", { class: "second", x: width / 2, y: 35 }, second) : null,
    );
  }

  clicked(item) {
    if (!this.dragged) this.onChoose(item);
  }

  toggle(item) {
    this.setOpen(item, !item.open);
    // the graphs of a node open with it
    if (item.open && item.node >= 0) {
      for (const one of item.children) if (one.node < 0 && one.body !== item.body && one.children.length) this.setOpen(one, true);
    }
    this.draw();
    this.onChoose(item);
    this.bringIn(item);
  }

  // Lights a box and its edges; a hidden one is drawn first.
  show(item) {
    if (!this.boxes.has(item)) {
      this.openTo(item);
      this.chosen = item;
      this.draw();
    } else this.choose(item);
    this.bringIn(item);
  }

  choose(item) {
    const old = this.boxes.get(this.chosen)?.element;
    old?.classList.remove("chosen");
    old?.setAttribute("tabindex", "-1");
    for (const line of this.lines.get(this.chosen) ?? []) line.classList.remove("lit");
    this.chosen = item;
    const box = this.boxes.get(item) ?? this.boxes.values().next().value;
    box?.element.setAttribute("tabindex", "0");
    if (!this.boxes.has(item)) return;
    box.element.classList.add("chosen");
    for (const line of this.lines.get(item) ?? []) line.classList.add("lit");
  }

  // Dims what a trial left out: `kept` says of each node whether it was in, null: all.
  mark(kept) {
    this.kept = kept;
    for (const [item, { element }] of this.boxes) {
      const count = kept && !item.open ? item.nodes.reduce((sum, node) => sum + (kept[node] ? 1 : 0), 0) : null;
      element.classList.toggle("out", count === 0);
      element.classList.toggle("partly", count > 0 && count < item.nodes.length);
    }
  }

  place() {
    const { x, y, scale } = this.view;
    this.scene.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  size() {
    return { width: this.element.clientWidth || 600, height: this.element.clientHeight || 400 };
  }

  fit() {
    const { width, height } = layoutOf(this.graph, this.graph.root);
    const here = this.size();
    if (here.width < NARROW) here.height -= TOOLS;
    const scale = Math.min(1.2, here.width / (width || 1), here.height / (height || 1));
    this.view = { x: (here.width - width * scale) / 2, y: (here.height - height * scale) / 2, scale };
    this.place();
  }

  // The first view: all of a graph that can be read then, the start of a larger one.
  start() {
    this.fit();
    if (this.view.scale < 0.5 && this.boxes.size) this.bringIn(this.boxes.keys().next().value);
  }

  zoom(factor, x = this.size().width / 2, y = this.size().height / 2) {
    const scale = Math.min(3, Math.max(0.02, this.view.scale * factor));
    const ratio = scale / this.view.scale;
    this.view = { x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio, scale };
    this.place();
  }

  // Moves the drawing so that a box is seen, and large enough to be read.
  bringIn(item) {
    const where = this.boxes.get(item)?.where;
    if (!where) return;
    const here = this.size();
    const scale = item.open ? Math.min(1, here.width / where.width, here.height / where.height) : this.view.scale;
    if (scale !== this.view.scale && scale < this.view.scale) this.view.scale = Math.max(scale, 0.55);
    if (this.view.scale < 0.55) this.view.scale = 0.85;
    const { x, y, scale: now } = this.view;
    const [left, top] = [where.x * now + x, where.y * now + y];
    const seen = left >= 0 && top >= 0 && left + where.width * now <= here.width && top + where.height * now <= here.height;
    if (!seen) {
      this.view.x = here.width / 2 - (where.x + where.width / 2) * now;
      this.view.y = here.height / 2 - (where.y + Math.min(where.height, here.height / now) / 2) * now;
    }
    this.place();
  }

  listen() {
    followPointers(this);
    this.element.addEventListener(
      "wheel",
      (event) => {
        // a wheel alone scrolls the page, where there is more of it
        if (!event.ctrlKey && !event.metaKey && !document.fullscreenElement) return;
        event.preventDefault();
        const corner = this.element.getBoundingClientRect();
        this.zoom(Math.exp(-event.deltaY / 300), event.clientX - corner.left, event.clientY - corner.top);
      },
      { passive: false },
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const toward = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    const focused = [...this.boxes].find(([, { element }]) => element === document.activeElement)?.[0] ?? this.chosen;
    if (toward) this.step(focused, toward);
    else if ((event.key === "Enter" || event.key === " ") && focused) {
      if (focused.children.length) this.toggle(focused);
      else this.onChoose(focused);
      this.boxes.get(focused)?.element.focus({ preventScroll: true });
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  // Chooses the nearest box in a direction.
  step(item, [right, down]) {
    const middle = ({ x, y, width, height }) => [x + width / 2, y + Math.min(height, 44) / 2];
    const from = this.boxes.get(item) ?? this.boxes.values().next().value;
    if (!from) return;
    const [x, y] = middle(from.where);
    let best = null;
    let least = Infinity;
    for (const [other, { where }] of this.boxes) {
      const [there, below] = middle(where);
      const along = (there - x) * right + (below - y) * down;
      const aside = Math.abs((there - x) * down) + Math.abs((below - y) * right);
      if (along > 1 && along + 2 * aside < least) [best, least] = [other, along + 2 * aside];
    }
    if (!best) return;
    this.onChoose(best);
    this.boxes.get(best)?.element.focus({ preventScroll: true });
  }
}

function arrowhead(id) {
  const shape = svg("path", { d: "M0 0L8 4L0 8z", class: "arrow" });
  const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto", markerUnits: "userSpaceOnUse" };
  return svg("defs", {}, svg("marker", { id, ...size }, shape));
}
