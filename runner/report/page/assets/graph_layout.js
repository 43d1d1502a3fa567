// Where boxes and edges lie: each open block is laid out by itself, so that opening one costs little in any model.

const HEAD = 26;
const PORT = 10;

function boxSize(graph, item) {
  const [first, second] = boxText(graph, item);
  const width = Math.max(first.length * 8, second.length * 6.5) + 22;
  return { width: Math.min(230, Math.max(84, width)), height: 44 };
}

// The two lines of a box.
function boxText(graph, item) {
  if (item.node < 0) {
    const more = item.culprits ? `, ${counted(item.culprits, "culprit")}` : "";
    const mark = item.children.length ? "\u25b8 " : "";
    return [`${mark}${tail(plain(item.name), 26)}`, `${counted(item.nodes.length, "node")}${more}`];
  }
  const error = graph.errors.get(item.node)?.error ?? null;
  if (item.children.length) {
    const { length } = item.nodes;
    return [`${item.culprits ? "\u2605 " : ""}\u25b8 ${tail(plain(graph.typeOf(item.node)), 26)}`, `${tail(plain(item.name), 20)}, ${length - 1} inside`];
  }
  const name = tail(plain(ending(item.name, graph.typeOf(item.node))), error === null ? 34 : 24);
  const mark = item.culprits ? "\u2605 " : "";
  return [`${mark}${tail(plain(graph.typeOf(item.node)), 26)}`, error === null ? name : `${name}  ${figure(error)}`];
}

// The head of an open block or owner.
function openText(graph, item) {
  const type = item.node < 0 ? "" : `${tail(graph.typeOf(item.node), 26)} `;
  const only = item.node >= 0 && item.body !== graph.nodeBody[item.node] ? `, ${tail(graph.levels[item.body].name, 34)}` : "";
  return `\u25be ${plain(`${type}${tail(item.name, 40)}${only}`)}`;
}

function headWidth(graph, item) {
  return openText(graph, item).length * 7.5 + 24;
}

// Returns places of a block's children, ports where values come in and leave, and edges, from the block's corner.
function layoutOf(graph, block) {
  if (block.layout) return block.layout;
  const inner = new dagre.graphlib.Graph();
  inner.setGraph({ nodesep: 18, ranksep: 30, marginx: 14, marginy: 14, ranker: "tight-tree" });
  block.children.forEach((child, at) => {
    const within = child.open ? layoutOf(graph, child) : null;
    inner.setNode(String(at), within ? { width: Math.max(within.width, headWidth(graph, child)), height: within.height + HEAD } : boxSize(graph, child));
  });
  const edges = graph.edgesIn(block);
  const place = (at, port) => {
    if (at >= 0) return String(at);
    if (!inner.hasNode(port)) inner.setNode(port, { width: block.parent ? PORT : 90, height: block.parent ? PORT : 24 });
    return port;
  };
  for (const [from, to] of edges) inner.setEdge(place(from, "in"), place(to, "out"), {});
  dagre.layout(inner);
  const corner = (name) => {
    const { x, y, width, height } = inner.node(name);
    return { x: x - width / 2, y: y - height / 2, width, height };
  };
  const { width = 0, height = 0 } = inner.graph();
  block.layout = {
    width: Number.isFinite(width) ? width : 0,
    height: Number.isFinite(height) ? height : 0,
    children: block.children.map((_, at) => corner(String(at))),
    ports: ["in", "out"].filter((port) => inner.hasNode(port)).map((port) => [port, corner(port)]),
    edges: edges.map(([from, to, tensors]) => ({
      from,
      to,
      tensors,
      points: inner.edge(place(from, "in"), place(to, "out")).points,
    })),
  };
  return block.layout;
}

// Returns a line through points without corners.
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middle = (one, other) => ({ x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
  const parts = [`M${at(points[0])}`];
  for (let index = 1; index < points.length - 1; index++) {
    parts.push(`Q${at(points[index])} ${at(middle(points[index], points[index + 1]))}`);
  }
  return `${parts.join("")}L${at(points[points.length - 1])}`;
}
