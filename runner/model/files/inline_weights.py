"""A model file with its large weights inside, written piece by piece: memory holds the structure and one chunk.

Protobuf puts a message's length before its bytes, and fields may stand in any order, so the weights can come last in
their graph: the lengths are known before the first byte of a weight is read. The numbers of fields: see onnx.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from onnx import ModelProto, TensorProto

from runner.model.graph.protobuf_edits import copy_of
from runner.model.values import tensor_bytes, wire

# numbers of the fields
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9


def pieces(model: ModelProto, read: Callable[[TensorProto], tuple[int, Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield the bytes of ``model``, in which external initializers of the main graph carry their weights themselves.

    They come after the others, in their order. ``read`` gives the length of such a tensor and its raw bytes, in
    pieces. ``model`` is left without its graph.
    """
    graph = model.graph
    heads, weights = [], []
    for tensor in graph.initializer:
        if tensor_bytes.is_external(tensor):
            length, content = read(tensor)
            head = copy_of(tensor)
            tensor_bytes.set_raw(head, None)
            inside = head.SerializeToString() + wire.delimited(_RAW_DATA, length)
            heads.append(wire.delimited(_INITIALIZER, len(inside) + length) + inside)
            weights.append((length, content))
    kept = [tensor for tensor in graph.initializer if not tensor_bytes.is_external(tensor)]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    rest = graph.SerializeToString()
    model.ClearField("graph")
    total = len(rest) + sum(len(head) + length for head, (length, _) in zip(heads, weights))  # noqa: B905 - for 3.8
    yield model.SerializeToString() + wire.delimited(_GRAPH, total) + rest
    for head, (_, content) in zip(heads, weights):  # noqa: B905 - for 3.8
        yield head
        yield from content
