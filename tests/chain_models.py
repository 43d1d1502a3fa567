"""Models of any length for measurements: a chain of small nodes, with weights in a file beside it if asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_HOLES = 1000


def chain(path: Path, nodes: int, weight_mb: float = 0.0) -> Path:
    """Write a chain of ``nodes`` nodes, and return its path.

    ``weight_mb``: how much all weights take together, as external data; without it no node has any. From 1,000 on they
    are the holes of a file that takes no room, so that all of them are zeros.
    """
    side = int((weight_mb * (1 << 20) / 4 / nodes) ** 0.5)
    made, weights = [], []
    data = path.with_name(f"{path.stem}.data")
    for number in range(nodes):
        names = [f"t{number}"]
        if side:
            weights.append(_weight(number, side, data.name if weight_mb >= _HOLES else None))
            names.append(f"w{number}")
        operator = "MatMul" if side else ("Relu", "Neg", "Abs")[number % 3]
        made.append(helper.make_node(operator, names, [f"t{number + 1}"], f"n{number}"))
    shape = [1, side or 4]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("t0", f"t{nodes}")]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if weight_mb >= _HOLES:
        with data.open("wb") as file:
            file.truncate(nodes * 4 * side * side)
        path.write_bytes(model.SerializeToString())
    else:
        onnx.save(model, path, save_as_external_data=bool(side), location=data.name, size_threshold=0)
    return path


def _weight(number: int, side: int, file: str | None) -> TensorProto:
    """Return a weight, with its numbers, or as the part of a ``file`` that it has."""
    if file is None:
        array = np.random.default_rng(number).standard_normal((side, side), dtype=np.float32) / side**0.5
        return numpy_helper.from_array(array, f"w{number}")
    size = 4 * side * side
    tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[side, side])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", str(number * size)), ("length", str(size))):
        tensor.external_data.add(key=key, value=value)
    return tensor
