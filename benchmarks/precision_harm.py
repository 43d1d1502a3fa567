"""What a new Inf or NaN does inside a mixed-precision model; ``python -m benchmarks.precision_natural`` asks.

Nodes that read one are looked at. What is finite again after them has absorbed it exactly (``tanh``, a softmax, a mask)
or is wrong. It may be wrong for another reason, too: the node is therefore run once more, with the values of the
original in the places that are not finite, and nowhere else. Harm is done only where that makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.precision_judge import LOW, Table, wide
from benchmarks.precision_networks import Feeds

WRONG = 0.02
"""Beyond this share of the largest value the first finite tensor after an infinity is wrong."""


@dataclass(frozen=True)
class Infinity:
    """A tensor that is not finite in the mixed model and was in the original.

    ``harmed``: the finite tensors right after it that are wrong because of it; ``wrong``: those that are wrong.
    """

    tensor: str
    wrong: tuple[str, ...]
    harmed: tuple[str, ...]


@dataclass(frozen=True)
class _Reader:
    """A node, with its tensors as tables call them: with the path of the graph that they are in."""

    node: NodeProto
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[str, ...]


def infinities(
    mixed: ModelProto, samples: Sequence[Feeds], before: Sequence[Table], after: Sequence[Table]
) -> list[Infinity]:
    """Return the tensors that became Inf or NaN in any sample, with what comes of them."""
    readers, constants = list(_readers(mixed.graph, ("",))), dict(_constants(mixed.graph, ""))
    outputs = {value.name for value in mixed.graph.output}
    wrong: dict[str, set[str]] = {}
    harmed: dict[str, set[str]] = {}
    for feeds, own, table in zip(samples, before, after, strict=True):
        plain = _with_casts(own, readers)
        for name in (name for name, value in table.items() if not finite(value) and finite(plain.get(name))):
            beyond, harm = wrong.setdefault(name, set()), harmed.setdefault(name, set())
            for reader in (reader for reader in readers if any(name in names for names in reader.reads)):
                off = {made for made in reader.writes if _differ(table.get(made), plain.get(made))}
                beyond |= off
                if off:
                    again = _repaired(mixed, reader, {**constants, **feeds, **table}, plain)
                    harm |= {made for made in off if again is None or _differ(table[made], again.get(made))}
            beyond |= {name} & outputs
            harm |= {name} & outputs
    return [Infinity(name, tuple(sorted(wrong[name])), tuple(sorted(harmed[name]))) for name in wrong]


def _repaired(mixed: ModelProto, reader: _Reader, values: Mapping[str, Any], plain: Table) -> Table | None:
    """Return what a node makes, in fp32, of its inputs with what is not finite as the original has it, or None."""
    feeds, node = {}, NodeProto()
    node.CopyFrom(reader.node)
    for place, names in enumerate(reader.reads):
        known = next((name for name in reversed(names) if name in values), None)
        if known is None:
            if names:
                return None
            continue
        value = np.asarray(values[known])
        if not _is_integral(value):
            value = wide(value).astype(np.float32)
            good = plain.get(known)
            if good is not None and np.shape(good) == value.shape:
                value = np.where(np.isfinite(value), value, wide(good).astype(np.float32))
        node.input[place] = f"in_{place}"
        feeds[f"in_{place}"] = value
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in LOW:
            attribute.i = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "again", inputs, made)
    model = helper.make_model(graph, opset_imports=mixed.opset_import, ir_version=min(mixed.ir_version, 10))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(reader.writes, session.run(None, feeds), strict=True))
    except Exception:  # noqa: BLE001 - what cannot be run again is held to be harmed
        return None


def _readers(graph: GraphProto, prefixes: tuple[str, ...]) -> Iterator[_Reader]:
    own = prefixes[-1]
    for place, node in enumerate(graph.node):
        reads = tuple(tuple(f"{prefix}{name}" for prefix in prefixes) if name else () for name in node.input)
        yield _Reader(node, reads, tuple(f"{own}{name}" for name in node.output if name))
        path = own + (node.name or next((name for name in node.output if name), f"{node.op_type}#{place}"))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _readers(attribute.g, (*prefixes, f"{path}.{attribute.name}/"))


def _constants(graph: GraphProto, prefix: str) -> Iterator[tuple[str, Any]]:
    for tensor in graph.initializer:
        yield f"{prefix}{tensor.name}", numpy_helper.to_array(tensor)
    for place, node in enumerate(graph.node):
        path = prefix + (node.name or next((name for name in node.output if name), f"{node.op_type}#{place}"))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _constants(attribute.g, f"{path}.{attribute.name}/")


def _with_casts(plain: Table, readers: Sequence[_Reader]) -> Table:
    """Return a table of the original with what casts were added for: what goes in should be what comes out."""
    found = dict(plain)
    for reader in (reader for reader in readers if reader.node.op_type == "Cast"):
        for source, made in ((name, reader.writes[0]) for name in reader.reads[0]):
            if source in found:
                found.setdefault(made, found[source])
            elif made in found:
                found.setdefault(source, found[made])
    return found


def finite(value: Any) -> bool:
    """Whether all is finite; a tensor that the original does not have is held to be."""
    return value is None or _is_integral(value) or bool(np.isfinite(wide(value)).all())


def _is_integral(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iubOSU"


def _differ(found: Any, good: Any) -> bool:
    if found is None or good is None or not finite(found) or not finite(good):
        return False
    found, good = np.asarray(found), np.asarray(good)
    if found.shape != good.shape or _is_integral(good):
        return not np.array_equal(found, good)
    difference = np.abs(wide(found) - wide(good))
    return bool(difference.size and difference.max() > WRONG * np.abs(wide(good)).max())
