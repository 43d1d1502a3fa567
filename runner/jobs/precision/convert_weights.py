"""Weights in another float type: converted from the file, and put back where they were quantized.

In a worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from runner.model.files.candidate_store import Store
from runner.model.files.parse_without_weights import WeightsWriter
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.graph.low_precision import is_quantization
from runner.model.values import tensor_bytes
from runner.model.values.dtypes import FLOATS
from runner.reference.quantized import readings

# Initializers in another float type, made once a run: in a worker, streamed, into a file beside the others.
#
# A finite value beyond the range of the type becomes the largest that it has (a mask of -3.4e38 goes on being a mask,
# where an infinity would make a NaN of a row that is masked whole); what is too small becomes zero. Both are counted. A
# number that stands alone and is too small becomes the least that the type has: it is there so that something is not
# zero (the epsilon of a norm).

_FLOAT8 = {
    TensorProto.FLOAT8E4M3FN: 3,
    TensorProto.FLOAT8E4M3FNUZ: 3,
    TensorProto.FLOAT8E5M2: 2,
    TensorProto.FLOAT8E5M2FNUZ: 2,
}


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
    lost: dict[str, Counter[str]] = {"clamped": Counter(), "flushed": Counter(), "lifted": Counter()}
    with WeightsWriter(path.parent / weights_name(target)) as writer:
        for number, graph in enumerate(scopes.graphs_below(model.graph)):
            for tensor in graph.initializer:
                if tensor.data_type != source:
                    continue
                other = found.graph.initializer.add(name=f"{number}/{tensor.name}", data_type=target, dims=tensor.dims)
                counts = _convert(tensor, other, path.parent, writer, source, target)
                small = "lifted" if tensor_bytes.elements(tensor.dims) == 1 else "flushed"
                for what, count in zip(("clamped", small), counts, strict=True):
                    lost[what].update({tensor.name: count} if count else {})
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {what: dict(counts) for what, counts in lost.items()}


def _convert(
    tensor: TensorProto, other: TensorProto, folder: Path, writer: WeightsWriter, source: int, target: int
) -> tuple[int, int]:
    counts, store, external = np.zeros(2, np.int64), Store(folder), tensor_bytes.is_external(tensor)
    alone = tensor_bytes.elements(tensor.dims) == 1

    def pieces() -> Any:
        for piece in store.region(tensor)[1] if external else [tensor_bytes.raw_bytes(tensor) or b""]:
            values = np.frombuffer(piece, helper.tensor_dtype_to_np_dtype(source))
            converted, count = convert(values, target, alone=alone)
            counts[:] += count
            yield converted.tobytes()

    length = tensor_bytes.byte_size(target, tensor.dims) or 0
    if external:
        location, offset, _ = tensor_bytes.reference(tensor)
        region = (folder / location, offset, length)
        tensor_bytes.set_reference(other, weights_name(target), writer.add(pieces(), length, None, region), length)
    else:
        tensor_bytes.set_raw(other, b"".join(pieces()))
    return int(counts[0]), int(counts[1])


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
            tensor_bytes.set_raw(tensor, b"".join(Store(folder).region(tensor)[1]))


# Weights of raised layers: those of the parent where one is given, else what quantized ones amount to; in a worker.

RESTORED = "weights.restored.bin"
"""The file of large restored weights."""
_INSIDE = 1024
_AGREEING = 0.98
"""The share of values by which a weight is known; the rest may have been rounded in another way."""


def restore_weights(args: Mapping[str, Any]) -> dict[str, Any]:
    """Write the weights in a float type that the structure at ``args["model"]`` stores with fewer digits.

    These are the initializers of the type ``low`` (null: none) that ``parent``, another structure or null, has better,
    and what DequantizeLinear nodes make of constants: ``quantized`` has the parent's initializers that each may be, by
    NUMBER/NAME. ``target``: an element type. ``out``: a ModelProto file whose initializers are the results, named
    ``NUMBER/NAME``; large ones lie in `RESTORED` beside the model. What agrees with none of the parent's is what is
    stored.

    Returns the names of those ``taken`` from the parent, of ``strangers``, whose parent has something else, and of
    those that stay ``rounded``, sorted by graph.
    """
    path, target = Path(args["model"]), int(args["target"])
    model, parent = ModelProto.FromString(path.read_bytes()), Path(args["parent"]) if args["parent"] else None
    theirs = _constants(ModelProto.FromString(parent.read_bytes())) if parent else {}
    constants, found = _constants(model), ModelProto()
    told: dict[str, list[str]] = {"taken": [], "strangers": [], "rounded": []}
    with WeightsWriter(path.parent / RESTORED) as writer:
        for number, graph in enumerate(scopes.graphs_below(model.graph)):
            makers = {name: node for node in graph.node for name in node.output}
            quantized = {
                name: args["quantized"][key] for name in makers if (key := f"{number}/{name}") in args["quantized"]
            }
            low = [one.name for one in graph.initializer if one.data_type == args["low"] and one.name in theirs]
            for name, others in sorted({**{one: [one] for one in low}, **quantized}.items()):
                stored = _stored(makers.get(name), constants, name, path.parent)
                given = [theirs[one] for one in dict.fromkeys(others) if one in theirs and stored.fits(theirs[one])]
                arrays = (Store(parent.parent).array(one) for one in given) if parent else ()
                agreeing = (one for array in arrays for one in (array, array.T) if stored.may_be(one))
                values = next(agreeing, None)
                if values is not None:
                    told["taken"].append(name)
                elif given:
                    told["strangers"].append(name)
                if values is None and name not in quantized:
                    continue
                if values is None:
                    told["rounded"].append(name)
                    values = stored.values
                made, _ = convert(np.ascontiguousarray(values), target)
                content = made.tobytes()
                tensor = found.graph.initializer.add(name=f"{number}/{name}", data_type=target, dims=values.shape)
                if len(content) < _INSIDE:
                    tensor_bytes.set_raw(tensor, content)
                else:
                    tensor_bytes.set_reference(tensor, RESTORED, writer.add([content], len(content)), len(content))
    Path(args["out"]).write_bytes(found.SerializeToString())
    return told


@dataclass(frozen=True)
class _Stored:
    """A weight as it is stored. ``steps``: by how much storing may have moved each value; ``edge``: saturated ones."""

    values: Any
    steps: Any
    edge: Any

    def fits(self, other: Any) -> bool:
        """Whether an initializer is of floats, and of this shape or its reverse."""
        dims, is_float = [*self.values.shape], getattr(other, "data_type", 0) in (TensorProto.FLOAT, TensorProto.DOUBLE)
        return is_float and [*other.dims] in (dims, dims[::-1])

    def may_be(self, other: Any) -> bool:
        """Whether storing ``other`` gives this, but for a few values."""
        if other.shape != self.values.shape:
            return False
        if not other.size:
            return True
        with np.errstate(all="ignore"):
            near = np.abs(other.astype(np.float64) - self.values) <= self.steps
        return float(np.mean(near | self.edge)) >= _AGREEING


def _stored(maker: NodeProto | None, constants: Mapping[str, Any], name: str, folder: Path) -> _Stored:
    """Return a weight of fewer digits, or what a DequantizeLinear makes of a constant."""

    def held(name: str) -> Any:
        return Store(folder).array(constants[name])

    if maker is None:
        values, kind = held(name).astype(np.float32), FLOATS[constants[name].data_type]
        # of fp16, and of bfloat16: one unit in the last place, and what is below the least number
        steps = np.abs(values).astype(np.float64) * 2.0 ** (1 - kind.digits) + 1.2e-7
        return _Stored(values, steps, np.abs(values) >= kind.largest)
    integers = held(maker.input[0])
    (told,), wide = readings(maker, {}, held)[maker.input[0]], integers.astype(np.float64)
    # of a type of 8 bits that is a float too: one unit in the last place, three or two digits behind the point
    digits = _FLOAT8.get(constants[maker.input[0]].data_type)
    units = 1.0 if digits is None else np.maximum(np.abs(wide) * 2.0**-digits, 2.0**-9)
    steps = np.abs(told.floats(np.ones_like(wide)) - told.floats(np.zeros_like(wide))) * units * 0.75
    return _Stored(told.floats(wide).astype(np.float32), steps, (wide == wide.min()) | (wide == wide.max()))


def _constants(model: ModelProto) -> dict[str, Any]:
    """Return the initializers of all graphs by name; the outermost of a name."""
    found: dict[str, Any] = {}
    for graph in scopes.graphs_below(model.graph):
        found = {**initializers_of(graph), **found}
    return found
