"""Sanitizing: a model with concrete input shapes, folded constants and no dead nodes, before anything else is done.

In a worker: inference of shapes is native code, and folding runs ONNX Runtime. Weights lie in a file of their own all
the while, so a model of more than 2 GiB passes; only what the folded nodes read is taken into memory. What is not
folded stays to the letter, in its order, under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from runner.judgment import ModelError
from runner.model.files.parse_without_weights import chunks
from runner.model.files.read_model import STRUCTURE, ingest
from runner.model.graph import scopes
from runner.model.graph.cut import remove_dead_nodes, remove_nodes, remove_stale_value_info, remove_unused_initializers
from runner.model.graph.data_dependence import draws
from runner.model.graph.edits import add_initializer, copy_of
from runner.model.graph.graph_index import is_sparse_constant
from runner.model.passes.infer_shapes import infer_shapes, override_shapes, read_types
from runner.model.values import tensor_bytes
from runner.text import counted, one_line

# Constant folding: nodes whose value is known before any data come are replaced by that value, the rest is untouched.
#
# onnx-graphsurgeon computes the values (with ONNX Runtime), on a model of those nodes alone. It does not write the
# result: what it writes anew loses doc strings, metadata and attributes of kinds that it does not know. Two things it
# would do are left out: it takes ``Shape(x, start=1)`` for the whole shape, and turns integer arithmetic done in
# floats into integer arithmetic. What a node draws at random, quantizes, or calls with nested graphs or functions
# stays.

# quantization of weights is what a quantized model is about: runtimes look for these nodes
_KEPT = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Constant")
# element types that come back from ONNX Runtime as they are: all that numpy has itself, and strings
_NATIVE = frozenset(range(1, 16)) - {TensorProto.COMPLEX64, TensorProto.COMPLEX128}
_PART_LIMIT = (1 << 31) - (64 << 20)

Read = Callable[[TensorProto], bytes]
"""Returns the raw bytes of a tensor that lies in the weights file."""


class FoldError(Exception):
    """Folding failed as a whole; the message is one line."""


@dataclass(frozen=True)
class Folded:
    """What was folded. ``nodes``: how many nodes are gone; ``constants``: how many values they left.

    ``too_large``: nodes that stayed because their value passes the limit; ``failed``: values that could not be
    computed, ``reason``: why the first could not. ``overridable``: nodes that stayed because a caller may feed their
    constants.
    """

    nodes: int = 0
    constants: int = 0
    too_large: int = 0
    failed: int = 0
    reason: str = ""
    overridable: int = 0


@dataclass(frozen=True)
class _Plan:
    """What can be folded: nodes by place in the file, and values that shapes alone give."""

    nodes: Mapping[int, NodeProto]
    shapes: Mapping[str, np.ndarray[Any, Any]]
    too_large: int
    overridable: int


def fold(model: ModelProto, types: Mapping[str, TypeProto], limit: int | None, read: Read) -> Folded:
    """Fold the top-level nodes of ``model`` in place; the order and the names of the others stay.

    ``types``: of tensors, as inferred; static shapes in them are believed. ``limit``: bytes beyond which a value is not
    computed; None is no limit. Nodes that make graph outputs stay. Raises FoldError where nothing of what is constant
    can be computed, or where it does not fit in a protobuf file.
    """
    graph = model.graph
    plan = _plan(model, types, limit)
    wanted = _wanted(graph, plan)
    if not wanted:
        return Folded(too_large=plan.too_large, overridable=plan.overridable)
    values = {name: value for name, value in plan.shapes.items() if name in wanted}
    failed: list[str] = []
    reason = ""
    asked = [name for name in wanted if name not in values]
    if asked:
        computed, reason = _evaluate(_part(model, plan, asked, types, read), limit)
        computed = {name: value for name, value in computed.items() if name in wanted and _fits(value, types[name])}
        failed = [name for name in asked if name not in computed]
        if not computed and not values and reason:
            raise FoldError(f"ONNX Runtime computes none of the {len(asked)} constant values: {reason}")
        values.update(computed)
    gone, constants = _replace(model, values, plan)
    if failed and not reason:  # larger than the limit, as only the values themselves told
        return Folded(gone, constants, plan.too_large + len(failed), overridable=plan.overridable)
    return Folded(gone, constants, plan.too_large, len(failed), reason, plan.overridable)


def _plan(model: ModelProto, types: Mapping[str, TypeProto], limit: int | None) -> _Plan:
    graph = model.graph
    functions = {scopes.function_key(function) for function in model.functions}
    inputs, outputs = ({value.name for value in group} for group in (graph.input, graph.output))
    known = {tensor.name for tensor in graph.initializer}
    fed = known & inputs if model.ir_version >= 4 else set()
    known -= fed
    nodes: dict[int, NodeProto] = {}
    shapes: dict[str, np.ndarray[Any, Any]] = {}
    too_large = overridable = 0
    for at, node in enumerate(graph.node):
        if is_sparse_constant(node) or not any(node.output) or outputs.intersection(node.output):
            continue
        shape = _static_shape(node, types)
        if shape is not None:
            shapes[node.output[0]] = shape
            known.add(node.output[0])
            continue
        reads = scopes.reads(node)
        if not all(name in known for name in reads):
            overridable += bool(reads) and all(name in known or name in fed for name in reads)
            continue
        if not _computable(node, functions):
            continue
        sizes = [_bytes(types.get(name)) for name in node.output if name]
        if any(size is None for size in sizes):
            continue
        if limit is not None and any(size is not None and size > limit for size in sizes):
            too_large += 1
            continue
        nodes[at] = node
        known.update(name for name in node.output if name)
    return _Plan(nodes, shapes, too_large, overridable)


def _computable(node: NodeProto, functions: set[tuple[str, str, str]]) -> bool:
    if node.op_type in _KEPT or draws(node):
        return False
    return not scopes.subgraphs(node) and scopes.call_key(node) not in functions


def _bytes(kind: TypeProto | None) -> int | None:
    """Return the bytes of a tensor, 0 where its type does not tell, None where it is of no type that can be folded."""
    if kind is None or kind.WhichOneof("value") != "tensor_type" or kind.tensor_type.elem_type not in _NATIVE:
        return None
    dims = _dims(kind)
    if dims is None:
        return 0
    return tensor_bytes.byte_size(kind.tensor_type.elem_type, dims) or 0


def _dims(kind: TypeProto | None) -> list[int] | None:
    """Return the dimensions of a tensor type if all of them are known."""
    if kind is None or kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims):
        return None
    return [int(dim.dim_value) for dim in dims]


def _static_shape(node: NodeProto, types: Mapping[str, TypeProto]) -> np.ndarray[Any, Any] | None:
    """Return what a Shape or Size node gives if the shape of its input is known."""
    if node.op_type not in ("Shape", "Size") or scopes.domain_of(node.domain) or not node.input:
        return None
    dims = _dims(types.get(node.input[0]))
    if dims is None:
        return None
    if node.op_type == "Size":
        return np.asarray(tensor_bytes.elements(dims), dtype=np.int64)
    cut = {attribute.name: int(attribute.i) for attribute in node.attribute}
    start, end = cut.get("start", 0), cut.get("end", len(dims))
    return np.asarray(dims[slice(start, end)], dtype=np.int64)


def _wanted(graph: GraphProto, plan: _Plan) -> list[str]:
    """Return the values that must be there once the planned nodes are gone, in the file's order."""
    read = {name for at, node in enumerate(graph.node) if at not in plan.nodes for name in scopes.reads(node)}
    produced = [
        name for at, node in enumerate(graph.node) for name in node.output if at in plan.nodes or name in plan.shapes
    ]
    return [name for name in produced if name and name in read]


def _part(model: ModelProto, plan: _Plan, outputs: list[str], types: Mapping[str, TypeProto], read: Read) -> ModelProto:
    """Return a model of the planned nodes alone, with the weights that they read inside."""
    part = ModelProto(ir_version=model.ir_version)
    part.opset_import.extend(model.opset_import)
    part.graph.name = "constants"
    part.graph.node.extend(plan.nodes.values())
    for node in part.graph.node:
        node.ClearField("name")  # runtimes refuse equal names
    needed = {name for node in plan.nodes.values() for name in node.input}
    size = part.ByteSize()
    for tensor in model.graph.initializer:
        if tensor.name in needed:
            size += tensor_bytes.byte_size(tensor.data_type, tensor.dims) or tensor.ByteSize()
            if size > _PART_LIMIT:
                raise FoldError(
                    "the nodes to fold read more than 2 GiB of weights, which ONNX Runtime cannot be handed"
                )
            added = part.graph.initializer.add()
            added.CopyFrom(tensor)
            if tensor_bytes.is_external(tensor):
                tensor_bytes.set_raw(added, read(tensor))
    part.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in plan.shapes.items() if name in needed
    )
    part.graph.output.extend(ValueInfoProto(name=name, type=types[name]) for name in outputs)
    return part


def _evaluate(part: ModelProto, limit: int | None) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """Return the values of the outputs of a model without inputs, and why some are missing ("" if it went well).

    First all at once; if that fails, each by itself.
    """
    import onnx_graphsurgeon as gs  # noqa: PLC0415 - it loads ONNX Runtime

    reason = ""
    for partitioning in (None, "recursive"):
        try:
            graph = gs.import_onnx(part)
            graph.fold_constants(
                fold_shapes=False,
                recurse_subgraphs=False,
                flatten_subgraphs=False,
                recurse_functions=False,
                size_threshold=limit,
                partitioning=partitioning,
                error_ok=partitioning is not None,
            )
        except Exception as error:  # noqa: BLE001 - whatever graphsurgeon or the runtime raises
            reason = reason or one_line(f"{type(error).__name__}: {error}")
            continue
        tensors = graph.tensors()
        names = [value.name for value in part.graph.output]
        found = {name: tensors[name].values for name in names if isinstance(tensors.get(name), gs.Constant)}
        return found, reason if len(found) < len(names) else ""
    return {}, reason


def _fits(value: np.ndarray[Any, Any], kind: TypeProto) -> bool:
    """Whether a value is of the type that inference says: a runtime that hands out something else is not believed."""
    dims = _dims(kind)
    tensor = numpy_helper.from_array(np.asarray(value), "")
    return bool(tensor.data_type == kind.tensor_type.elem_type and (dims is None or list(value.shape) == dims))


def _replace(model: ModelProto, values: Mapping[str, np.ndarray[Any, Any]], plan: _Plan) -> tuple[int, int]:
    """Put values in the place of the nodes that made them and of those that only they needed.

    Returns how many nodes are gone, and how many values took their place.
    """
    graph = model.graph
    needed = {value.name for value in graph.output}
    gone: dict[int, NodeProto] = {}
    for at in reversed(range(len(graph.node))):
        node = graph.node[at]
        planned = at in plan.nodes or any(name in plan.shapes for name in node.output)
        if planned and all(name in values or name not in needed for name in node.output if name):
            gone[at] = node
        else:
            needed.update(scopes.reads(node))
    replaced = {name for node in gone.values() for name in node.output if name in values}
    touched = {name for node in gone.values() for name in node.input}
    remove_nodes(graph, gone)
    for name in sorted(replaced):
        add_initializer(model, numpy_helper.from_array(np.asarray(values[name])), name)
    for at in reversed([at for at, value in enumerate(graph.value_info) if value.name in replaced]):
        del graph.value_info[at]
    remove_unused_initializers(graph, touched)
    return len(gone), len(replaced)


SANITIZED = "sanitized.onnx"


class SanitizeError(ModelError):
    """A step of sanitizing failed; the message begins with its setting."""


def sanitize(args: Mapping[str, Any]) -> dict[str, Any]:
    """Sanitize the model at ``args["model"]`` into the folder ``args["out"]``.

    ``fold``, ``cleanup``: what to do. ``shapes``: shapes to write into the model's inputs, by name, or None.
    ``fold_limit``: bytes beyond which a value is not folded, or None.

    Returns ``path`` (the sanitized model, with its weights beside it), ``warnings`` (what was odd with the file) and
    ``done`` (one line for each step, saying what it did). Nothing is there under ``path`` unless all of it went well.
    Raises ModelError for a file that is wrong, SanitizeError for a step that fails.
    """
    folder = Path(args["out"])
    report = ingest({"model": args["model"], "store": folder})
    model = ModelProto.FromString((folder / STRUCTURE).read_bytes())
    done = []
    if args.get("shapes") is not None:
        done.append(_write_shapes(model, args["shapes"], folder))
    if args.get("fold"):
        done.append(_fold(model, folder, args.get("fold_limit")))
    if args.get("cleanup"):
        done.append(_clean_up(model))
    path = folder / SANITIZED
    _save(model, path)
    (folder / STRUCTURE).unlink()
    return {"path": str(path), "warnings": report["warnings"], "done": done}


def _write_shapes(model: ModelProto, shapes: Mapping[str, Any], folder: Path) -> str:
    if not shapes:
        raise SanitizeError(
            "sanitize.shapes=true: there are no shapes to write; give inputs.shapes='{name: [1, 3, 224, 224]}'"
        )
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.output if _has_shape(value.type)
    }
    try:
        override_shapes(model, shapes)
    except ModelError as error:
        raise SanitizeError(f"sanitize.shapes=true: {error}") from None
    types = _types(model, folder)
    for value in model.graph.output:  # their shapes were dropped with those of the inputs, and outputs must have one
        if value.name in types and _has_shape(types[value.name]):
            value.type.CopyFrom(types[value.name])
        elif value.name in ranks:
            value.type.tensor_type.shape.SetInParent()
            for _ in range(ranks[value.name]):
                value.type.tensor_type.shape.dim.add()
    written = ", ".join(f"{name} {list(dims)}" for name, dims in shapes.items())
    return f"sanitize.shapes: the model's inputs now have the shapes {written}"


def _has_shape(kind: TypeProto) -> bool:
    return bool(kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.HasField("shape"))


def _fold(model: ModelProto, folder: Path, limit: int | None) -> str:
    def read(tensor: Any) -> bytes:
        location, offset, _ = tensor_bytes.reference(tensor)
        return b"".join(chunks(folder / location, offset, tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0))

    before, total, rounds = len(model.graph.node), Folded(), 0
    try:
        while True:  # values that are known now make more shapes known
            found = fold(model, _types(model, folder), limit, read)
            rounds += 1
            if not found.nodes:
                break
            total = Folded(total.nodes + found.nodes, total.constants + found.constants)
    except FoldError as error:
        if not total.nodes:
            raise SanitizeError(f"sanitize.fold=true: {error}") from None
        found = Folded(reason=str(error), failed=1)
    said = [
        f"sanitize.fold: {total.nodes} of {counted(before, 'node')} folded into {counted(total.constants, 'constant')}"
    ]
    if found.too_large:
        said.append(f"kept, for values beyond sanitize.fold_limit_mb={(limit or 0) / 2**20:g}: {found.too_large}")
    if found.overridable:
        said.append(f"kept, since they read weights that are inputs too and may be fed: {found.overridable}")
    if found.failed:
        said.append(f"values that could not be computed: {found.failed} ({found.reason})")
    return "; ".join(said)


def _types(model: ModelProto, folder: Path) -> dict[str, TypeProto]:
    """Return the types that follow from the inputs alone: what a file says of its inner tensors may be wrong."""
    bare = copy_of(model)
    bare.graph.ClearField("value_info")
    path, out = folder / "bare.onnx", folder / "types.onnx"
    try:
        path.write_bytes(bare.SerializeToString())
        infer_shapes({"model": str(path), "mode": "onnx", "shapes": {}, "out": str(out)})
        return read_types(out)
    finally:
        path.unlink(missing_ok=True)
        out.unlink(missing_ok=True)


def _clean_up(model: ModelProto) -> str:
    nodes = remove_dead_nodes(model.graph)
    tensors = remove_unused_initializers(model.graph)
    remove_stale_value_info(model.graph)
    return f"sanitize.cleanup: {counted(nodes, 'dead node')} and {counted(tensors, 'unused tensor')} removed"


def _save(model: ModelProto, path: Path) -> None:
    try:
        data = model.SerializeToString()
    except (ValueError, EncodeError) as error:  # the class differs between the versions of protobuf
        raise SanitizeError(
            f"sanitize.fold=true: the folded values do not fit in 2 GiB ({error}); set a smaller sanitize.fold_limit_mb"
        ) from None
    tensor_bytes.write_whole(path, [data])
