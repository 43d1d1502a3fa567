"""Adds a quantized copy beside each raised layer, to measure the error that its Q/DQ pairs introduce.

In a model with everything raised each layer gets a copy that reads what the pairs make of the same values. So the error
that pairs introduce is seen where it comes from, not where it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import GraphProto, ModelProto, NodeProto

from runner.jobs.precision.cast.layers import Layer
from runner.jobs.precision.cast.qdq_pairs import is_quantization, pairs_of
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.protobuf_edits import copy_of

_STEM = "winnow__quantized"


def add_quantized(raised: ModelProto, original: ModelProto, layers: Iterable[Layer]) -> list[list[object]]:
    """Add copies of layers to a model with all of them raised, in place.

    Returns [[index of the layer, number of its graph, what it makes, what its copy makes]]. Graphs are numbered in
    reading order. Left out: layers with a graph of their own, and those whose tensors the raised model has not.
    """
    known = pairs_of(original.graph)
    below = list(scopes.graphs_below(original.graph))
    made = list(scopes.graphs_below(raised.graph))
    makers = {name: node for graph in below for node in graph.node for name in node.output}
    pairs = {name for one in known for name in one}
    ends = {
        pair.source: name
        for name, pair in known[0].items()
        if pair.source and name in {value.name for value in original.graph.output}
    }
    found: list[list[object]] = []
    by_graph: dict[int, list[tuple[int, Layer]]] = {}
    for index, layer in enumerate(layers):
        by_graph.setdefault(layer.key[0], []).append((index, layer))
    for number, held in by_graph.items():
        copier = _Copier(number, makers, pairs)
        own = {name: node for node in made[number].node for name in node.output}
        for index, layer in held:
            node = below[number].node[layer.key[1]]
            if any(True for _ in scopes.subgraphs(node)) or not all(name in own for name in layer.writes):
                continue
            for name, other in copier.beside(node, layer, ends if number == 0 else {}).items():
                found.append([index, number, name, other])
        made[number].node.extend(copier.nodes)
    _restore_initializers(raised.graph, original.graph, makers)
    return found


class _Copier:
    """Makes copies of the layers of one graph. They stand behind everything that the graph has."""

    def __init__(self, number: int, makers: Mapping[str, NodeProto], pairs: set[str]) -> None:
        self.nodes: list[NodeProto] = []
        self._stem = f"{_STEM}_{number}"
        self._makers = makers
        self._pairs = pairs
        self._made: dict[str, str] = {}

    def beside(self, node: NodeProto, layer: Layer, ends: Mapping[str, str]) -> dict[str, str]:
        """Add a copy of a node with its pairs; return what it makes, by what the node makes or a graph hands out."""
        copy = copy_of(node)
        copy.name = ""
        for place, name in enumerate(node.input):
            copy.input[place] = self._quantized(name)
        for place, name in enumerate(node.output):
            copy.output[place] = name and f"{self._stem}_{len(self.nodes)}_{place}"
        self.nodes.append(copy)
        made = dict(zip(node.output, copy.output, strict=True))
        # a graph output is limited by its pair in the model and in the copy alike
        return {
            ends.get(name, name): self._through(ends[name], {name: made[name]}) if name in ends else made[name]
            for name in layer.writes
        }

    def _quantized(self, name: str) -> str:
        """Return the name of what a pair makes; of any other tensor its own name."""
        if name not in self._pairs:
            return name
        if name not in self._made:
            self._made[name] = self._through(name, {})
        return self._made[name]

    def _through(self, name: str, given: Mapping[str, str]) -> str:
        """Copy a DequantizeLinear and, where there is one, the QuantizeLinear before it, which reads what is given."""
        node = self._makers[name]
        first = node.input[0]
        if first in self._makers:
            source = self._makers[first].input[0]
            first = self._copied(self._makers[first], given.get(source) or self._quantized(source))
        return self._copied(node, first)

    def _copied(self, node: NodeProto, first: str) -> str:
        copy = copy_of(node)
        copy.name, copy.input[0], copy.output[0] = "", first, f"{self._stem}_pair_{len(self.nodes)}"
        self.nodes.append(copy)
        return str(copy.output[0])


def _restore_initializers(graph: GraphProto, original: GraphProto, makers: Mapping[str, NodeProto]) -> None:
    """Add the initializers to a graph again that were removed with the pairs, those of nested graphs too."""
    wanted = {name for node in makers.values() if is_quantization(node) for name in node.input}
    there = {name for one in scopes.graphs_below(graph) for name in initializers_of(one)}
    for one in scopes.graphs_below(original):
        for tensor in one.initializer:
            if tensor.name in wanted and tensor.name not in there:
                there.add(tensor.name)
                graph.initializer.add().CopyFrom(tensor)
