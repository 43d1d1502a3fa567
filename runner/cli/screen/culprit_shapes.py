"""What the nodes of an answer look like: operator, dtypes and shapes, from the model that was handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, defs

from runner.cli.screen.layout import short
from runner.files import is_plain
from runner.model.files.parse_without_weights import parse_without_weights
from runner.text import counted

_MOST = 3
_MOST_INPUTS = 4
_LONGEST = 120
_LARGEST = 256 << 20
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


def looks(path: Path, names: Collection[str]) -> list[str]:
    """Return what nodes look like, as ``MatMul float16 [8, 1024] x [1024, 1024]``: the most frequent first.

    They are those with the ``names``, or all where the file knows none of these (a reduced model may have others).
    Nothing where no model can be read there.
    """
    try:
        if not is_plain(path) or path.stat().st_size > _LARGEST:
            return []
        model = parse_without_weights(path)
    except (OSError, ValueError, RecursionError):
        return []
    if model is None:
        return []
    known = _types(model.graph)
    wanted = {*names}
    nodes = [node for called, node in _named(model.graph.node) if called & wanted] or [*model.graph.node]
    if len(nodes) > 2 * len(names) + _MOST_INPUTS:  # not the answer's alone
        return []
    _infer(model.graph.node, known, {one.domain: one.version for one in model.opset_import})
    found = Counter(_look(node, known) for node in nodes if node.op_type != "Constant").most_common()
    most = len(found) if len(found) == _MOST + 1 else _MOST  # that there is one more takes as much room as that one
    shown = [short(look, _LONGEST) + (f" ({times} times)" if times > 1 else "") for look, times in found[:most]]
    return [*shown, f"and {counted(len(found) - most, 'other kind')}"] if len(found) > most else shown


def _named(nodes: Iterable[NodeProto], above: str = "") -> Iterator[tuple[set[str], NodeProto]]:
    """Yield each node, nested ones included, with what an answer may call it: by its name, or by what it gives."""
    for node in nodes:
        names = {f"{above}{name}" for name in (node.name, *node.output[:1]) if name}
        yield names, node
        path = f"{above}{node.name or next(iter(node.output), '')}"
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _named(graph.node, f"{path}.{attribute.name}/")


def _infer(nodes: Iterable[NodeProto], known: dict[str, tuple[str, str]], versions: Mapping[str, int]) -> None:
    """Add the dtypes of what nodes give, where their operators say that it is that of what they read.

    A reduced model has no types for tensors inside it.
    """
    for node in nodes:
        try:
            schema = defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        except (defs.SchemaError, ValueError):
            continue
        read = zip(schema.inputs, node.input, strict=False)
        dtypes = {formal.type_str: known[name][0] for formal, name in read if name in known}
        for formal, name in zip(schema.outputs, node.output, strict=False):
            if name not in known and (dtype := dtypes.get(formal.type_str)):
                known[name] = dtype, "?"


def _look(node: NodeProto, known: dict[str, tuple[str, str]]) -> str:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    inputs = [known.get(name, ("", "?")) for name in node.input if name]
    if all(shape in ("", "?") for _, shape in inputs):  # what it gives tells more
        given = [known[name] for name in node.output if name in known]
        inputs = given if any(shape != "?" for _, shape in given) else inputs
    shown = inputs[:_MOST_INPUTS]
    dtypes = list(dict.fromkeys(dtype for dtype, _ in shown if dtype))
    if any(shape == "?" for _, shape in shown):
        return " ".join([operator, " x ".join(dtypes)]).strip()
    more = " x ..." if len(inputs) > len(shown) else ""
    if len(dtypes) > 1:
        return f"{operator} {' x '.join(f'{dtype} {shape}'.strip() for dtype, shape in shown)}{more}"
    return " ".join([operator, *dtypes, " x ".join(shape for _, shape in shown)]).strip() + more


def _types(graph: GraphProto) -> dict[str, tuple[str, str]]:
    declared: Iterable[ValueInfoProto] = (*graph.value_info, *graph.input, *graph.output)
    known = {one.name: _declared(one) for one in declared if one.type.HasField("tensor_type")}
    made = {
        node.output[0]: _of(attribute.t)
        for node in graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value" and node.output
    }
    return known | made | {one.name: _of(one) for one in graph.initializer}


def _declared(value: ValueInfoProto) -> tuple[str, str]:
    kind = value.type.tensor_type
    dims = [str(one.dim_value) if one.HasField("dim_value") else one.dim_param or "?" for one in kind.shape.dim]
    return _dtype(kind.elem_type), f"[{', '.join(dims)}]" if kind.HasField("shape") else "?"


def _of(tensor: TensorProto) -> tuple[str, str]:
    return _dtype(tensor.data_type), str(list(tensor.dims))


def _dtype(number: int) -> str:
    names = {value: name for name, value in TensorProto.DataType.items()}
    name = names.get(number, "") if number else ""
    return _NAMES.get(name, name.lower())
