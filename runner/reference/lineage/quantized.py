"""What a quantizer leaves of the original: names of weights, and values that it cuts off where a node did before."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from runner.reference.lineage.pairs import FingerprintedGraph

QUANTIZED = "_quantized"
"""What ONNX Runtime's quantizer adds to the name of a weight."""
_LIMITING = frozenset({"Relu", "Clip"})


def named_weights(child: FingerprintedGraph, parent: FingerprintedGraph) -> Iterator[tuple[str, str]]:
    """Yield the tensors of a child that are dequantized weights, each with the parent's weight of that name."""
    for node in child.graph.nodes:
        if node.op_type == "DequantizeLinear" and node.inputs[0] in child.graph.initializers:
            name = node.inputs[0].removesuffix(QUANTIZED)
            if name in parent.graph.initializers:
                yield node.outputs[0], name


def limited(parent: FingerprintedGraph, partner: str, read: Collection[str]) -> str:
    """Return what a tensor that was quantized and back is: ``partner``, or what a node after that limits it to.

    A quantizer leaves out such a node, as what it quantizes is cut off there. ``read``: what the parent's nodes read in
    its place.
    """
    node = parent.producer(next(iter(read))) if len(read) == 1 else None
    limits = node is not None and node.op_type in _LIMITING and node.inputs[:1] == (partner,)
    return node.outputs[0] if node and limits else partner
