"""What ONNX Runtime says of the operators that ONNX does not define: which types their inputs and outputs may have."""

# runs under Python 3.8 (and so without subscripted builtins); a runtime is imported when it is used
# ruff: noqa: UP006, UP035, PLC0415
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Set, Tuple

from runner.backends.nested_graphs import all_graphs, bodies


def contrib_schemas(args: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``schemas`` of the nodes of the structure at ``args["model"]`` that the ``onnx`` package does not know.

    ``schemas``: [{"domain", "op", "inputs", "outputs"}], an input or output being {"variable": a name that it shares
    with those of its type, "types": all that it may be, "variadic", "homogeneous"}. Operators with nested graphs are
    left out: their schemas say nothing of what is inside. Empty where ONNX Runtime does not tell its schemas.
    """
    import onnx

    with open(args["model"], "rb") as file:  # noqa: PTH123 - runs on older interpreters too
        model = onnx.ModelProto.FromString(file.read())
    versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
    unknown = {key for key in _operators(model) if not _in_onnx(key, versions)}
    unknown -= {(_domain(function.domain), function.name) for function in model.functions}
    return {"schemas": _schemas(unknown, versions) if unknown else []}


def _schemas(unknown: Set[Tuple[str, str]], versions: Dict[str, int]) -> List[Dict[str, Any]]:
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        known = state.get_all_operator_schema()
    except (ImportError, AttributeError):  # a build without schemas: its operators keep their types
        return []
    newest: Dict[Tuple[str, str], Any] = {}
    for schema in known:
        key = (_domain(schema.domain), schema.name)
        if key not in unknown or schema.since_version > versions.get(key[0], 0):
            continue
        if key not in newest or newest[key].since_version < schema.since_version:
            newest[key] = schema
    return [_plain(key, schema) for key, schema in sorted(newest.items())]


def _plain(key: Tuple[str, str], schema: Any) -> Dict[str, Any]:
    allowed = {one.type_param_str: [str(name) for name in one.allowed_type_strs] for one in schema.type_constraints}

    def plain(formal: Any) -> Dict[str, Any]:
        return {
            "variable": str(formal.typeStr),
            "types": allowed.get(formal.typeStr, [str(formal.typeStr)]),
            "variadic": str(formal.option).endswith("Variadic"),
            "homogeneous": bool(formal.isHomogeneous),
        }

    return {
        "domain": key[0],
        "op": key[1],
        "inputs": [plain(formal) for formal in schema.inputs],
        "outputs": [plain(formal) for formal in schema.outputs],
    }


def _operators(model: Any) -> Iterator[Tuple[str, str]]:
    """Yield (domain, operator) of all nodes without nested graphs."""
    for graph in all_graphs(model):
        for node in graph.node:
            if next(bodies(node), None) is None:
                yield _domain(node.domain), node.op_type


def _in_onnx(key: Tuple[str, str], versions: Dict[str, int]) -> bool:
    from onnx import defs

    try:
        defs.get_schema(key[1], versions.get(key[0], 0), key[0])
    except Exception:  # noqa: BLE001 - each release of onnx has a class of its own for it
        return False
    return True


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
