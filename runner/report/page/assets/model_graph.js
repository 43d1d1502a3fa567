// A model's graph as its blocks: nodes lie in blocks, blocks in blocks, and no block has more than a drawing can show.

const MOST_CHILDREN = 20;
const FEW_NODES = 60;
const DEEPEST = 32;

// A block, or a node (`node` is its number, -1 for a block).
class Item {
  constructor(name, parent, node = -1) {
    this.name = name;
    this.parent = parent;
    this.node = node;
    this.children = [];
    this.nodes = node < 0 ? [] : [node];
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
    this.fed = new Set(this.feeds);
    this.given = new Set(this.results);
    this.weights = new Set(this.constants);
    this.guilty = new Set(this.culprits);
    this.errors = this.errorsOf(layers);
    this.items = new Array(this.size);
    this.root = this.tree();
  }

  // The error of each node that was measured: by its tensor, else by its name.
  errorsOf(layers) {
    const tensors = new Map(this.tensors.map((name, tensor) => [name, this.producer[tensor]]));
    const names = new Map(this.names.map((name, node) => [name, node]));
    const errors = new Map();
    for (const layer of layers) {
      const made = tensors.get(layer.tensor);
      const node = made >= 0 ? made : names.get(layer.node);
      const known = errors.get(node);
      if (node !== undefined && (!known || badness(layer.error) > badness(known.error))) errors.set(node, layer);
    }
    return errors;
  }

  tree() {
    const root = new Item("", null);
    const blocks = this.size > FEW_NODES ? this.blocks.map((path) => this.blockAt(root, path)) : this.blocks.map(() => root);
    for (let node = 0; node < this.size; node++) {
      const parent = blocks[this.block[node]] ?? root;
      const item = new Item(this.names[node], parent, node);
      this.items[node] = item;
      parent.children.push(item);
    }
    this.settle(root);
    return root;
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
  settle(block) {
    const only = () => block.children.length === 1 && block.children[0].node < 0;
    while (only()) {
      const child = block.children[0];
      block.name = [block.name, child.name].filter(Boolean).join("/");
      block.children = child.children;
      for (const one of block.children) one.parent = block;
    }
    for (const child of block.children) if (child.node < 0) this.settle(child);
    block.children = block.children.filter((child) => child.nodes.length);
    block.children.sort((one, other) => one.nodes[0] - other.nodes[0]);
    this.divide(block);
    this.sum(block);
  }

  // Fills in what a block has of its children, which are settled.
  sum(block) {
    for (const child of block.children) {
      if (child.node >= 0) {
        child.culprits = this.guilty.has(child.node) ? 1 : 0;
        child.worst = badness(this.errors.get(child.node)?.error);
      }
      for (const node of child.nodes) block.nodes.push(node);
      block.culprits += child.culprits;
      block.worst = Math.max(block.worst, child.worst);
    }
  }

  divide(block) {
    const { children } = block;
    if (children.length <= (this.size > FEW_NODES ? MOST_CHILDREN : FEW_NODES)) return;
    const size = Math.ceil(children.length / Math.min(MOST_CHILDREN, Math.ceil(children.length / MOST_CHILDREN)));
    block.children = [];
    for (let start = 0; start < children.length; start += size) {
      const some = children.slice(start, start + size);
      const part = new Item(`${start + 1} to ${start + some.length} of ${children.length}`, block);
      part.children = some;
      for (const one of some) one.parent = part;
      this.divide(part);
      this.sum(part);
      block.children.push(part);
    }
  }

  typeOf(node) {
    return this.operators[this.operator[node]];
  }

  path(item) {
    const names = [];
    for (let at = item; at?.parent; at = at.parent) names.unshift(at.name);
    return names.join(" / ");
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
        add(from < 0 ? -1 : place[from], place[node], tensor);
      }
      for (const tensor of this.outputs[node]) {
        const leaves = this.given.has(tensor) || this.consumers[tensor]?.some((reader) => place[reader] < 0);
        if (tensor >= 0 && leaves) add(place[node], -1, tensor);
      }
    }
    return [...edges.values()];
  }
}
