"""All float nodes of a model, and why some of them cannot be searched (no low kind of the operator, unknown types)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeProto, TypeProto

from runner.jobs.precision.cast.layers import (
    Contrib,
    Layer,
    Pair,
    TypedGraph,
    Types,
    is_plumbing,
    levels,
    node_label,
    nodes_in_order,
    schemas_of,
)
from runner.jobs.precision.cast.operator_types import AGNOSTIC, TABLES, WIDE, Schemas
from runner.jobs.precision.cast.qdq_pairs import is_quantization
from runner.model.graph import scopes
from runner.model.values.dtypes import BY_NUMBER


@dataclass(frozen=True)
class FloatNode:
    """A node that reads or makes floats of the pair.

    ``index``: of its layer; None: its type is the same whatever is raised. ``number``: of its graph. ``high``: whether
    it stays in the high type, where it is no layer; ``why``: it is no layer.
    """

    path: str
    number: int
    node: NodeProto
    index: int | None
    high: bool
    why: str

    @property
    def op(self) -> str:
        """The operator, with the domain of one that is not ONNX's."""
        domain = scopes.domain_of(self.node.domain)
        return f"{domain}.{self.node.op_type}" if domain else self.node.op_type

    def is_high(self, raised: frozenset[int]) -> bool:
        """Whether it is in the high type where these layers are raised."""
        return self.high if self.index is None else self.index in raised


def float_nodes(
    model: ModelProto, types: Mapping[str, TypeProto], pair: Pair, layers: tuple[Layer, ...], contrib: Contrib
) -> tuple[FloatNode, ...]:
    """Return the float nodes of all graphs, in executable order.

    A Cast from one type of the pair to the other is none, nor is what takes floats of any type without computing with
    them: Shape, Size, and a Cast to another kind.
    """
    schemas, numbers = schemas_of(model, contrib), {layer.key: index for index, layer in enumerate(layers)}

    def float_node(level: TypedGraph, place: int, node: NodeProto) -> FloatNode | None:
        index = numbers.get((level.number, place))
        kinds = {level.types.get(name, -1) for name in (*node.input, *node.output) if name}
        if index is None and (_takes_any(node, level.types, pair) or not _is_float(node, kinds, level.types, pair)):
            return None
        why = "" if index is not None else _why(node, kinds, schemas, pair)
        high = pair.high in kinds or not kinds & {pair.low}
        return FloatNode(level.prefix + node_label(node, place), level.number, node, index, high, why)

    every = nodes_in_order(levels(model, types))
    return tuple(found for one in every if (found := float_node(*one)) is not None)


def _takes_any(node: NodeProto, types: Types, pair: Pair) -> bool:
    if scopes.domain_of(node.domain):
        return False
    away = node.op_type == "Cast" and types.get(node.output[0]) not in pair
    return node.op_type in AGNOSTIC or away or is_plumbing(node, types, pair)


def _is_float(node: NodeProto, kinds: set[int], types: Types, pair: Pair) -> bool:
    """Whether a node has floats of the pair, or may have: what it makes is not known."""
    return bool(kinds & {pair.low, pair.high}) or any(name and name not in types for name in node.output)


def _why(node: NodeProto, kinds: set[int], schemas: Schemas, pair: Pair) -> str:
    low, high = (BY_NUMBER[dtype].numpy_name for dtype in (pair.low, pair.high))
    formals = schemas.of(node)
    if is_quantization(node):
        return "it quantizes: its scales have the type of the model"
    if formals is None:
        return "no schema of its operator is known"
    if -1 in kinds:
        return "the types of its tensors are not known"
    if 0 in kinds:
        return "it handles a sequence or an optional, whose tensors have a type of their own"
    every = (*formals.inputs, *formals.outputs)
    if node.op_type in TABLES | WIDE or not any({pair.low, pair.high} <= formal.floats for formal in every):
        return f"its operator has no {low} kind"
    if pair.low in kinds:
        return "it is in both types as it is"
    return f"it is in {high} beside others that are in {low} as they are"
