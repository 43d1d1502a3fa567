"""Which precision a model has, told from the file alone: floats of 16 bits, nodes that are quantized, Q/DQ pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.scopes import NameSupply
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
