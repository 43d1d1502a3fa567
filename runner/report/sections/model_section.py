"""The reduced model in a report: as text with types and shapes, weights without their values; a table of a long one.

The text has the form of https://github.com/onnx/onnx/blob/main/docs/Syntax.md; what each node gives is a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from runner.report.markup import block, bullets, code, cut, section, table, text
from runner.report.summary import Summary

MOST_LINES = 60
"""A model of more lines is a table."""
_MOST_ROWS = 200
_LONGEST_NAME, _LONGEST_LINE = 100, 400
_MOST_DIMS = 12
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTAINERS = {"sequence_type": "seq", "optional_type": "optional"}
_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def model_section(summary: Summary, proto: ModelProto | None, types: Mapping[str, str] | None = None) -> str:
    """Return the section; "" where nothing was reduced. ``types``: of tensors, which the model may not declare."""
    if summary.nodes_after is None:
        return ""
    size = f"{summary.nodes_after} of {summary.nodes_before} nodes are left."
    nested = f"Nested nodes kept:\n\n{_bulleted(summary.nested)}" if summary.nested else ""
    if proto is None:
        return section("The reduced model", _joined(size, _bulleted(summary.culprits), nested))
    if (lines := model_text(proto, types)) is not None:
        return section("The reduced model", _joined(size, block("\n".join(lines)), nested))
    rows = [_row(node) for node in proto.graph.node[:_MOST_ROWS]]
    more = len(proto.graph.node) - len(rows)
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in proto.opset_import)
    parts = (
        f"{size} Opsets: {text(opsets)}; IR version {proto.ir_version}.",
        table(("node", "op", "inputs", "outputs", "attributes"), rows, names=5),
        f"{more} more nodes are not listed." if more else "",
        nested,
    )
    return section("The reduced model", _joined(*parts))


def model_text(proto: ModelProto, known: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the lines of a model as text; None where they are too many. ``known``: types, as above."""
    if len(proto.graph.node) > MOST_LINES:
        return None
    opsets = ", ".join(f"{json.dumps(entry.domain)} : {entry.version}" for entry in proto.opset_import)
    lines = [f"<ir_version: {proto.ir_version}, opset_import: [{opsets}]>"]
    for line in _graph_lines("", "model", proto.graph, known or {}):
        lines.append(cut(" ".join(line.splitlines()), _LONGEST_LINE))  # a name may hold line ends
        if len(lines) > MOST_LINES:
            return None
    return lines


def tensor_type(dtype: int, shape: Sequence[int]) -> str:
    """Return the type of a tensor in the words of ONNX text."""
    return _dtype(dtype) + _dims([*map(str, shape)])


def type_text(kind: TypeProto) -> str:
    """Return a type in the words of ONNX text: ``float16[1, 12, n]``, ``seq(int64[])``; "" where nothing is said."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if not tensor.HasField("shape"):
            return _dtype(tensor.elem_type)
        sizes = [
            one.dim_param or (str(one.dim_value) if one.HasField("dim_value") else "?") for one in tensor.shape.dim
        ]
        return _dtype(tensor.elem_type) + _dims(sizes)
    if which == "map_type":
        return f"map({_dtype(kind.map_type.key_type)}, {type_text(kind.map_type.value_type)})"
    if which in _CONTAINERS:
        return f"{_CONTAINERS[which]}({type_text(getattr(kind, which).elem_type)})"
    return ""


def operator_of(node: NodeProto) -> str:
    """Return a node's operator, with its domain unless that is ONNX's own."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _graph_lines(before: str, called: str, graph: GraphProto, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a graph; ``before``: what stands before each; ``known``: types around it."""
    weights = {one.name: _weight(one) for one in graph.initializer}
    weights |= {one.values.name: f"sparse {_weight(one.values)}" for one in graph.sparse_initializer}
    declared = (*graph.value_info, *graph.output, *graph.input)
    types = {**known, **{one.name: kind for one in declared if "[" in (kind := type_text(one.type))}}
    types |= {one.name: kind for one in declared if one.name not in types and (kind := type_text(one.type))}
    inputs, outputs = (
        ", ".join(f"{types.get(one.name, '')} {_name(one.name)}".strip() for one in values)
        for values in (graph.input, graph.output)
    )
    yield f"{before}{called} ({inputs}) => ({outputs})"
    if weights:
        held = ", ".join(f"{kind} {_name(name)}" for name, kind in [*weights.items()][:_MOST_DIMS])
        more = len(weights) - _MOST_DIMS
        yield f"{before}   <{held}{f', and {more} more' if more > 0 else ''}>  # weights"
    yield f"{before}{{"
    for node in graph.node:
        yield from _node_lines(f"{before}   ", node, types)
    yield f"{before}}}"


def _node_lines(before: str, node: NodeProto, types: Mapping[str, str]) -> Iterator[str]:
    name = f"[{_name(node.name)}] " if node.name else ""
    given = ", ".join(_attribute(one) for one in node.attribute if one.type not in _GRAPHS)
    told = f"<{given}> " if given else ""
    made = ", ".join(map(_name, node.output))
    kinds = ", ".join(filter(None, (types.get(one, "") for one in node.output)))
    line = f"{before}{name}{made} = {operator_of(node)} {told}({', '.join(map(_name, node.input))})"
    yield f"{line}  # {kinds}" if kinds else line
    for one in node.attribute:
        for graph in [one.g] if one.type == AttributeProto.GRAPH else one.graphs if one.type in _GRAPHS else []:
            yield from _graph_lines(f"{before}   ", f"{one.name}:", graph, types)


def _weight(tensor: TensorProto) -> str:
    return tensor_type(tensor.data_type, tensor.dims)


def _dtype(number: int) -> str:
    return "?" if not number else _called(TensorProto.DataType, number).strip()


def _dims(sizes: Sequence[str]) -> str:
    more = ", ..." if len(sizes) > _MOST_DIMS else ""
    return f"[{', '.join(cut(size, 20) for size in sizes[:_MOST_DIMS])}{more}]"


def _name(name: str) -> str:
    """Return a name as ONNX text has it; line breaks and what no screen shows as escapes."""
    short = cut(name, _LONGEST_NAME)
    return short if _IDENTIFIER.fullmatch(short) or not short else json.dumps(short, ensure_ascii=False)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _bulleted(names: Sequence[str]) -> str:
    more = len(names) - _MOST_ROWS
    return bullets([*map(code, names[:_MOST_ROWS]), *([f"{more} more; result.json has them all"] if more > 0 else [])])


def _row(node: NodeProto) -> tuple[str, ...]:
    inputs, outputs = (", ".join(name or "(none)" for name in names) for names in (node.input, node.output))
    return node.name, operator_of(node), inputs, outputs, ", ".join(map(_attribute, node.attribute))


def _attribute(attribute: AttributeProto) -> str:
    kind = attribute.type
    if attribute.ref_attr_name:
        value = f"@{attribute.ref_attr_name}"
    elif kind == AttributeProto.TENSOR:
        value = f"{_called(TensorProto.DataType, attribute.t.data_type)}{list(attribute.t.dims)}"
    elif kind in _GRAPHS:
        value = "a graph"
    elif kind == AttributeProto.STRING:
        value = attribute.s[:40].decode("utf-8", "backslashreplace")
    elif kind in (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.INTS, AttributeProto.FLOATS):
        whole = onnx.helper.get_attribute_value(attribute)
        several = isinstance(whole, Sequence) and len(whole) > 8
        value = f"[{', '.join(f'{item:g}' for item in whole[:8])}, ...]" if several else _number(whole)
    else:
        value = _called(AttributeProto.AttributeType, kind)
    return f"{attribute.name}={value}"


def _called(enumeration: Any, number: int) -> str:
    """Return the name of a member; of a number that is none, the number: a model may hold what this ONNX does not."""
    try:
        return str(enumeration.Name(number)).lower()
    except ValueError:
        return f"type {number} "


def _number(value: object) -> str:
    if isinstance(value, Sequence):
        return f"[{', '.join(_number(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
