"""Sanitizing: a model with concrete input shapes, folded constants and no dead nodes, before anything else is done.

In a worker: inference of shapes is native code, and folding runs ONNX Runtime. Weights lie in a file of their own all
the while, so a model of more than 2 GiB passes; only what the folded nodes read is taken into memory. What is not
folded stays to the letter, in its order, under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TypeProto

from runner.model.errors import ModelError
from runner.model.files.external_data import chunks
from runner.model.files.read_model import STRUCTURE, ingest
from runner.model.files.weights_file import write_whole
from runner.model.graph.protobuf_edits import copy_of
from runner.model.graph.remove_unused import (
    remove_dead_nodes,
    remove_stale_value_info,
    remove_unused_initializers,
)
from runner.model.passes.fold_constants import Folded, FoldError, fold
from runner.model.passes.infer_shapes import infer_shapes, override_shapes, read_types
from runner.model.values import tensor_bytes
from runner.text import counted

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
    write_whole(path, [data])
