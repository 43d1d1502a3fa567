"""The operation ``describe_model``: what an ONNX model is made of, read with its weights left where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, TypeProto, ValueInfoProto

from runner.files import stamp
from runner.jobs.inspect.concerns import concerns_of, nodes_of, operator_name, unknown_operators
from runner.jobs.inspect.constants import Constant, constants_of, graphs_of
from runner.model.errors import ModelError
from runner.model.files.hashed_aside import HashedAside
from runner.model.files.read_model import confirm_unchanged, parse_hashed
from runner.model.graph import scopes
from runner.model.graph.validate import check_text
from runner.model.values import dtypes
from runner.model.values.tensor_bytes import dtype_name

_MOST_LARGEST = 10
# files beyond this are walked through; the structure of a smaller one with its weights fits anywhere
_WHOLE = 32 << 20


def describe_model(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model at ``args["model"]`` is made of: see docs/inspect.md.

    ``unknown``: its operators that the ``onnx`` package does not know. Raises ModelError for a file that is no
    model, or that changes meanwhile.
    """
    path = Path(args["model"])
    before = stamp(path)
    with HashedAside() as digest:
        model, size, _ = parse_hashed(path, _WHOLE, digest)
        sha256 = digest.hexdigest()
    if not model.HasField("graph"):
        raise ModelError(f"{path} has no graph: it is not an ONNX model, or an empty one")
    check_text(model)
    constants = constants_of(model, path)
    concerns = [one.to_json() for one in concerns_of(model, constants)]
    confirm_unchanged(path, before)
    lone = sum(node.op_type == "Constant" for node in model.graph.node)
    inputs, outputs = ([_declared(one) for one in some] for some in (_fed(model), model.graph.output))
    return {
        "kind": "onnx",
        "bytes": size,
        "sha256": sha256,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "ir_version": model.ir_version,
        "opsets": {one.domain or "ai.onnx": one.version for one in model.opset_import},
        "nodes": len(model.graph.node) - lone,
        "constants": lone,
        "nested": sum(1 for _ in scopes.all_nodes(model.graph.node)) - len(model.graph.node),
        "operators": _counts(operator_name(node.domain, node.op_type) for node in nodes_of(model)),
        "functions": [operator_name(one.domain, one.name) for one in model.functions],
        "inputs": inputs,
        "outputs": outputs,
        "dynamic": {one["name"]: dims for one in inputs if (dims := _open(one["shape"]))},
        "dtypes": _dtypes(model),
        "weights": _weights(constants),
        "concerns": concerns,
        "unknown": unknown_operators(model),
    }


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name is there, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _fed(model: ModelProto) -> list[ValueInfoProto]:
    held = {tensor.name for tensor in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in held]


def _declared(value: ValueInfoProto) -> dict[str, Any]:
    return {"name": value.name, "dtype": _type(value.type), "shape": _shape(value.type)}


def _type(kind: TypeProto) -> str:
    name = kind.WhichOneof("value")
    if name in ("tensor_type", "sparse_tensor_type"):
        return dtype_name(getattr(kind, name).elem_type).lower()
    if name in ("sequence_type", "optional_type"):
        return f"{name.removesuffix('_type')}({_type(getattr(kind, name).elem_type)})"
    return str(name or "unknown").removesuffix("_type")


def _shape(kind: TypeProto) -> list[int | str] | None:
    """Return the dimensions, "?" for one without a name; None where not even their number is known."""
    name = kind.WhichOneof("value")
    if name not in ("tensor_type", "sparse_tensor_type") or not getattr(kind, name).HasField("shape"):
        return None
    dims = getattr(kind, name).shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]


def _open(shape: Sequence[int | str] | None) -> list[str]:
    return ["any rank"] if shape is None else [one for one in shape if isinstance(one, str)]


def _dtypes(model: ModelProto) -> dict[str, int]:
    """Return how many tensors of each type the model declares: inputs, outputs, weights, and what else it names."""
    found: dict[str, str] = {}
    for graph in graphs_of(model):
        for value in (*graph.value_info, *graph.output, *graph.input):
            found[value.name] = _type(value.type)
        found.update((tensor.name, dtype_name(tensor.data_type).lower()) for tensor in graph.initializer)
    return _counts(found.values())


def _weights(constants: Sequence[Constant]) -> dict[str, Any]:
    by_type: dict[str, list[Constant]] = {}
    for one in constants:
        by_type.setdefault(dtype_name(one.dtype).lower(), []).append(one)
    largest = sorted(constants, key=lambda one: -one.bytes)[:_MOST_LARGEST]
    return {
        "count": len(constants),
        "bytes": sum(one.bytes for one in constants),
        "parameters": sum(one.elements for one in constants if one.dtype in dtypes.FLOATS),
        "dtypes": {
            name: {"count": len(some), **{key: sum(getattr(one, key) for one in some) for key in ("elements", "bytes")}}
            for name, some in sorted(by_type.items())
        },
        "largest": [
            {"name": one.name, "dtype": dtype_name(one.dtype).lower(), "shape": list(one.dims), "bytes": one.bytes}
            for one in largest
        ],
    }
