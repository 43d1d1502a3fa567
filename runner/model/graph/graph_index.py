"""The index of a model's graph: who produces, who reads, what depends on data, draws or computes constants.

Nothing is copied but names.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto

from runner.model.graph import data_dependence, scopes


def needed(graph: Graph, nodes: Collection[int], among: Collection[int] | None = None) -> frozenset[int]:
    """Return those elements ``among`` some (None: all) that ``nodes`` read, directly or through others of them."""
    among = range(len(graph.nodes)) if among is None else among
    found: set[int] = set()
    waiting = list(nodes) if among else []
    while waiting:
        for parent in graph.parents[waiting.pop()]:
            if parent in among and parent not in found:
                found.add(parent)
                waiting.append(parent)
    return frozenset(found)


@dataclass(frozen=True)
class Node:
    """One element: a top-level node.

    ``index``: its position among the elements. ``name``: as shown, unique. ``inputs``: what it reads, omitted ones
    left out, names that
    nested graphs capture included. ``outputs``: the non-empty ones. ``domain``: ``ai.onnx`` is written as the empty
    one. ``nests``: whether graphs are nested in it.
    """

    # a long graph has as many of these as nodes
    __slots__ = ("domain", "index", "inputs", "name", "nests", "op_type", "outputs")

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nests: bool


@dataclass(frozen=True, eq=False)
class Graph:
    """A model whose nodes stand in an executable order, indexed.

    ``nodes``: the elements. ``protos``: the same as protobufs. ``positions``: their places in the file. ``carried``:
    constants that cannot be, or are not to be, initializers, by
    output: (place in the file, node); they are no elements. ``inputs``: the graph inputs that must be fed.
    ``parents``: for each node, the
    elements that it reads from, ascending. ``value_types``: types of graph inputs, outputs and value_info as the file
    declares them.
    """

    model: ModelProto
    nodes: tuple[Node, ...]
    protos: tuple[NodeProto, ...]
    positions: tuple[int, ...]
    carried: Mapping[str, tuple[int, NodeProto]]
    producers: Mapping[str, int]
    readers: Mapping[str, tuple[int, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, TensorProto | SparseTensorProto]
    parents: tuple[tuple[int, ...], ...]
    value_types: Mapping[str, TypeProto]

    @staticmethod
    def load(path: Path) -> Graph:
        """Index a model file; weights that lie outside it are not read."""
        return Graph.of(ModelProto.FromString(Path(path).read_bytes()))

    @staticmethod
    def of(model: ModelProto, constants: Collection[str] = ()) -> Graph:
        """Index a model, which the graph keeps and nobody may change from then on.

        ``constants``: outputs of Constant nodes that are no elements either.
        """
        graph = model.graph
        initializers = initializers_of(graph)
        elements, positions, carried = [], [], {}
        for position, proto in enumerate(graph.node):
            if is_sparse_constant(proto) or (proto.output and proto.output[0] in constants):
                carried[proto.output[0]] = (position, proto)
            else:
                elements.append(proto)
                positions.append(position)
        nodes = _nodes(elements)
        del elements  # what was asked of these objects takes more memory than they do
        producers = {name: node.index for node in nodes for name in node.outputs}
        readers: dict[str, list[int]] = {}
        parents = []
        for node in nodes:
            above = set()
            for name in node.inputs:
                readers.setdefault(name, []).append(node.index)
                if name in producers:
                    above.add(producers[name])
            parents.append(tuple(sorted(above)))
        return Graph(
            model=model,
            nodes=nodes,
            protos=tuple(graph.node[position] for position in positions),
            positions=tuple(positions),
            carried=carried,
            producers=producers,
            readers={name: tuple(indices) for name, indices in readers.items()},
            inputs=tuple(value.name for value in graph.input if value.name not in initializers),
            outputs=tuple(value.name for value in graph.output),
            initializers=initializers,
            parents=tuple(parents),
            value_types=_value_types(graph),
        )

    def producer(self, tensor: str) -> Node | None:
        """Return the node that gives a tensor."""
        index = self.producers.get(tensor)
        return None if index is None else self.nodes[index]

    def made_of(self, tensor: str) -> list[str]:
        """Return what the nodes that read a tensor give."""
        return [name for index in self.readers.get(tensor, ()) for name in self.nodes[index].outputs]

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """The element types of the initializers; 0 of a sparse one."""
        return {name: getattr(one, "data_type", 0) for name, one in self.initializers.items()}

    def dtype(self, tensor: str, types: Mapping[str, TypeProto]) -> int:
        """Return the element type of a tensor; 0 where it is no initializer, and ``types`` do not say it."""
        declared = types[tensor].tensor_type.elem_type if tensor in types else 0
        return int(self.kinds.get(tensor, declared))

    def opset(self, domain: str = "") -> int:
        """Return the version of a domain that the model imports, 0 where it imports none, or one that cannot be."""
        versions = (one.version for one in self.model.opset_import if scopes.domain_of(one.domain) == domain)
        return max(next(versions, 0), 0)

    @cached_property
    def data_independent(self) -> frozenset[str]:
        """Tensors whose value is the same for all input data of the same shapes."""
        found = data_dependence.levels(self.model, self.protos, {*self.initializers, *self.carried})
        return frozenset(name for name, level in found.items() if level == data_dependence.VALUE)

    @cached_property
    def constants(self) -> frozenset[int]:
        """The elements that compute of initializers alone, and draw nothing: they come along with whatever reads them.

        None that gives an output of the graph, that nobody reads, or that holds graphs; none at all in a model without
        inputs.
        """
        found: set[int] = set()
        for node in self.nodes if self.inputs else ():
            known = all(
                name in self.initializers or name in self.carried or self.producers.get(name) in found
                for name in node.inputs
            )
            if not known or node.nests or not self.output_set.isdisjoint(node.outputs):
                continue
            if any(name in self.readers for name in node.outputs) and not self._draws(self.protos[node.index]):
                found.add(node.index)
        return frozenset(found)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the model as it lies here: large weights are in it by their places only."""
        return hashlib.sha256(self.model.SerializeToString(deterministic=True)).hexdigest()

    @cached_property
    def output_set(self) -> frozenset[str]:
        """The graph outputs."""
        return frozenset(self.outputs)

    @cached_property
    def input_order(self) -> Mapping[str, int]:
        """The place of each graph input (initializers left out)."""
        return {name: place for place, name in enumerate(self.inputs)}

    @cached_property
    def output_order(self) -> Mapping[str, int]:
        """The first place of each graph output."""
        return {name: place for place, name in reversed(list(enumerate(self.outputs)))}

    @cached_property
    def overridable(self) -> Mapping[str, Any]:
        """Graph inputs that have an initializer as their default, with their ValueInfoProto."""
        return {value.name: value for value in self.model.graph.input if value.name in self.initializers}

    @cached_property
    def value_info(self) -> Mapping[str, Any]:
        """The file's value_info by name."""
        return {value.name: value for value in self.model.graph.value_info}

    @cached_property
    def domains(self) -> tuple[frozenset[str], ...]:
        """For each element, the operator domains that it and what is nested in it use."""
        inside = (scopes.all_nodes([proto]) for proto in self.protos)
        return tuple(frozenset(scopes.domain_of(node.domain) for node in nodes) for nodes in inside)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the elements, as shown."""
        return tuple(node.name for node in self.nodes)

    @cached_property
    def drawing(self) -> tuple[str, ...]:
        """The names of the elements that draw random numbers anew in each run.

        A Dropout does so in training only; a node with a seed draws the same.
        """
        return tuple(
            node.name
            for node, proto in zip(self.nodes, self.protos, strict=True)
            if any(
                self._draws(inner)
                and (inner.op_type != "Dropout" or len(inner.input) > 2)
                and not any(attribute.name == "seed" for attribute in inner.attribute)
                for inner in scopes.all_nodes([proto])
            )
        )

    def _draws(self, node: NodeProto) -> bool:
        """Whether a node draws random numbers, itself or in a function that it calls."""
        return data_dependence.draws(node) or scopes.call_key(node) in self._drawing_functions

    @cached_property
    def _drawing_functions(self) -> frozenset[tuple[str, str, str]]:
        inside = {key: (*scopes.all_nodes(one.node),) for key, one in self.functions.items()}
        drawing = {key for key, nodes in inside.items() if any(map(data_dependence.draws, nodes))}
        return frozenset(key for key, nodes in inside.items() if key in drawing or self.called(nodes) & drawing)

    def called(self, nodes: Iterable[NodeProto]) -> frozenset[tuple[str, str, str]]:
        """Return the keys of the model's functions that nodes call, directly or through others."""
        found: set[tuple[str, str, str]] = set()
        pending = list(nodes) if self.functions else []
        while pending:
            new = {scopes.call_key(node) for node in scopes.all_nodes(pending)} & self.functions.keys() - found
            found |= new
            pending = [node for key in new for node in self.functions[key].node]
        return frozenset(found)

    @cached_property
    def functions(self) -> Mapping[tuple[str, str, str], Any]:
        """The model-local functions by (domain, name, overload)."""
        return {scopes.function_key(function): function for function in self.model.functions}


def is_sparse_constant(node: NodeProto) -> bool:
    """Whether a node is a Constant that holds a sparse tensor (there is no dense initializer for it)."""
    if node.op_type != "Constant" or scopes.domain_of(node.domain) or not node.output or not node.output[0]:
        return False
    return any(attribute.name == "sparse_value" for attribute in node.attribute)


def initializers_of(graph: GraphProto) -> dict[str, TensorProto | SparseTensorProto]:
    """Return dense and sparse initializers by name."""
    found: dict[str, TensorProto | SparseTensorProto] = {tensor.name: tensor for tensor in graph.initializer}
    found.update((sparse.values.name, sparse) for sparse in graph.sparse_initializer)
    return found


def _nodes(protos: list[NodeProto]) -> tuple[Node, ...]:
    """Return the elements, with names as shown. Texts are interned: protobuf makes new ones whenever it is asked."""
    return tuple(
        Node(
            index,
            intern(name),
            intern(proto.op_type),
            intern(scopes.domain_of(proto.domain)),
            tuple(map(intern, scopes.reads(proto))),
            tuple(map(intern, _outputs(proto))),
            bool(scopes.subgraphs(proto)),
        )
        for index, (name, proto) in enumerate(zip(display_names(protos), protos))  # noqa: B905 - equally long
    )


def _outputs(proto: NodeProto) -> tuple[str, ...]:
    return tuple(name for name in proto.output if name)


def _second_name(proto: NodeProto, place: int) -> str:
    return next(iter(_outputs(proto)), f"{proto.op_type}#{place}")


def display_names(protos: list[NodeProto]) -> list[str]:
    """Return a unique name for each node: its own, or its first output where it has none or shares it.

    First outputs are unique, so names that clash are replaced until none does.
    """
    names = [proto.name or _second_name(proto, at) for at, proto in enumerate(protos)]
    while True:
        counts = Counter(names)
        shared = [at for at, name in enumerate(names) if counts[name] > 1] if len(counts) < len(names) else []
        clashing = [(at, other) for at in shared if (other := _second_name(protos[at], at)) != names[at]]
        if not clashing:
            return names
        for at, other in clashing:
            names[at] = other


def _value_types(graph: GraphProto) -> dict[str, TypeProto]:
    """Return the declared types; graph inputs and outputs win over value_info."""
    return {
        value.name: value.type
        for group in (graph.value_info, graph.output, graph.input)
        for value in group
        if value.HasField("type") and value.type.WhichOneof("value")
    }
