// A model's graph as its blocks: nodes lie in blocks, blocks in blocks, and no block has more than a drawing can show.
// A node that owns graphs (an If, a Loop, a call of a function) is a block as well, with these graphs in it.

const MOST_CHILDREN = 20;
const FEW_NODES = 60;
const DEEPEST = 32;

// A block, or a node (`node` is its number, -1 for a block; one that owns graphs has children, too).
// `body`: the number of the graph that its children lie in, 0: the model's top level.
class Item {
  constructor(name, parent, node = -1) {
    this.name = name;
    this.parent = parent;
    this.node = node;
    this.children = [];
    this.nodes = node < 0 ? [] : [node];
    this.body = parent ? parent.body : 0;
    this.isGraph = false;
    this.open = false;
    this.layout = null;
    this.culprits = 0;
    this.worst = -1;
  }
}

class ModelGraph {
  constructor(graph, layers) {
    Object.assign(this, graph);
    this.size = this.names.length;
    this.producer = new Int32Array(this.tensors.length).fill(-1);
    this.consumers = this.tensors.map(() => []);
    this.outputs.forEach((tensors, node) => tensors.forEach((tensor) => tensor < 0 || (this.producer[tensor] = node)));
    this.inputs.forEach((tensors, node) => tensors.forEach((tensor) => tensor < 0 || this.consumers[tensor].push(node)));
    this.weights = new Set(this.constants);
    this.guilty = new Set(this.culprits);
    // number 0 is the top level, which has what lies before the first nested graph
    const top = { node: 0, nodes: topNodes(this), tensor: 0, path: "", results: this.results };
    this.levels = [top, ...this.bodies];
    this.given = this.levels.map(({ results }) => new Set(results));
    this.nodeBody = spread(this.levels.map(({ node }) => node), this.size);
    this.tensorBody = spread(this.levels.map(({ tensor }) => tensor), this.tensors.length);
    this.depths = [0];
    for (const { owner } of this.bodies) this.depths.push(this.depths[this.nodeBody[owner]] + 1);
    this.nodeNames = new Map(this.names.map((_, node) => [this.nodeName(node), node]));
    this.tensorNames = new Map(this.tensors.map((_, tensor) => [this.tensorName(tensor), tensor]));
    this.errors = this.errorsOf(layers);
    this.items = new Array(this.size);
    this.root = this.tree();
    this.order = this.inOrder();
  }

  // Names with the path of the nested graph that they lie in, as the rest of a run writes them.
  nodeName(node) {
    return inPath(this.levels[this.nodeBody[node]].path, this.names[node]);
  }

  tensorName(tensor) {
    return inPath(this.levels[this.tensorBody[tensor]].path, this.tensors[tensor]);
  }

  // The node of a tensor's name, else the one of that name; undefined where there is none.
  nodeOf(tensor, name) {
    const made = this.producer[this.tensorNames.get(tensor)];
    return made >= 0 ? made : this.nodeNames.get(name);
  }

  // The error of each node that was measured: by its tensor, else by its name.
  errorsOf(layers) {
    const errors = new Map();
    for (const layer of layers) {
      const node = this.nodeOf(layer.tensor, layer.node);
      const known = errors.get(node);
      if (node !== undefined && (!known || badness(layer.error) > badness(known.error))) errors.set(node, layer);
    }
    return errors;
  }

  tree() {
    this.names.forEach((name, node) => (this.items[node] = new Item(name, null, node)));
    const root = new Item("", null);
    // a nested graph comes after the node that owns it, so the inner ones are done first
    for (let body = this.bodies.length; body > 0; body--) this.nest(body);
    this.fillIn(root, this.levels[0], 0);
    return root;
  }

  // Puts a nested graph into its owner; an owner of a single graph is that graph's block itself.
  nest(body) {
    const level = this.levels[body];
    const owner = this.items[level.owner];
    const block = new Item(level.name, owner);
    this.fillIn(block, level, body);
    block.isGraph = true;
    // the graphs of a node stand in a row
    if (this.levels[body - 1].owner !== level.owner && this.levels[body + 1]?.owner !== level.owner) {
      owner.body = body;
      owner.children = block.children;
      for (const one of block.children) one.parent = owner;
    } else {
      owner.body = this.nodeBody[level.owner];
      owner.children.unshift(block);
    }
    for (const node of block.nodes) owner.nodes.push(node);
    owner.culprits += block.culprits;
    owner.worst = Math.max(owner.worst, block.worst);
  }

  // Puts the nodes of a graph into their blocks.
  fillIn(root, { node: first, nodes: count }, body) {
    root.body = body;
    const large = count > FEW_NODES;
    for (let node = first; node < first + count; node++) {
      const item = this.items[node];
      item.parent = large ? this.blockAt(root, this.blocks[this.block[node]]) : root;
      item.parent.children.push(item);
      if (!item.children.length) item.body = body;
    }
    this.settle(root, large ? MOST_CHILDREN : FEW_NODES);
  }

  blockAt(root, path) {
    let at = root;
    for (const part of path.split("/").filter(Boolean).slice(0, DEEPEST)) {
      at.byName ??= new Map();
      if (!at.byName.has(part)) {
        const block = new Item(part, at);
        at.byName.set(part, block);
        at.children.push(block);
      }
      at = at.byName.get(part);
    }
    return at;
  }

  // Orders a block as the model does, joins blocks that have one block only, and divides the wide ones.
  settle(block, most) {
    const only = () => block.children.length === 1 && block.children[0].node < 0;
    while (only()) {
      const child = block.children[0];
      block.name = [block.name, child.name].filter(Boolean).join("/");
      block.children = child.children;
      for (const one of block.children) one.parent = block;
    }
    for (const child of block.children) if (child.node < 0) this.settle(child, most);
    block.children = block.children.filter((child) => child.nodes.length);
    block.children.sort((one, other) => one.nodes[0] - other.nodes[0]);
    this.divide(block, most);
    this.sum(block);
  }

  // Fills in what a block has of its children, which are settled.
  sum(block) {
    for (const child of block.children) {
      if (child.node >= 0) {
        child.culprits += this.guilty.has(child.node) ? 1 : 0;
        child.worst = Math.max(child.worst, badness(this.errors.get(child.node)?.error));
      }
      for (const node of child.nodes) block.nodes.push(node);
      block.culprits += child.culprits;
      block.worst = Math.max(block.worst, child.worst);
    }
  }

  divide(block, most) {
    const { children } = block;
    if (children.length <= most) return;
    const size = Math.ceil(children.length / Math.min(MOST_CHILDREN, Math.ceil(children.length / MOST_CHILDREN)));
    block.children = [];
    for (let start = 0; start < children.length; start += size) {
      const some = children.slice(start, start + size);
      const part = new Item(`${start + 1} to ${start + some.length} of ${children.length}`, block);
      part.children = some;
      for (const one of some) one.parent = part;
      this.divide(part, most);
      this.sum(part);
      block.children.push(part);
    }
  }

  typeOf(node) {
    return this.operators[this.operator[node]];
  }

  // Nodes with those of nested graphs after the node that owns them.
  inOrder() {
    const inside = new Map();
    for (const body of this.bodies) inside.set(body.owner, [...(inside.get(body.owner) ?? []), body]);
    const order = [];
    const add = ({ node: first, nodes }) => {
      for (let node = first; node < first + nodes; node++) {
        order.push(node);
        for (const body of inside.get(node) ?? []) add(body);
      }
    };
    add(this.levels[0]);
    return order;
  }

  // A block's name with those of the blocks that it lies in, within its own graph.
  path(item) {
    const names = [];
    for (let at = item; at?.parent && at.node < 0 && !at.isGraph; at = at.parent) names.unshift(at.name);
    return names.join(" / ");
  }

  // The nested graphs around a node of this graph or around a block, from the inside out, in words.
  places(body) {
    const places = [];
    for (let at = body; at > 0; at = this.nodeBody[this.levels[at].owner]) {
      const { name, owner } = this.levels[at];
      places.push(`the ${name} of ${this.typeOf(owner)} ${this.names[owner]}`);
    }
    return places;
  }

  // Edges between what lies in a block, each once: [from, to, tensors], places in `children`; -1: outside.
  edgesIn(block) {
    return (block.edges ??= this.edgesOf(block));
  }

  edgesOf(block) {
    const place = new Int32Array(this.size).fill(-1);
    block.children.forEach((child, at) => child.nodes.forEach((node) => (place[node] = at)));
    const edges = new Map();
    const width = block.children.length + 1;
    const add = (from, to, tensor) => {
      const key = (from + 1) * width + to + 1;
      if (from !== to && !edges.has(key)) edges.set(key, [from, to, []]);
      edges.get(key)?.[2].push(tensor);
    };
    for (const node of block.nodes) {
      for (const tensor of this.inputs[node]) {
        if (tensor < 0 || this.weights.has(tensor)) continue;
        const from = this.producer[tensor];
        // an input of a graph further inside
        if (from < 0 && this.depths[this.tensorBody[tensor]] > this.depths[block.body]) continue;
        add(from < 0 ? -1 : place[from], place[node], tensor);
      }
      for (const tensor of this.outputs[node]) {
        const leaves = (this.nodeBody[node] === block.body && this.given[block.body].has(tensor)) || this.consumers[tensor]?.some((reader) => place[reader] < 0);
        if (tensor >= 0 && leaves) add(place[node], -1, tensor);
      }
    }
    return [...edges.values()];
  }
}

// Returns how many nodes the model itself has: those of nested graphs follow them.
function topNodes({ names, bodies }) {
  return bodies[0]?.node ?? names.length;
}

// Returns for each number below `size` the place of the last start that is no larger.
function spread(starts, size) {
  const places = new Int32Array(size);
  starts.forEach((start, place) => places.fill(place, start));
  return places;
}

function inPath(path, name) {
  return path ? `${path}/${name}` : name;
}

// Returns the names of a graph's culprits, with the paths of the nested graphs that they lie in.
function culpritNames({ names, bodies, culprits }) {
  const around = (node) => bodies.findLast((body) => body.node <= node)?.path ?? "";
  return culprits.map((node) => inPath(around(node), names[node]));
}
