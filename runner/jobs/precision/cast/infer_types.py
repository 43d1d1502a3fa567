"""Element types of all tensors, also behind operators that ONNX does not infer: its own inference stops at those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto, shape_inference

from runner.jobs.precision.cast.layers import declared
from runner.jobs.precision.cast.operator_types import Formals, Schemas
from runner.model.graph import scopes

_MOST_ROUNDS = 32
"""ONNX's inference and ours take turns: each may need what the other found."""


def inferred(model: ModelProto, schemas: Schemas) -> ModelProto:
    """Return the model with the types of its tensors as value_info. Raises whatever native inference raises."""
    for _ in range(_MOST_ROUNDS):
        model = shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=False)
        if not _declared_more(model.graph, {}, schemas):
            break
    return model


def _declared_more(graph: GraphProto, outer: Mapping[str, int], schemas: Schemas) -> bool:
    """Add what schemas say of tensors whose types are not known yet; whether anything was added."""
    types = {**outer, **declared(graph)}
    more = False
    for node in graph.node:
        formals = None if scopes.subgraphs(node) else schemas.of(node)
        for name, dtype in _made(node, formals, types) if formals else ():
            if name and not types.get(name):
                types[name], more = dtype, True
                graph.value_info.add(name=name).type.tensor_type.elem_type = dtype
        for body in scopes.subgraphs(node):
            more = _declared_more(body, types, schemas) or more
    return more


def _made(node: NodeProto, formals: Formals, types: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield what a node makes with its types, as far as they follow from what it reads."""
    bound: dict[str, int] = {}
    for place, name in enumerate(node.input):
        formal = formals.of_input(place)
        if formal and types.get(name):
            bound.setdefault(formal.variable, types[name])
    for place, name in enumerate(node.output):
        formal = formals.of_output(place)
        # a heterogeneous variadic input and an output of the same number do not share a type
        if formal and "#" not in formal.variable and (dtype := formal.only or bound.get(formal.variable, 0)):
            yield name, dtype
