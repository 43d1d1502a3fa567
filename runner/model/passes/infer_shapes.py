"""Shape inference over a structure, in a worker: it is native code, and a broken model can take the process with it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, TypeProto, shape_inference

from runner.errors import ModelError
from runner.model.graph import scopes
from runner.model.graph.edits import copy_of
from runner.model.values.value_types import declares_type
from runner.text import install, one_line

MODES = ("onnx", "symbolic")


def infer_shapes(args: Mapping[str, Any]) -> dict[str, Any]:
    """Infer types and shapes of the model at ``args["model"]`` and write what is then known to ``args["out"]``.

    ``mode``: ``onnx``, or ``symbolic`` (ONNX Runtime's script; needs sympy). ``shapes``: concrete shapes of graph
    inputs by name, set first; with them, shapes that the file declares for other tensors are dropped. No weights are
    read.
    Returns ``types``: of how many tensors the element type is known, and ``warning``: what failed, empty if nothing
    did (then the next simpler way was taken: symbolic, ONNX, what the file declares).
    Raises ModelError for an unknown mode, an unknown input name or rank, and a missing package.
    """
    mode = str(args.get("mode", "onnx"))
    if mode not in MODES:
        raise ModelError(f"shape inference {mode!r} is not known; valid: {', '.join(MODES)}")
    model = ModelProto.FromString(Path(args["model"]).read_bytes())
    override_shapes(model, args.get("shapes") or {})
    _import_all_domains(model)
    warnings = []
    inferred = None
    if mode == "symbolic":
        inferred, warning = _symbolic(model)
        warnings.append(warning)
    if inferred is None:
        inferred, warning = _onnx(model)
        warnings.append(warning)
    found = inferred or model
    Path(args["out"]).write_bytes(found.SerializeToString())
    return {"types": len(_types(found)), "warning": "; ".join(filter(None, warnings))}


def read_types(path: Path) -> dict[str, TypeProto]:
    """Return the types in a model file, by tensor: of its graph inputs, outputs and value_info.

    Shapes may be missing or partly known.
    """
    return _types(ModelProto.FromString(Path(path).read_bytes()))


def override_shapes(model: ModelProto, shapes: Mapping[str, Any]) -> None:
    """Set concrete shapes of graph inputs, in place. Raises ModelError for a name or a rank that the model has not."""
    inputs = {value.name: value for value in model.graph.input}
    for name, dims in shapes.items():
        if name not in inputs or inputs[name].type.WhichOneof("value") != "tensor_type":
            raise ModelError(f"no tensor input {name!r} to set a shape of; the model's inputs: {', '.join(inputs)}")
        tensor = inputs[name].type.tensor_type
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(dims):
            raise ModelError(
                f"input {name!r} has {len(tensor.shape.dim)} dimensions, the shape given has {len(dims)}: {dims}"
            )
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for dim in dims:
            tensor.shape.dim.add(dim_value=int(dim))
    if shapes:
        # shapes that the file declares elsewhere were those for the old input shapes
        for value in [*model.graph.value_info, *model.graph.output]:
            if value.type.WhichOneof("value") == "tensor_type":
                value.type.tensor_type.ClearField("shape")


def _import_all_domains(model: ModelProto) -> None:
    """Import the domains that are used without an import: inference would stop at the first such node."""
    imported = {scopes.domain_of(entry.domain) for entry in model.opset_import}
    used = {scopes.domain_of(node.domain): None for node in scopes.all_nodes(model.graph.node)}
    for domain in used:
        if domain and domain not in imported:
            model.opset_import.add(domain=domain, version=1)


def _onnx(model: ModelProto) -> tuple[ModelProto | None, str]:
    """Return the inferred model, or None and why."""
    # propagating data (shapes that are computed) fails on some sound models
    inferred, _ = _onnx_once(model, data_prop=True)
    return (inferred, "") if inferred is not None else _onnx_once(model, data_prop=False)


def _onnx_once(model: ModelProto, *, data_prop: bool) -> tuple[ModelProto | None, str]:
    try:
        return shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=data_prop), ""
    except Exception as error:  # noqa: BLE001 - whatever native inference raises
        return None, f"ONNX shape inference failed ({one_line(error)})"


def _symbolic(model: ModelProto) -> tuple[ModelProto | None, str]:
    """Return the inferred model, or None and why. Raises ModelError for a missing package."""
    try:
        importlib.import_module("sympy")
        script = importlib.import_module("onnxruntime.tools.symbolic_shape_infer")
    except ImportError as error:
        raise ModelError(
            f"symbolic shape inference needs {error.name or error}: {install('symbolic')}, or cut.shapes=onnx"
        ) from None
    inference = script.SymbolicShapeInference
    try:
        return inference.infer_shapes(copy_of(model), auto_merge=True, guess_output_rank=False, verbose=0), ""
    except Exception as error:  # noqa: BLE001 - a script for well-behaved models: asserts, KeyErrors and more on others
        return None, f"symbolic shape inference failed ({type(error).__name__}: {one_line(error)})"


def _types(model: ModelProto) -> dict[str, TypeProto]:
    groups = (model.graph.value_info, model.graph.output, model.graph.input)
    shared: dict[bytes, TypeProto] = {}  # a long graph has few kinds of them, and one of its own keeps the whole model

    def alone(kind: TypeProto) -> TypeProto:
        content = kind.SerializeToString()
        if content not in shared:
            shared[content] = copy_of(kind)
        return shared[content]

    return {value.name: alone(value.type) for group in groups for value in group if declares_type(value.type)}
