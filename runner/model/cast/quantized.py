"""Q/DQ pairs: where quantisation stands between layers, and what a layer reads without it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from runner.model.graph import initializers_of

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_NEVER_NEGATIVE = ("Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus")
_UNSIGNED = (TensorProto.UINT8, TensorProto.UINT16)
_LEAST = {TensorProto.INT8: -128, TensorProto.INT16: -32768}


@dataclass(frozen=True)
class Pair:
    """What a DequantizeLinear makes. ``source``: the float tensor that its pair quantises, None: a constant is stored.

    ``constant``: the name of that constant. ``floored``: nothing below zero survives the pair, and somebody may rely on
    it: quantisers leave out a Relu in front of such a one.
    """

    source: str | None
    constant: str | None = None
    floored: bool = False


def is_quantization(node: NodeProto) -> bool:
    """Whether a node quantises or dequantises linearly."""
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and node.domain in _DOMAINS


def pairs_of(graph: GraphProto) -> dict[str, Pair]:
    """Return the outputs of the DequantizeLinear nodes of one graph, with what they stand for.

    Only pairs are: what comes quantised from anywhere else has no float to go back to.
    """
    makers = {name: node for node in graph.node for name in node.output}
    constants = initializers_of(graph)
    found = {}
    for node in graph.node:
        if not is_quantization(node) or node.op_type != "DequantizeLinear":
            continue
        maker = makers.get(node.input[0])
        if maker is not None and is_quantization(maker) and maker.op_type == "QuantizeLinear":
            above = makers.get(maker.input[0])
            floored = _floored(maker, constants) and (above is None or above.op_type not in _NEVER_NEGATIVE)
            found[node.output[0]] = Pair(maker.input[0], floored=floored)
        elif all(name in constants for name in node.input if name):
            found[node.output[0]] = Pair(None, node.input[0])
    return found


def _floored(node: NodeProto, constants: Mapping[str, TensorProto | SparseTensorProto]) -> bool:
    """Whether a QuantizeLinear makes the least integer of zero."""
    if len(node.input) < 3 or not node.input[2]:
        kinds = [attribute.i for attribute in node.attribute if attribute.name == "output_dtype"]
        return not kinds or kinds[0] in (TensorProto.UNDEFINED, *_UNSIGNED)
    zero = constants.get(node.input[2])
    if not isinstance(zero, TensorProto) or zero.data_type not in (*_UNSIGNED, *_LEAST):
        return False
    values = numpy_helper.to_array(zero)
    return bool(values.size) and bool((values.astype("int64") == _LEAST.get(zero.data_type, 0)).all())


def without_unused(nodes: Iterable[NodeProto], wanted: Collection[str]) -> list[NodeProto]:
    """Return the nodes without quantisation that nobody reads any more; ``wanted``: read from outside."""
    kept: list[NodeProto] = []
    read = set(wanted)
    for node in reversed(list(nodes)):
        if is_quantization(node) and not read & set(node.output):
            continue
        read.update(name for name in node.input if name)
        for attribute in node.attribute:
            read.update(_inner(attribute.g))
            for graph in attribute.graphs:
                read.update(_inner(graph))
        kept.append(node)
    return kept[::-1]


def _inner(graph: GraphProto) -> Iterable[str]:
    """Yield whatever nested graphs read, whoever makes it."""
    for value in graph.output:
        yield value.name
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for nested in (attribute.g, *attribute.graphs):
                yield from _inner(nested)


def constants_dropped(original: GraphProto, nodes: Iterable[NodeProto]) -> set[str]:
    """Return the initializers of a graph that only quantisation reads which ``nodes`` have no more."""
    kept = {name for node in nodes for name in node.input} | {*_inner_of(nodes)}
    by_quantization = {name for node in original.node if is_quantization(node) for name in node.input}
    return {name for name in initializers_of(original) if name in by_quantization and name not in kept}


def _inner_of(nodes: Iterable[NodeProto]) -> Iterable[str]:
    for node in nodes:
        for attribute in node.attribute:
            for nested in (attribute.g, *attribute.graphs):
                yield from _inner(nested)


def readers(graph: GraphProto, pairs: Mapping[str, Pair]) -> dict[str, tuple[NodeProto, int]]:
    """Return for each pair the first node that reads it, and at which place."""
    found: dict[str, tuple[NodeProto, int]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in pairs:
                found.setdefault(name, (node, place))
    return found
