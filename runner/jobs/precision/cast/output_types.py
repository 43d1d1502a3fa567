"""Attributes of a node that state an output type (`to`, `dtype`), and the types in which it reads and makes tensors."""

from __future__ import annotations

from onnx import AttributeProto, NodeProto, helper, numpy_helper

from runner.jobs.precision.cast.convert_weights import convert
from runner.jobs.precision.cast.layers import Pair, Types
from runner.jobs.precision.cast.operator_types import STASHING, Formals

# attributes that say which type comes out
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")
# operators whose type is float where it is not said
_FLOAT_BY_DEFAULT = ("RandomNormal", "RandomUniform", "HannWindow", "HammingWindow", "BlackmanWindow")


def typed(formals: Formals | None, place: int, wanted: int, native: int) -> int:
    """Return the type in which a node reads an input."""
    formal = formals.of_input(place) if formals else None
    return wanted if formal and wanted in formal.floats else native


def made_in(node: NodeProto, formals: Formals | None, place: int, wanted: int, native: int) -> int:
    """Return the type in which a node makes an output."""
    if place and node.op_type in STASHING:
        return native
    formal = formals.of_output(place) if formals else None
    return wanted if formal and wanted in formal.floats else native


def retype(node: NodeProto, types: Types, pair: Pair, wanted: int) -> None:
    """Make attributes that say which type comes out say the wanted one."""
    if types.get(node.output[0] if node.output else "") not in pair:
        return
    seen = False
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in pair:
            attribute.i, seen = wanted, True
        elif attribute.name == "value" and attribute.type == AttributeProto.TENSOR and attribute.t.data_type in pair:
            array = numpy_helper.to_array(attribute.t)
            values, _ = convert(array, wanted, alone=array.size == 1)
            dims = list(attribute.t.dims)
            attribute.t.CopyFrom(helper.make_tensor(attribute.t.name, wanted, dims, values.tobytes(), raw=True))
            seen = True
    if seen:
        return
    if node.op_type in _FLOAT_BY_DEFAULT:
        key = "dtype" if node.op_type.startswith("Random") else "output_datatype"
        node.attribute.append(helper.make_attribute(key, wanted))
    elif node.op_type == "ConstantOfShape":
        zero = helper.make_tensor("value", wanted, [1], [0.0])
        node.attribute.append(helper.make_attribute("value", zero))
