"""Models whose inputs are of every kind that can be fed: what hostile input files are read for."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, TypeProto, helper

_FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", None])


def _model(kind: TypeProto, second: TypeProto | None = None) -> ModelProto:
    inputs = [helper.make_value_info("x", kind), *([helper.make_value_info("z", second)] if second else [])]
    nodes = [helper.make_node("Identity", [one.name], [f"{one.name}_out"]) for one in inputs]
    outputs = [helper.make_value_info(f"{one.name}_out", one.type) for one in inputs]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


TARGETS = {
    "fixed": _model(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])),
    "open": _model(_FLOATS),
    "any rank": _model(helper.make_tensor_type_proto(TensorProto.FLOAT, None)),
    "two": _model(_FLOATS, helper.make_tensor_type_proto(TensorProto.INT64, [None])),
    "strings": _model(helper.make_tensor_type_proto(TensorProto.STRING, [None])),
    "bfloat16": _model(helper.make_tensor_type_proto(TensorProto.BFLOAT16, [None, None])),
    "int4": _model(helper.make_tensor_type_proto(TensorProto.INT4, None)),
    "sequence": _model(helper.make_sequence_type_proto(_FLOATS)),
    "optional": _model(helper.make_optional_type_proto(_FLOATS)),
    "nested": _model(helper.make_sequence_type_proto(helper.make_sequence_type_proto(_FLOATS))),
}
