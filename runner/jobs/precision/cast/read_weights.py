"""Reading the values of tensors that may lie in a file beside their model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, numpy_helper

from runner.jobs.precision.cast.qdq_pairs import is_quantization
from runner.model.files.external_data import chunks
from runner.model.graph import scopes
from runner.model.values import tensor_bytes


def array_of(tensor: TensorProto, folder: Path) -> Any:
    """Return the values of a tensor; ``folder``: where the file lies that an external one refers to.

    Raises OSError where that cannot be read.
    """
    if not tensor_bytes.is_external(tensor):
        return numpy_helper.to_array(tensor)
    whole = TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    tensor_bytes.set_raw(whole, _read(tensor, folder))
    return numpy_helper.to_array(whole)


def take_in_limits(model: ModelProto, folder: Path) -> None:
    """Store in the model, in place, by what its QuantizeLinear nodes scale: what they limit a tensor to is asked often.

    Scales of many channels lie outside otherwise.
    """
    wanted = {
        name
        for node in scopes.all_nodes(model.graph.node)
        if is_quantization(node) and node.op_type == "QuantizeLinear"
        for name in node.input[1:]
    }
    for tensor in scopes.initializers(model):
        if tensor.name in wanted and tensor_bytes.is_external(tensor):
            tensor_bytes.set_raw(tensor, _read(tensor, folder))


def _read(tensor: TensorProto, folder: Path) -> bytes:
    location, offset, _ = tensor_bytes.reference(tensor)
    length = tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0
    return b"".join(chunks(folder / Path(location).name, offset, length))
