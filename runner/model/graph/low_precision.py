"""Which precision a model has, told from the file: low floats, quantized nodes, Q/DQ pairs; nodes in a wider type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    defs,
    helper,
    numpy_helper,
)

from runner.model.graph import scopes
from runner.model.graph.edits import Edit, copy_of, insert, rename
from runner.model.graph.find_pattern import instances
from runner.model.graph.graph_index import Graph, initializers_of
from runner.model.graph.scopes import NameSupply, names_of
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import BY_NUMBER
from runner.text import listed

LOW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The floats of low precision."""
NARROW = frozenset(
    {TensorProto.INT16, TensorProto.UINT16}
    | {one.number for one in BY_NUMBER.values() if 0 < one.bits <= 8 and one.name != "bool"}
)
"""The types of what is quantized."""
QUANTIZING = re.compile(r"Quantize|^QLinear|Integer|^MatMul(NBits|Bnb4|FpQ4)|^Q(Attention|Embed|Gemm|MoE|Ordered)")
_CHOOSING = frozenset({"to", "dtype", "output_dtype"})
"""Attributes by which a node chooses the type of what it gives."""


def has_low_floats(model: ModelProto, types: Iterable[TypeProto] = ()) -> bool:
    """Whether anything in a model is in float16 or bfloat16: a tensor that it holds or declares, or a node chooses.

    ``types``: what is known of its tensors besides. A runtime may go on with float32 from node to node and round only
    what it hands out: then a piece's edge is seen in the values, and where something overflows it is seen in all that
    follow.
    """
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    declared = {one.tensor_type.elem_type for one in (*(value.type for value in values), *types)}
    held = {one.data_type for one in (*scopes.initializers(model), *scopes.inline_tensors(model))}
    nodes = scopes.all_nodes(model.graph.node)
    chosen = {one.i for node in nodes for one in node.attribute if one.name in _CHOOSING}
    return not LOW.isdisjoint(declared | held | chosen)


def is_quantized(node: NodeProto, types: Mapping[str, int]) -> bool:
    """Whether a node quantizes, or computes with what is quantized. ``types``: element types, as far as known."""
    if QUANTIZING.search(node.op_type):
        return True
    return any(types.get(name) in NARROW for name in (*scopes.reads(node), *node.output))


def quantized_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield the quantized nodes of a model, nested ones too."""
    types = {tensor.name: tensor.data_type for tensor in scopes.initializers(model)}
    return (node for node in scopes.all_nodes(model.graph.node) if is_quantized(node, types))


def refused_by_tensorrt(model: ModelProto) -> list[str]:
    """Return what TensorRT's parser does not take: operators, and what reads and makes integers otherwise than it."""
    held, found = {one.name: one for one in scopes.initializers(model)}, set[str]()
    for node in scopes.all_nodes(model.graph.node):
        if not is_quantization(node):
            contrib = node.domain.startswith("com.microsoft") and not defs.has(node.op_type)
            found |= {node.op_type} if contrib or QUANTIZING.search(node.op_type) else set()
            continue
        stored, zero = (held.get(name) for name in (node.input[0], (*node.input, "", "")[2]))
        found |= {"int32 in Q/DQ nodes"} if stored and stored.data_type == TensorProto.INT32 else set()
        if zero and not tensor_bytes.is_external(zero):
            unsigned = zero.data_type in (TensorProto.UINT8, TensorProto.UINT16)
            found |= {"uint8" if unsigned else "zero points other than 0"} if unsigned or _moves(zero) else set()
    return sorted(found)


def _moves(zero: TensorProto) -> bool:
    return bool(numpy_helper.to_array(zero).astype("float32").any())


# Q/DQ pairs: where quantization stands between layers, and what a layer reads without it.

Limits = tuple[float | None, float | None]
"""What a tensor is limited to: least and largest value; None: no limit."""

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_NEVER_NEGATIVE = ("Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus")
_ACTIVATIONS = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)


@dataclass(frozen=True)
class QdqPair:
    """What a DequantizeLinear makes. ``source``: the float tensor that its pair quantizes, None: a constant is stored.

    ``constant``: the stored tensor. ``ends``: what the pair limits a tensor to, if nothing below zero survives it and
    somebody may rely on that: quantizers leave out a Relu or a Clip in front of such a pair.
    """

    source: str | None
    constant: TensorProto | None = None
    ends: Limits = (None, None)


def is_quantization(node: NodeProto) -> bool:
    """Whether a node quantizes or dequantizes linearly."""
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and node.domain in _DOMAINS


def pairs_of(graph: GraphProto) -> list[dict[str, QdqPair]]:
    """Return for each graph (a nested one after its outer one, in reading order) its pairs, by what they make.

    Only pairs are: what comes quantized from anywhere else has no float to go back to. A pair behind a pair stands for
    what the first one quantizes.
    """
    found: list[dict[str, QdqPair]] = []

    def visit(
        graph: GraphProto,
        makers: Mapping[str, NodeProto],
        constants: Mapping[str, TensorProto | SparseTensorProto],
        outer: Mapping[str, QdqPair],
    ) -> None:
        own = {name: node for node in graph.node for name in node.output}
        makers, constants = {**makers, **own}, {**constants, **initializers_of(graph)}
        pairs: dict[str, QdqPair] = {}
        found.append(pairs)
        for node in graph.node:
            pair = _pair(node, makers, constants)
            if pair is not None:
                above = pairs.get(pair.source or "") or outer.get(pair.source or "")
                pairs[node.output[0]] = above or pair
        for node in graph.node:
            for nested in scopes.subgraphs(node):
                visit(nested, makers, constants, {**outer, **pairs})

    visit(graph, {}, {}, {})
    return found


def _pair(
    node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, TensorProto | SparseTensorProto]
) -> QdqPair | None:
    if not is_quantization(node) or node.op_type != "DequantizeLinear":
        return None
    maker = makers.get(node.input[0])
    if maker is not None and is_quantization(maker) and maker.op_type == "QuantizeLinear":
        above = makers.get(maker.input[0])
        open_below = above is None or above.op_type not in _NEVER_NEGATIVE
        return QdqPair(maker.input[0], ends=ends_of(maker, constants) if open_below else (None, None))
    stored = constants.get(node.input[0])
    if isinstance(stored, TensorProto) and all(name in constants for name in node.input if name):
        return QdqPair(None, stored)
    return None


def ends_of(
    node: NodeProto, constants: Mapping[str, TensorProto | SparseTensorProto], *, whole: bool = False
) -> Limits:
    """Return what a QuantizeLinear limits to, if it makes the least integer of zero; ``whole``: whatever it makes."""
    scale = constants.get(node.input[1])
    zero = constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    kinds = [attribute.i for attribute in node.attribute if attribute.name == "output_dtype" and attribute.i]
    kind = zero.data_type if isinstance(zero, TensorProto) else (kinds or [TensorProto.UINT8])[0]
    if kind not in _ACTIVATIONS or not isinstance(scale, TensorProto):
        return None, None
    if any(isinstance(one, TensorProto) and tensor_bytes.is_external(one) for one in (scale, zero)):
        return None, None  # `take_in_limits` was not asked to read them
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    zeros = numpy_helper.to_array(zero).astype("int64").reshape(-1) if isinstance(zero, TensorProto) else np.zeros(1)
    if not whole and any(int(one) != limits.min for one in zeros):
        return None, None
    steps = numpy_helper.to_array(scale).astype("float64").reshape(-1)
    ends = [(steps * (end - zeros)).tolist() for end in (int(limits.min), int(limits.max))]
    return min(ends[0], default=0.0), max(ends[1], default=0.0)


_MOVED_OVER = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""ONNX Runtime puts a pair behind these where one stands in front of them."""


def apart(nodes: Iterable[NodeProto], given: GraphProto, supply: NameSupply) -> list[NodeProto]:
    """Return nodes of which those that ``given`` has not read no float that a DequantizeLinear makes of activations.

    They read Cast, Sub and Mul of its integers. ONNX Runtime would quantize them and their weights again, also where
    the pair is to be moved over nodes between, or refuse the model (1.32: int8 from opset 21 on).
    """
    nodes, constants = list(nodes), initializers_of(given)
    makers = {name: node for node in nodes for name in node.output}
    known = {(node.op_type, *node.input, *node.output) for node in given.node}
    instead, made = dict[str, str](), list[NodeProto]()

    def read(name: str, reader: str) -> str:
        node = makers.get(name)
        if name in instead or node is None or node.domain not in _DOMAINS:
            return instead.get(name, name)
        # a MatMul and its bias become a Gemm behind a Reshape
        if node.op_type in _MOVED_OVER or (node.op_type, reader) == ("MatMul", "Add"):
            first = read(node.input[0], node.op_type)
            if first != node.input[0]:
                copy = copy_of(node)
                copy.name = copy.output[0] = instead[name] = supply.fresh(f"{name}_apart")
                copy.input[0] = first
                del copy.output[1:]
                made.append(copy)
        elif node.op_type == "DequantizeLinear" and node.input[0] in makers:
            scale = constants.get(node.input[1])
            if isinstance(scale, TensorProto) and tensor_bytes.elements(scale.dims) == 1:
                made.extend(dequantizing(node.input, scale.data_type, name, supply))
                instead[name] = made[-1].output[0]
        return instead.get(name, name)

    for node in nodes:
        if (node.op_type, *node.input, *node.output) not in known and not is_quantization(node):
            node.input[:] = [read(name, node.op_type) for name in node.input]
        made.append(node)
    return made


def dequantizing(read: Sequence[str], dtype: int, name: str, supply: NameSupply) -> list[NodeProto]:
    """Return nodes that do what a DequantizeLinear does. ``read``: integers, a scale, and a zero point if there is one.

    ``dtype``: of what the last one makes. ``name``: what theirs begin with.
    """
    wide, zero, less, value = (supply.fresh(f"{name}_{end}") for end in ("wide", "zero", "less", "value"))
    integers, scale, *offset = (one for one in read if one)
    made = [helper.make_node("Cast", [integers], [wide], name=wide, to=dtype)]
    if offset:
        made.append(helper.make_node("Cast", offset, [zero], name=zero, to=dtype))
        made.append(helper.make_node("Sub", [wide, zero], [less], name=less))
    return [*made, helper.make_node("Mul", [made[-1].output[0], scale], [value], name=value)]


def without_unused(nodes: Iterable[NodeProto], wanted: Collection[str]) -> list[NodeProto]:
    """Return the nodes without quantization that nobody reads any more; ``wanted``: read from outside."""
    kept: list[NodeProto] = []
    read = set(wanted)
    for node in reversed(list(nodes)):
        if is_quantization(node) and not read & set(node.output):
            continue
        read.update(scopes.reads(node))
        kept.append(node)
    return kept[::-1]


def others_than_pairs(model: ModelProto) -> list[NodeProto]:
    """Return the quantized nodes that are no part of Q/DQ pairs, and do not read one."""
    pairs = {name for one in pairs_of(model.graph) for name in one}
    makers = {name: node for node in scopes.all_nodes(model.graph.node) for name in node.output}
    quantized = {makers[name].input[0] for name in pairs if name in makers}
    others = (node for node in quantized_nodes(model) if not {*node.output} & (pairs | quantized))
    return [node for node in others if not pairs or QUANTIZING.search(node.op_type)]


def kinds(nodes: Sequence[NodeProto]) -> str:
    """Say of which operators nodes are, and how many of each."""
    counts = Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes)
    return listed([f"{count} {kind}" for kind, count in counts.items()])


# Nodes in a wider type than their own, between casts: float32 for low precision, float64 for float32.

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
                    yield insert(helper.make_node("Cast", [name], [cast], name=cast, to=self.wide), before=reader)
                    yield rename(reader, name, cast)
                elif name in wide:
                    yield rename(reader, name, wide[name])
            for name in self.graph.nodes[index].outputs if low else ():
                if (dtype := self.dtype(name)) in self.low:
                    wide[name] = self._names.fresh(f"{name}__raised")
                    yield rename(name, name, wide[name], makes=True)
                    cast = f"{wide[name]}__low"
                    yield insert(helper.make_node("Cast", [wide[name]], [name], name=cast, to=dtype), behind=wide[name])

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
        return self.graph.dtype(name, self.types)
