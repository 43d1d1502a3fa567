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
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from runner.exit_codes import ModelError
from runner.model.files.parse_without_weights import chunks
from runner.model.files.read_model import STRUCTURE, ingest
from runner.model.graph import scopes
from runner.model.graph.cut import remove_dead_nodes, remove_nodes, remove_stale_value_info, remove_unused_initializers
from runner.model.graph.data_dependence import draws
from runner.model.graph.edits import add_initializer, copy_of
from runner.model.passes.infer_shapes import infer_shapes, override_shapes, read_types
from runner.model.values import tensor_bytes
from runner.text import counted, one_line

# Constant folding: nodes whose value is known before any data come are replaced by that value, the rest is untouched.
#
# ONNX Runtime computes them, one node after the other. What a node draws at random, quantizes, or calls with nested
# graphs or functions stays.

# quantization of weights is what a quantized model is about: runtimes look for these nodes
_KEPT = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Constant")
# element types that come back from ONNX Runtime as they are: all that numpy has itself, and strings
_NATIVE = frozenset(range(1, 16)) - {TensorProto.COMPLEX64, TensorProto.COMPLEX128}

Read = Callable[[TensorProto], bytes]
"""Returns the raw bytes of a tensor that lies in the weights file."""


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


def fold(model: ModelProto, types: Mapping[str, TypeProto], limit: int | None, read: Read) -> Folded:
    """Fold the top-level nodes of ``model`` in place; the order and the names of the others stay.

    ``types``: of tensors, as inferred; static shapes in them are believed. ``limit``: bytes beyond which a value is not
    folded; None is no limit. Nodes that make graph outputs stay.
    """
    graph = model.graph
    functions = {scopes.function_key(function) for function in model.functions}
    inputs, outputs = ({value.name for value in group} for group in (graph.input, graph.output))
    known = {tensor.name: tensor for tensor in graph.initializer}
    fed = known.keys() & inputs if model.ir_version >= 4 else set()
    gone: list[int] = []
    values: set[str] = set()
    failures: list[str] = []
    too_large = overridable = 0
    for at, node in enumerate(graph.node):
        names, reads = [name for name in node.output if name], scopes.reads(node)
        if not names or outputs.intersection(names):
            continue
        shape = _static_shape(node, types)
        made = {} if shape is None else {names[0]: shape}
        if shape is None:
            if not all(name in known for name in reads):
                continue
            if not fed.isdisjoint(reads):
                overridable += 1
                continue
            sizes = [_bytes(types.get(name)) for name in names]
            if not _computable(node, functions) or None in sizes:
                continue
            large = limit is not None and any(size is not None and size > limit for size in sizes)
            try:
                made = {} if large else _computed(model, node, known, read)
            except Exception as error:  # noqa: BLE001 - whatever the runtime raises
                failures.append(one_line(f"{type(error).__name__}: {error}"))
                continue
            if large or (limit is not None and any(value.nbytes > limit for value in made.values())):
                too_large += 1
                continue
        gone.append(at)
        values |= made.keys()
        known |= {name: numpy_helper.from_array(value, name) for name, value in made.items()}
    touched = {name for at in gone for name in graph.node[at].input}
    remove_nodes(graph, gone)
    replaced = sorted(values.intersection(name for node in graph.node for name in scopes.reads(node)))
    for name in replaced:
        add_initializer(model, known[name], name)
    for at in reversed([at for at, value in enumerate(graph.value_info) if value.name in values]):
        del graph.value_info[at]
    remove_unused_initializers(graph, touched)
    return Folded(len(gone), len(replaced), too_large, len(failures), next(iter(failures), ""), overridable)


def _computed(
    model: ModelProto, node: NodeProto, known: Mapping[str, TensorProto], read: Read
) -> dict[str, np.ndarray[Any, Any]]:
    """Return what a node gives that reads nothing but ``known``."""
    import onnxruntime  # noqa: PLC0415 - a runtime is imported when it is used

    alone = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    alone.graph.name = "constants"
    alone.graph.node.append(node)
    for name in scopes.reads(node):
        held = alone.graph.initializer.add()
        held.CopyFrom(known[name])
        if tensor_bytes.is_external(held):
            tensor_bytes.set_raw(held, read(held))
    names = [name for name in node.output if name]
    alone.graph.output.extend(ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(alone.SerializeToString(), providers=["CPUExecutionProvider"])
    return {name: np.asarray(value) for name, value in zip(names, session.run(names, {}), strict=True)}


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
    try:
        override_shapes(model, shapes)
    except ModelError as error:
        raise SanitizeError(f"sanitize.shapes=true: {error}") from None
    types = _types(model, folder)
    for value in model.graph.output:  # their sizes were dropped with those of the inputs
        if value.name in types:
            value.type.CopyFrom(types[value.name])
    written = ", ".join(f"{name} {list(dims)}" for name, dims in shapes.items())
    return f"sanitize.shapes: the model's inputs now have the shapes {written}"


def _fold(model: ModelProto, folder: Path, limit: int | None) -> str:
    def read(tensor: Any) -> bytes:
        location, offset, _ = tensor_bytes.reference(tensor)
        return b"".join(chunks(folder / location, offset, tensor_bytes.byte_size(tensor.data_type, tensor.dims) or 0))

    before, nodes, constants = len(model.graph.node), 0, 0
    while (found := fold(model, _types(model, folder), limit, read)).nodes:  # known values make more shapes known
        nodes, constants = nodes + found.nodes, constants + found.constants
    if found.failed and not nodes:
        said = f"ONNX Runtime computes none of the {found.failed} constant values: {found.reason}"
        raise SanitizeError(f"sanitize.fold=true: {said}")
    done = [f"sanitize.fold: {nodes} of {counted(before, 'node')} folded into {counted(constants, 'constant')}"]
    if found.too_large:
        done.append(f"kept, for values beyond sanitize.fold_limit_mb={(limit or 0) / 2**20:g}: {found.too_large}")
    if found.overridable:
        done.append(f"kept, since they read weights that are inputs too and may be fed: {found.overridable}")
    if found.failed:
        done.append(f"values that could not be computed: {found.failed} ({found.reason})")
    return "; ".join(done)


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
