"""Weights and limits that raised layers get back: from the parent where one is given, else from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from runner.jobs.precision.cast.layers import Pair
from runner.jobs.precision.cast.qdq_pairs import Ends, pairs_of, readers
from runner.loading.load import Loaded
from runner.model.graph import scopes
from runner.model.graph.graph_index import Graph
from runner.model.values import tensor_bytes
from runner.text import listed

Worked = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Calls an operation in a worker."""

_ACTIVATIONS = ("Relu", "Clip")
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Lost:
    """A weight that is stored with fewer digits than a raised layer wants.

    ``number``: of its graph. ``name``: of the initializer, or of what a DequantizeLinear makes of it. ``parents``: the
    parent's initializers that may be what it was.
    """

    number: int
    name: str
    quantized: bool
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Restored:
    """``table``: (number of the graph, name) -> the weight in the high type. ``warnings``: where it comes from.

    ``ends``: what the parent says that a tensor is limited to where a pair goes, see `Mixer`.
    """

    table: dict[tuple[int, str], TensorProto]
    warnings: tuple[str, ...]
    has_pairs: bool
    ends: dict[tuple[int, str], Ends] = field(default_factory=dict)

    def weight(self, number: int, name: str, dtype: int) -> TensorProto:
        """Return what a DequantizeLinear of a constant makes."""
        return self.table[number, name]


class Parent:
    """A parent's nodes and weights, nested ones included, as far as a child's nodes are known to make the same."""

    def __init__(self, loaded: Loaded) -> None:
        inherited = loaded.inherited
        self.store = inherited.parent.store.structure if inherited else None
        self._origins: Mapping[str, str] = inherited.origins if inherited else {}
        self._nodes: dict[str, NodeProto] = {}
        self._makers: dict[str, NodeProto] = {}
        self._constants: dict[str, TensorProto] = {}
        if self.store is None:
            return
        graph = Graph.load(self.store)
        # as reports name them: a nameless node is called what it makes
        named = {name: node.name for node in graph.nodes for name in node.outputs}
        for nested in scopes.graphs_below(graph.model.graph):
            self._constants.update({tensor.name: tensor for tensor in nested.initializer})
            for node in nested.node:
                for name in node.output:
                    self._makers[name] = node
                    self._nodes.setdefault(named.get(name) or node.name or name, node)

    def read(self, reading: tuple[NodeProto, int] | None) -> Iterator[str]:
        """Yield what the parent's node reads at the place where a node of the child does."""
        if reading is None:
            return
        node, place = reading
        own = node.name or next(iter(node.output), "")
        for name in (self._origins.get(own), own):
            found = self._nodes.get(name or "")
            if found is not None and found.op_type in _ACTIVATIONS and found.op_type != node.op_type:
                # the quantizer merged the activation into the node before it: compare with that node
                found = self._makers.get(found.input[0])
            if found is not None and found.op_type == node.op_type and place < len(found.input):
                yield found.input[place]

    def weights(self, names: Iterator[str], stored: TensorProto) -> tuple[str, ...]:
        """Return those of the names that are float initializers of a fitting shape."""
        dims = list(stored.dims)
        return tuple(
            name
            for name in dict.fromkeys(names)
            if name in self._constants
            and self._constants[name].data_type in _FLOATS
            and list(self._constants[name].dims) in (dims, dims[::-1])
        )

    def ends(self, read: Iterator[str], maker: NodeProto | None) -> Ends | None:
        """Return what the parent limits a tensor to where the child's pair does; None: it does not tell."""
        name = next(read, None)
        if name is None:
            return None
        node = self._makers.get(name)
        if node is None or node.op_type not in _ACTIVATIONS or (maker is not None and maker.op_type == node.op_type):
            return None, None
        if node.op_type == "Relu":
            return 0.0, None
        given = {attribute.name: attribute.f for attribute in node.attribute}
        least, largest = (self._limit(node, place, given.get(key)) for place, key in ((1, "min"), (2, "max")))
        return least, largest

    def _limit(self, node: NodeProto, place: int, attribute: float | None) -> float | None:
        name = node.input[place] if place < len(node.input) else ""
        tensor = self._constants.get(name)
        if tensor is None or tensor_bytes.is_external(tensor):
            return attribute
        return float(numpy_helper.to_array(tensor).reshape(-1)[0])


def restore(worked: Worked, model: ModelProto, typed: Path, loaded: Loaded, pair: Pair) -> Restored:
    """Make the weights that raised layers get."""
    parent = Parent(loaded)
    pairs = pairs_of(model.graph)
    graphs = list(scopes.graphs_below(model.graph))
    lost, ends = [], {}
    for number, graph in enumerate(graphs):
        lost += [
            Lost(number, tensor.name, False, parent.weights(iter([tensor.name]), tensor))
            for tensor in graph.initializer
            if tensor.data_type == pair.low != pair.high
        ]
        reading = readers(graph, pairs[number])
        makers = {name: node for node in graph.node for name in node.output}
        for name, found in pairs[number].items():
            if found.constant is not None:
                own = found.constant.name.removesuffix("_quantized")
                names = iter([*parent.read(reading.get(name)), own])
                lost.append(Lost(number, name, True, parent.weights(names, found.constant)))
            elif (told := parent.ends(parent.read(reading.get(name)), makers.get(found.source or ""))) is not None:
                ends[number, name] = told
    wanted = [one for one in lost if one.quantized or one.parents]
    if not wanted:
        return Restored({}, (), any(pairs), ends)
    out = typed.parent / "restored.onnx"
    args = {
        "model": str(typed),
        "parent": str(parent.store) if parent.store else None,
        "weights": [[one.number, one.name, list(one.parents)] for one in wanted],
        "target": pair.high,
        "out": str(out),
    }
    told_of = worked("restore_weights", args)
    made = ModelProto.FromString(out.read_bytes())
    tensors = {tensor.name: tensor for tensor in made.graph.initializer}
    taken, strangers = ({(number, name) for number, name in told_of[key]} for key in ("taken", "strangers"))
    table = {
        (one.number, one.name): tensors[f"{one.number}/{one.name}"]
        for one in wanted
        if one.quantized or (one.number, one.name) in taken
    }
    return Restored(table, tuple(_said(wanted, taken, strangers, parent.store is not None)), any(pairs), ends)


def _said(
    lost: list[Lost], taken: set[tuple[int, str]], strangers: set[tuple[int, str]], has_parent: bool
) -> Iterator[str]:
    if taken:
        yield f"raised layers get {len(taken)} weights from reference.model ({_named(taken)})"
    if strangers:
        yield (
            f"{len(strangers)} weights of reference.model are not what is stored here ({_named(strangers)}), so they "
            "are not taken: is it the model that this one was made of?"
        )
    rounded = {(one.number, one.name) for one in lost if one.quantized} - taken
    if rounded:
        advice = "" if has_parent else "; give the original as reference.model="
        yield (
            f"{len(rounded)} quantized weights ({_named(rounded)}) are dequantized for raised layers, which so keep "
            f"their rounding{advice}"
        )


def _named(found: set[tuple[int, str]]) -> str:
    return listed([name for _, name in sorted(found)])
