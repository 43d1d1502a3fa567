"""Nodes of a model in a wider type than its own, between casts: float32 for low precision, float64 for float32."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import NodeProto, TensorProto, TypeProto, defs, helper

from runner.model.graph.edits import Edit, Insert, Make, Read
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import Graph
from runner.model.graph.low_precision import LOW
from runner.model.graph.scopes import NameSupply, names_of

WIDER: Mapping[int, int] = {**dict.fromkeys(LOW, TensorProto.FLOAT), TensorProto.FLOAT: TensorProto.DOUBLE}
"""The next wider type of each that has one."""
NAMES: Mapping[int, str] = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
_STEPS = (1, 2, 4, 8)
"""So many steps further on nodes are raised besides."""
_TYPED = frozenset({"Cast", "CastLike", "Constant", "ConstantOfShape", "EyeLike", "QuantizeLinear", "DequantizeLinear"})
"""Operators that say a type themselves: they are not raised."""


@dataclass
class WiderTypes:
    """Raises nodes of a graph from the types in ``low`` to ``wide``. ``types``: of tensors, as far as they are known.

    ``raised``: after a call of `edits` what each raised tensor is called, by its name in the graph.
    """

    graph: Graph
    types: Mapping[str, TypeProto]
    low: frozenset[int] = LOW
    wide: int = TensorProto.FLOAT
    supply: NameSupply | None = None
    raised: dict[str, str] = field(default_factory=dict, init=False)

    @cached_property
    def _names(self) -> NameSupply:
        return self.supply or NameSupply(names_of(self.graph.model))

    def grown(self, nodes: Collection[int]) -> Iterator[tuple[int, ...]]:
        """Yield these nodes; then these and more that read what they make, and all that look like them.

        A value that is beyond the range of its type has to come down before it is cast back.
        """
        wider = [frozenset(nodes)]
        for _ in range(max(_STEPS)):
            made = [name for index in wider[-1] for name in self.graph.nodes[index].outputs]
            wider.append(wider[-1].union(*(self.graph.readers.get(name, ()) for name in made)))
        alike = frozenset(nodes).union(*instances(self.graph, nodes, self.types))
        for several in dict.fromkeys((wider[0], *(wider[steps] for steps in _STEPS), alike)):
            if any(map(self.is_low, several)):
                yield tuple(sorted(several))

    def is_low(self, index: int) -> bool:
        """Whether a node reads and makes a low precision, and can as well read and make the wider one."""
        node, proto = self.graph.nodes[index], self.graph.protos[index]
        low = all(any(self.dtype(name) in self.low for name in names) for names in (proto.input, node.outputs))
        return low and not node.nests and node.op_type not in _TYPED

    def edits(self, places: Sequence[int]) -> Iterator[Edit]:
        """Yield what casts all that nodes read from others to the wider type, and what they make back for others."""
        wide = self.raised = {}
        for index in places:
            proto, low = self.graph.protos[index], self.is_low(index)
            if not low and proto.op_type != "Cast":  # which takes any type
                continue
            reader = self.graph.nodes[index].outputs[0]
            if not low and self.dtype(reader) in self.low and self.dtype(proto.input[0]) == self.wide:
                wide[reader] = proto.input[0]  # what it would round is there
                continue
            for place, name in enumerate(proto.input):
                if name in [*proto.input][:place]:
                    continue
                if low and name not in wide and self.dtype(name) in self.low and self._takes(proto, place):
                    cast = self._names.fresh(f"{name}__{NAMES[self.wide]}")
                    yield Insert(helper.make_node("Cast", [name], [cast], name=cast, to=self.wide), before=reader)
                    yield Read(reader, name, cast)
                elif name in wide:
                    yield Read(reader, name, wide[name])
            for name in self.graph.nodes[index].outputs if low else ():
                if (dtype := self.dtype(name)) in self.low:
                    wide[name] = self._names.fresh(f"{name}__raised")
                    yield Make(name, wide[name])
                    cast = f"{wide[name]}__low"
                    yield Insert(helper.make_node("Cast", [wide[name]], [name], name=cast, to=dtype), behind=wide[name])

    def _takes(self, node: NodeProto, place: int) -> bool:
        """Whether an operator takes the wider type for an input; the scales of a Resize are always float32."""
        try:
            inputs = defs.get_schema(node.op_type, self.graph.opset(), node.domain).inputs
        except defs.SchemaError:
            return True
        kind = "double" if self.wide == TensorProto.DOUBLE else "float"
        return f"tensor({kind})" in inputs[min(place, len(inputs) - 1)].types

    def dtype(self, name: str) -> int:
        """Return the element type of a tensor, 0 where it is not known."""
        held = self.graph.initializers.get(name)
        if isinstance(held, TensorProto):
            return int(held.data_type)
        return int(self.types[name].tensor_type.elem_type) if name in self.types else 0
