// What is known of the chosen node: attributes, tensors with good and wrong values, errors, and the nodes around it.

const MOST_SHOWN = 12;

class NodeDetails {
  constructor(graph, tensors, where, onChoose) {
    Object.assign(this, { graph, where, onChoose });
    this.values = new Map();
    for (const tensor of tensors) {
      if (!this.values.has(tensor.name)) this.values.set(tensor.name, []);
      this.values.get(tensor.name).push(tensor);
    }
    this.element = html("div", { class: "details", role: "region", "aria-label": "Chosen node", tabindex: 0 });
    this.element.append(html("p", { class: "hint" }, "Choose a node to see its attributes, types and values."));
  }

  show(item, toggle) {
    const within = this.element.contains(document.activeElement) && document.activeElement !== this.element;
    this.element.replaceChildren(...(item.node < 0 ? this.block(item, toggle) : this.node(item, toggle)));
    this.element.scrollTop = 0;
    // what was pressed is gone
    if (within) goTo(this.element.querySelector("h3"));
  }

  block(item, toggle) {
    const operators = new Map();
    for (const node of item.nodes) {
      const type = this.graph.typeOf(node);
      operators.set(type, (operators.get(type) ?? 0) + 1);
    }
    const rows = [...operators].sort((one, other) => other[1] - one[1]).slice(0, MOST_SHOWN);
    const around = this.graph.places(item.body).slice(item.isGraph ? 1 : 0);
    return [
      html("p", { class: "kind" }, item.isGraph ? "Nested graph" : "Block"),
      html("h3", {}, html("bdi", {}, item.isGraph ? this.graph.places(item.body)[0] : this.graph.path(item))),
      html("p", { class: "where" }, this.within(around)),
      html("p", {}, item.nodes.length ? counted(item.nodes.length, "node") : "no nodes but constants"),
      ...this.opener(item, toggle, "block"),
      ...(rows.length ? [html("h4", {}, "Operators"), table(["operator", "nodes"], rows.map(([type, count]) => [type, count]))] : []),
    ];
  }

  // Says in which graphs something lies, from the inside out.
  within(places) {
    return `in ${[...places, this.where].join(", in ")}`;
  }

  // What opens a block or the graphs of a node, and the culprits in them.
  opener(item, toggle, what) {
    if (!item.children.length) return [];
    const guilty = item.nodes.filter((node) => node !== item.node && this.graph.guilty.has(node));
    return [
      html("button", { type: "button", onclick: toggle }, `${item.open ? "Close" : "Open"} ${what}`),
      ...(guilty.length ? [html("h4", {}, "Culprits in it"), this.links(guilty)] : []),
    ];
  }

  node(item, toggle) {
    const { graph } = this;
    const { node } = item;
    const layer = graph.errors.get(node);
    const attributes = graph.attributes[String(node)] ?? [];
    const level = graph.levels[graph.nodeBody[node]];
    const block = item.parent.node < 0 ? graph.path(item.parent) : "";
    return [
      html("p", { class: "kind" }, graph.typeOf(node), graph.guilty.has(node) ? html("span", { class: "mark" }, "\u2605 culprit") : ""),
      html("h3", {}, html("bdi", {}, graph.names[node])),
      html("p", { class: "where" }, `node ${node - level.node} of ${level.nodes} ${this.within(graph.places(graph.nodeBody[node]))}`, block ? `, ${block}` : ""),
      ...this.opener(item, toggle, item.body === graph.nodeBody[node] ? "its graphs" : `its ${graph.levels[item.body].name}`),
      ...(layer?.precision ? [html("h4", {}, "Precision"), this.precision(layer.precision)] : []),
      ...(layer ? [html("h4", {}, "Error in the whole model"), this.errors(layer, node)] : []),
      ...(attributes.length ? [html("h4", {}, "Attributes"), table([], attributes)] : []),
      html("h4", {}, "Outputs"),
      ...this.outputs(node),
      html("h4", {}, "Inputs"),
      ...this.inputs(node),
    ].filter((child) => child !== "");
  }

  errors({ error, own, nan, inf, precision }, node) {
    const unknown = this.graph.nodeBody[node] ? "not measured: in a nested graph" : "not measured";
    const rows = [[precision ? "with everything low" : "inherited and own", error === null ? unknown : figure(error)]];
    if (precision && precision.error !== null) rows.push(["in the mixed model", figure(precision.error)]);
    if (own !== null || precision?.why) rows.push([precision ? "own, if it alone is low" : "own, on good inputs", own === null ? precision.why : figure(own)]);
    if (nan) rows.push(["NaN elements", nan]);
    if (inf) rows.push(["Inf elements", inf]);
    return table([], rows);
  }

  // The type in the mixed model, and how much of the low type's range the values take.
  precision({ held, most, limit }) {
    const rows = [["in the mixed model", held]];
    if (most !== null) rows.push(["largest magnitude", figure(most)]);
    if (limit !== null) rows.push(["limit of the low type", limit < 1e6 ? limit.toLocaleString("en") : figure(limit)]);
    if (most !== null && limit !== null) rows.push(["share of the limit", share(most / limit)]);
    return table([], rows);
  }

  inputs(node) {
    const tensors = this.graph.inputs[node];
    if (!tensors.length) return [html("p", { class: "hint" }, "none")];
    return tensors.slice(0, MOST_SHOWN * 2).map((tensor) => {
      if (tensor < 0) return html("p", { class: "tensor" }, "omitted");
      const producer = this.graph.producer[tensor];
      const kind = this.graph.weights.has(tensor) ? "weight" : producer < 0 ? `input of ${this.graphOf(this.graph.tensorBody[tensor])}` : "";
      return this.tensor(tensor, kind, producer < 0 ? [] : [producer], "from");
    });
  }

  outputs(node) {
    return this.graph.outputs[node].filter((tensor) => tensor >= 0).map((tensor) => {
      const body = this.graph.nodeBody[node];
      const kind = this.graph.given[body].has(tensor) ? `output of ${this.graphOf(body)}` : "";
      return this.tensor(tensor, kind, [...new Set(this.graph.consumers[tensor])], "to");
    });
  }

  graphOf(body) {
    return body ? this.graph.places(body)[0] : "the model";
  }

  tensor(tensor, kind, nodes, toward) {
    const name = this.graph.tensors[tensor];
    return html(
      "div",
      { class: "tensor" },
      html("p", {}, html("bdi", { class: "name" }, name)),
      html("p", { class: "type" }, [this.graph.types[tensor] || "type not known", kind].filter(Boolean).join(", ")),
      nodes.length ? this.links(nodes, toward) : null,
      (this.values.get(this.graph.tensorName(tensor)) ?? []).map((values) => tensorValues(values)),
    );
  }

  links(nodes, toward = "") {
    const shown = nodes.slice(0, MOST_SHOWN).map((node) => {
      const text = `${this.graph.typeOf(node)} ${tail(plain(ending(this.graph.names[node], this.graph.typeOf(node))), 40)}`;
      return html("li", {}, html("button", { type: "button", class: "link", onclick: () => this.onChoose(this.graph.items[node]) }, text));
    });
    const more = nodes.length - shown.length;
    const lead = toward ? html("span", { class: "toward" }, toward) : null;
    return html("div", { class: "links" }, lead, html("ul", {}, shown, more > 0 ? html("li", {}, `and ${more} more`) : null));
  }
}

// Returns how a value compares to a limit: in percent below it, as a multiple beyond it.
function share(part) {
  if (part > 1) return html("strong", { class: "beyond" }, `${figure(part)} times: beyond it`);
  return part < 0.001 ? "under 0.1 %" : `${Number((part * 100).toPrecision(2))} %`;
}

function table(head, rows) {
  const line = (cell, at) => (at ? html("td", {}, cell) : html("th", { scope: "row" }, cell));
  return html(
    "table",
    {},
    head.length ? html("thead", {}, html("tr", {}, head.map((cell) => (cell ? html("th", { scope: "col" }, cell) : html("td"))))) : null,
    html("tbody", {}, rows.map((row) => html("tr", {}, row.map((cell, at) => line(cell, at))))),
  );
}

function tensorValues(tensor) {
  const alike = tensor.good && tensor.wrong && tensor.differing === 0;
  const { good, wrong } = alike ? { good: tensor.good, wrong: null } : tensor;
  const known = [[alike ? "both" : "good", good], ["wrong", wrong]].filter(([, values]) => values);
  const finite = known.some(([, { low }]) => low !== null);
  const ofFinite = (name, key) => [name, (values) => (values[key] === null ? "nothing finite" : figure(values[key]))];
  const rows = [
    ...(finite ? [ofFinite("lowest", "low"), ofFinite("highest", "high"), ofFinite("mean", "mean")] : [ofFinite("range", "low")]),
    ["NaN elements", ({ nan }) => nan],
    ["Inf elements", ({ inf }) => inf],
    ["first", ({ first }) => first.slice(0, 4).map(figure).join(", ")],
  ].map(([name, value]) => [name, ...known.map(([, values]) => value(values))]);
  const differences = tensor.differences.slice(0, MOST_SHOWN).map((one) => [`[${one.index.join(", ")}]`, figure(one.good), figure(one.wrong)]);
  return html(
    "div",
    { class: "values" },
    html("p", { class: "hint" }, `values in ${tensor.where}`),
    alike ? html("p", { class: "alike" }, sameOnBoth(good)) : null,
    histogram(good, wrong),
    table(["", ...known.map(([name]) => name)], rows),
    differences.length
      ? [
          html("p", { class: "hint" }, tensor.differing === null ? "elements that differ" : `${counted(tensor.differing, "element")} differ; the worst:`),
          table(["at", "good", "wrong"], differences),
        ]
      : null,
  );
}

// Says that target and reference agree: where that is NaN or Inf, the values themselves are not what tells them apart.
function sameOnBoth({ nan, inf }) {
  const bad = [nan && `${nan.toLocaleString("en")} NaN`, inf && `${inf.toLocaleString("en")} Inf`].filter(Boolean).join(" and ");
  const more = bad ? `: the reference has ${bad} here as well, from the same inputs` : "";
  return `Target and reference give the same values${more}.`;
}

// Good values as a filled shape, wrong ones as a line over it, both as shares of their largest count.
function histogram(good, wrong) {
  const drawn = [good, wrong].filter((values) => values?.counts.length && values.edges.length > 1);
  if (!drawn.length) return null;
  const low = Math.min(...drawn.map(({ edges }) => edges[0]));
  const high = Math.max(...drawn.map(({ edges }) => edges[edges.length - 1]));
  const [width, height] = [280, 64];
  if (low === high) return null; // one bar says less than the numbers below it
  const across = (value) => ((value - low) / (high - low)) * (width - 2) + 1;
  const steps = ({ edges, counts }) => {
    const most = Math.max(...counts, 1);
    const parts = counts.map((count, at) => {
      const up = (height - (count / most) * (height - 4)).toFixed(1);
      return `L${across(edges[at]).toFixed(1)} ${up}L${across(edges[at + 1]).toFixed(1)} ${up}`;
    });
    return `M${across(edges[0]).toFixed(1)} ${height}${parts.join("")}L${across(edges[edges.length - 1]).toFixed(1)} ${height}`;
  };
  const range = ({ edges }) => `${figure(edges[0])} to ${figure(edges[edges.length - 1])}`;
  const told = [good && `good from ${good.edges.length ? range(good) : "nothing finite"}`, wrong && `wrong from ${wrong.edges.length ? range(wrong) : "nothing finite"}`];
  const shapes = [];
  if (good?.counts.length) shapes.push(svg("path", { class: "good", d: `${steps(good)}Z` }));
  if (wrong?.counts.length) shapes.push(svg("path", { class: "wrong", d: steps(wrong) }));
  return html(
    "figure",
    { class: "histogram" },
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Histogram: ${told.filter(Boolean).join("; ")}` }, shapes),
    html("figcaption", {}, html("span", {}, figure(low)), html("span", {}, [good && "filled: good", wrong && "line: wrong"].filter(Boolean).join(", ")), html("span", {}, figure(high))),
  );
}
