"""Values as ONNX Runtime holds them, of every type that a graph can take or give."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

import ctypes
from typing import Any, Dict, List

import numpy as np

from runner.backends import numpy_arrays
from runner.backends.errors import StageError
from runner.backends.tensor_files import Structure, Tensor, type_text
from runner.backends.tensor_files import parse_structure as parse
from runner.model.values.dtypes import BY_NUMBER, STRING

# the opset in which an element type came (13: or before) -> the IR version of that time
_IR_VERSIONS = {13: 8, 19: 9, 21: 10, 23: 11, 24: 12, 25: 13}


def to_ort_value(value: Any, structure: Structure | None) -> Any:
    """Return a value, which is not None, as an OrtValue on the CPU, a map as a dict.

    ``structure``: what the model declares. Raises StageError (setup) for what this version cannot be fed with.
    """
    while structure is not None and structure[0] == "optional":
        structure = structure[1]
    if isinstance(value, Tensor):
        return _ort_value(value)
    if isinstance(value, dict) or structure is None:
        return numpy_arrays.to_python(value)
    return _sequence(value, structure)


def from_ort_value(value: Any, structure: Structure | None) -> Any:
    """Return the tensor of an output, (value, structure) for what is none, or the reason why neither can be had.

    ``structure``: as the session tells it.
    """
    if not value.has_value():
        return (None, structure) if structure and structure[0] == "optional" else "there is no value"
    if value.is_tensor():
        found = _tensor(value)
        optional = structure and structure[0] == "optional" and isinstance(found, Tensor)
        return (found, structure) if optional else found
    inner = parse(value.data_type())
    if inner is None:
        return f"no tensor but {value.data_type()}"
    return from_python(_python(value, inner), structure or inner)


def from_python(value: Any, structure: Structure | None) -> Any:
    """Return what ``from_ort_value`` does, of a value as ``InferenceSession.run`` returns it."""
    if structure is None:
        return f"no tensor but {type(value).__name__}"
    try:
        found = numpy_arrays.from_python(value, structure)
    except TypeError as error:
        return str(error)
    return found if structure[0] == "tensor" else (found, structure)


def _run(graph: Any, opset: int, feeds: Dict[str, Any], python: bool = False) -> Any:
    """Run a helper graph and return its only output, as an OrtValue or as Python's own."""
    import onnx
    import onnxruntime

    imports = [
        onnx.OperatorSetIdProto(domain="", version=opset),
        onnx.OperatorSetIdProto(domain="ai.onnx.ml", version=1),
    ]
    model = onnx.ModelProto(ir_version=_IR_VERSIONS[opset], graph=graph, opset_import=imports)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return (session.run if python else session.run_with_ort_values)(None, feeds)[0]


def _python(value: Any, structure: Structure) -> Any:
    """Return a sequence or a map as Python's own: a graph that hands out what it is fed does it.

    The arrays may lie in the memory of ``value``, which has to live as long.
    """
    import onnx

    from runner.model.values.value_types import type_of

    info = onnx.helper.make_value_info("value", type_of(structure))
    return _run(onnx.GraphProto(name="g", input=[info], output=[info]), 13, {"value": value}, python=True)


def _sequence(items: List[Any], structure: Structure) -> Any:
    """Return a sequence as an OrtValue: a graph of one node makes it, out of tensors of any type that it takes."""
    import onnx
    import onnxruntime

    from runner.model.values.value_types import type_of

    inner = structure[1]
    feeds = {f"item{at}": to_ort_value(item, inner) for at, item in enumerate(items)}
    inputs = [onnx.helper.make_value_info(name, type_of(inner)) for name in feeds]
    if feeds:
        node = onnx.helper.make_node("SequenceConstruct", list(feeds), ["value"])
    else:
        node = onnx.helper.make_node("SequenceEmpty", [], ["value"], dtype=inner[1])
    output = onnx.helper.make_value_info("value", type_of(structure))
    try:
        found = _run(onnx.GraphProto(name="g", node=[node], input=inputs, output=[output]), 13, feeds)
        # it may share the memory of its tensors
        found.fed = feeds
        return found
    except Exception as error:
        message = f"onnxruntime {onnxruntime.__version__} cannot be fed with {type_text(structure)}: {error}"
        raise StageError("setup", "FeedNotSupported", message) from error


def _ort_value(tensor: Tensor) -> Any:
    """Return the tensor as an OrtValue on the CPU, also of types that numpy lacks."""
    import onnxruntime

    kind = tensor.kind
    if kind.native and kind.number != STRING:
        return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.array())
    make = getattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type", None)
    if kind.bits >= 8 and make is not None:
        return make(tensor.array(), kind.number)
    return _ort_value_by_model(tensor)


def _ort_value_by_model(tensor: Tensor) -> Any:
    """Return an OrtValue that a model of one initializer gives out: the way that every version has for every type."""
    import onnx
    import onnxruntime

    kind = tensor.kind
    proto = onnx.TensorProto(dims=tensor.shape, data_type=kind.number, name="value")
    if kind.number == STRING:
        proto.string_data.extend(tensor.strings)
    else:
        proto.raw_data = tensor.raw.tobytes()
    output = onnx.helper.make_tensor_value_info("value", kind.number, list(tensor.shape))
    opset = {21: 21, 22: 21, 23: 23, 24: 24, 25: 25, 26: 25}.get(kind.number, 19 if kind.number >= 17 else 13)
    try:
        return _run(onnx.GraphProto(name="g", initializer=[proto], output=[output]), opset, {})
    except Exception as error:
        message = f"onnxruntime {onnxruntime.__version__} cannot be fed with {kind.name}: {error}"
        raise StageError("setup", "FeedNotSupported", message) from error


def _tensor(value: Any) -> Any:
    """Return a tensor, or the reason why there is none."""
    structure = parse(value.data_type())
    if structure is None:
        return f"an element type that is not known here: {value.data_type()}"
    kind = BY_NUMBER[structure[1]]
    shape = tuple(int(size) for size in value.shape())
    tensor = Tensor(kind, shape)
    if kind.number == STRING:
        try:
            texts = value.numpy().reshape(-1)
        except UnicodeDecodeError as error:
            return f"strings that are no UTF-8: {error}"
        return Tensor(kind, shape, None, tuple(str(text).encode(errors="surrogateescape") for text in texts))
    if value.device_name().lower() != "cpu":
        array = np.ascontiguousarray(value.numpy())
        return Tensor(kind, shape, array.reshape(-1).view(np.uint8))
    size = kind.bytes(tensor.count)
    if size == 0:
        return Tensor(kind, shape, np.empty(0, np.uint8))
    # the bytes where they lie: numpy has no type for some of them. The array holds on to the value
    unused = size * 8 - tensor.count * kind.bits
    buffer: Any = (ctypes.c_uint8 * size).from_address(value.data_ptr())
    buffer.owner = value
    raw = np.frombuffer(buffer, np.uint8)
    if unused:
        # kernels leave what they like in the unused bits of the last byte: equal tensors are to be equal files
        raw = raw.copy()
        raw[-1] &= 0xFF >> unused
    return Tensor(kind, shape, raw)
