"""Initializers in another float type, made once a run: in a worker, streamed, into a file beside the others.

A finite value beyond the range of the type becomes the largest that it has (a mask of -3.4e38 goes on being a mask,
where an infinity would make a NaN of a row that is masked whole); what is too small becomes zero. Both are counted. A
number that stands alone and is too small becomes the least that the type has: it is there so that something is not
zero (the epsilon of a norm).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from runner.model.files.external_data import chunks
from runner.model.files.weights_file import WeightsWriter
from runner.model.graph import scopes
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS

_PIECE = 1 << 22


def weights_name(dtype: int) -> str:
    """Return the name of the file of large initializers in this type."""
    return f"weights.{FLOATS[dtype].short}.bin"


def convert_weights(args: Mapping[str, Any]) -> dict[str, Any]:
    """Convert all initializers of one float type of the structure at ``args["model"]`` (in its store's folder).

    ``source`` and ``target``: element types. ``out``: a ModelProto file whose initializers are the converted ones, in
    the order of the graphs, named ``NUMBER/NAME`` after their graph; large ones lie in `weights_name` in that folder.
    Returns ``clamped``, ``flushed`` and ``lifted`` (single numbers that were too small): {name: how many values}.
    """
    source, target = int(args["source"]), int(args["target"])
    path = Path(args["model"])
    model = ModelProto.FromString(path.read_bytes())
    found = ModelProto()
    clamped: dict[str, int] = {}
    flushed: dict[str, int] = {}
    lifted: dict[str, int] = {}
    with WeightsWriter(path.parent / weights_name(target)) as writer:
        for number, graph in enumerate(scopes.graphs_below(model.graph)):
            for tensor in graph.initializer:
                if tensor.data_type != source:
                    continue
                other = found.graph.initializer.add(name=f"{number}/{tensor.name}", data_type=target, dims=tensor.dims)
                counts = _convert(tensor, other, path.parent, writer, source, target)
                small = lifted if tensor_bytes.elements(tensor.dims) == 1 else flushed
                for table, count in zip((clamped, small), counts, strict=True):
                    if count:
                        table[tensor.name] = table.get(tensor.name, 0) + count
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {"clamped": clamped, "flushed": flushed, "lifted": lifted}


def _convert(
    tensor: TensorProto, other: TensorProto, folder: Path, writer: WeightsWriter, source: int, target: int
) -> tuple[int, int]:
    counts = np.zeros(2, np.int64)
    alone = tensor_bytes.elements(tensor.dims) == 1

    def pieces() -> Any:
        for piece in _pieces(tensor, folder):
            values = np.frombuffer(piece, helper.tensor_dtype_to_np_dtype(source))
            converted, count = convert(values, target, alone=alone)
            counts[:] += count
            yield converted.tobytes()

    length = tensor_bytes.byte_size(target, tensor.dims) or 0
    if tensor_bytes.is_external(tensor):
        location, offset, _ = tensor_bytes.reference(tensor)
        region = (folder / location, offset, length)
        tensor_bytes.set_reference(other, weights_name(target), writer.add(pieces(), length, None, region), length)
    else:
        tensor_bytes.set_raw(other, b"".join(pieces()))
    return int(counts[0]), int(counts[1])


def _pieces(tensor: TensorProto, folder: Path) -> Any:
    if not tensor_bytes.is_external(tensor):
        yield tensor_bytes.raw_bytes(tensor) or b""
        return
    location, offset, _ = tensor_bytes.reference(tensor)
    length = tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0
    for start in range(0, length, _PIECE):
        yield b"".join(chunks(folder / location, offset + start, min(_PIECE, length - start)))


def convert(values: Any, target: int, *, alone: bool = False) -> tuple[Any, tuple[int, int]]:
    """Return float values in another type, and how many were too large for it and how many too small.

    ``alone``: they are all of a tensor, one number, which does not become zero.
    """
    dtype = helper.tensor_dtype_to_np_dtype(target)
    wide = np.asarray(values).astype(np.float64 if np.asarray(values).dtype == np.float64 else np.float32)
    largest = FLOATS[target].largest
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.isfinite(wide) & (np.abs(wide) > largest)
        made = np.where(beyond, np.copysign(largest, wide), wide).astype(dtype)
    lost = (wide != 0) & (made.astype(np.float32) == 0)
    if alone:
        made = np.where(lost, np.copysign(FLOATS[target].least, wide), made).astype(dtype)
    return made, (int(beyond.sum()), int(lost.sum()))
