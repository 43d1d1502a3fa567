"""A graph as arrays and bytes: what a cut asks of thousands of nodes is answered for all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.model.values.wire import delimited

if TYPE_CHECKING:
    from onnx import NodeProto

    from runner.model.graph.graph_index import Node

_NODE_FIELD = 1  # the number of the field of nodes in a GraphProto, see onnx.proto


@dataclass(frozen=True, eq=False)
class FlatGraph:
    """All elements of a graph, flat.

    ``names``: what they read, in their order. ``readers``, ``producers``: arrays of the element that reads each of
    these names, and of the one that gives it (-1: none does). ``ends``: of each element, whether it gives an output of
    the graph, or nothing that another element reads; False at last, of no element. ``content``: the elements as fields
    of a serialized GraphProto; ``starts``: where each begins there, and where the last one ends.
    """

    names: tuple[str, ...]
    readers: Any
    producers: Any
    ends: Any
    content: bytes
    starts: Any

    def outside(self, indices: Sequence[int]) -> list[str]:
        """Return what these elements read and do not give themselves, in the order in which they do."""
        kept = self._mask(indices)
        return [self.names[at] for at in np.flatnonzero(kept[self.readers] & ~kept[self.producers]).tolist()]

    def border(self, indices: Sequence[int]) -> list[int]:
        """Return those of these elements that others read, that end the graph, or that nobody reads; ascending."""
        kept = self._mask(indices)
        border = self.ends.copy()
        border[self.producers[~kept[self.readers]]] = True
        return list(np.flatnonzero(border & kept).tolist())

    def serialized(self, indices: Sequence[int]) -> Iterator[bytes]:
        """Yield these elements, which ascend, as fields of a GraphProto: those that follow on each other together."""
        array = np.asarray(indices, np.int64)
        begins = np.flatnonzero(np.diff(array, prepend=-2) != 1).tolist()
        for begin, after in zip(begins, [*begins[1:], len(indices)]):  # noqa: B905 - equally long; for 3.8
            yield self.content[self.starts[indices[begin]] : self.starts[indices[after - 1] + 1]]

    def _mask(self, indices: Sequence[int]) -> Any:
        """Return an array that says of each element whether it is one of these; the last entry, -1: of no element."""
        kept = np.zeros(len(self.starts), bool)
        kept[list(indices)] = True
        return kept


def flattened(
    nodes: Sequence[Node], protos: Sequence[NodeProto], giving: Mapping[str, int], outputs: Iterable[str]
) -> FlatGraph:
    """Return elements flat. ``giving``: which of them gives a tensor; ``outputs``: those of the graph."""
    names = tuple(name for node in nodes for name in node.inputs)
    readers = np.fromiter((node.index for node in nodes for _ in node.inputs), np.int64, len(names))
    producers = np.fromiter((giving.get(name, -1) for name in names), np.int64, len(names))
    ends = np.ones(len(nodes) + 1, bool)
    ends[producers] = False
    ends[[giving[name] for name in outputs if name in giving]] = True
    ends[-1] = False
    fields = []
    for proto in protos:
        content = proto.SerializeToString()
        fields.append(delimited(_NODE_FIELD, len(content)) + content)
    return FlatGraph(names, readers, producers, ends, b"".join(fields), np.cumsum([0, *map(len, fields)]))
