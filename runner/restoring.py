"""Weights that raised layers get back: from the parent where one is given, else from what is stored, and it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto

from runner.loading import Loaded
from runner.model import scopes
from runner.model.cast.layers import Pair
from runner.model.cast.quantized import pairs_of, readers
from runner.model.graph import Graph, initializers_of

SHOWN = 3


@dataclass(frozen=True)
class Lost:
    """A weight that is stored with fewer digits than a raised layer wants.

    ``number``: of its graph. ``name``: of the initializer, or of what a DequantizeLinear makes of it. ``parent``: the
    parent's initializer that has them all, None: there is none.
    """

    number: int
    name: str
    quantized: bool
    parent: str | None


@dataclass(frozen=True)
class Restored:
    """``table``: (number of the graph, name) -> the weight in the high type. ``warnings``: where it comes from."""

    table: dict[tuple[int, str], TensorProto]
    warnings: tuple[str, ...]
    has_pairs: bool

    def weight(self, number: int, name: str, dtype: int) -> TensorProto:
        """Return what a DequantizeLinear of a constant makes."""
        return self.table[number, name]


def restore(
    worked: Callable[[str, dict[str, Any]], dict[str, Any]], model: ModelProto, typed: Path, loaded: Loaded, pair: Pair
) -> Restored:
    """Make the weights that raised layers get; ``worked`` calls an operation in a worker."""
    lost = [*_lost(model, loaded, pair)]
    has_pairs = any(pairs_of(graph) for graph in scopes.graphs_below(model.graph))
    made = [one for one in lost if one.quantized or one.parent is not None]
    if not made:
        return Restored({}, (), has_pairs)
    parent = loaded.inherited.store.structure if loaded.inherited else None
    out = typed.parent / "restored.onnx"
    args = {
        "model": str(typed),
        "parent": str(parent) if parent else None,
        "weights": [[one.number, one.name, one.parent] for one in made],
        "target": pair.high,
        "out": str(out),
    }
    worked("restore_weights", args)
    found = onnx.ModelProto()
    found.ParseFromString(out.read_bytes())
    tensors = {tensor.name: tensor for tensor in found.graph.initializer}
    table = {(one.number, one.name): tensors[f"{one.number}/{one.name}"] for one in made}
    return Restored(table, tuple(_said(lost)), has_pairs)


def _lost(model: ModelProto, loaded: Loaded, pair: Pair) -> Iterator[Lost]:
    parent = Graph.load(loaded.inherited.store.structure) if loaded.inherited else None
    theirs = _floats(parent) if parent else {}
    nodes = {node.name: node.inputs for node in parent.nodes} if parent else {}
    origins = loaded.inherited.origins if loaded.inherited else {}
    for number, graph in enumerate(scopes.graphs_below(model.graph)):
        constants = initializers_of(graph)
        for tensor in graph.initializer:
            if tensor.data_type == pair.low != pair.high:
                same = theirs.get(tensor.name) == tuple(tensor.dims)
                yield Lost(number, tensor.name, False, tensor.name if same else None)
        pairs = pairs_of(graph)
        reading = readers(graph, pairs)
        for name, found in pairs.items():
            if found.constant is None:
                continue
            stored = constants[found.constant]
            shape = tuple(stored.dims)
            names = [*_partners(reading.get(name), nodes, origins), found.constant.removesuffix("_quantized")]
            parent_name = next((one for one in names if theirs.get(one) == shape), None)
            yield Lost(number, name, True, parent_name)


def _partners(reading: tuple[NodeProto, int] | None, nodes: dict[str, tuple[str, ...]], origins: Any) -> Iterator[str]:
    """Yield what the parent's node reads where a node of the child reads a quantised weight."""
    if reading is None:
        return
    node, place = reading
    for name in (origins.get(node.name), node.name):
        inputs = nodes.get(name or "", ())
        if place < len(inputs):
            yield inputs[place]


def _floats(parent: Graph) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(tensor.dims)
        for name, tensor in parent.initializers.items()
        if isinstance(tensor, TensorProto) and tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
    }


def _said(lost: list[Lost]) -> Iterator[str]:
    taken = [one.name for one in lost if one.parent is not None]
    rounded = [one.name for one in lost if one.parent is None and one.quantized]
    if rounded:
        kept = f", {len(taken)} others come from reference.model" if taken else ""
        yield (
            f"{len(rounded)} quantised weights ({_names(rounded)}) are dequantised for raised layers, which so keep "
            f"their rounding{kept}; give the original as reference.model="
        )
    elif taken:
        yield f"raised layers get {len(taken)} weights from reference.model ({_names(taken)})"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
