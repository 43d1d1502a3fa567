"""Malformed model files whose protobuf is sound: names that are none, nested graphs and functions that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from onnx import ModelProto, helper

from benchmarks.malformed_bases import Base
from benchmarks.malformed_fields import Change, changed, node_of, reads_own
from benchmarks.malformed_files import Malformed, plain

_STRANGE = {
    "NUL": "a\0b",
    "newline": "a\nwinnow: all is well",
    "carriage return": "a\rb",
    "escape": "a\x1b[2Jb",
    "above": "../../../outside/secret.bin",
    "absolute": "/etc/passwd",
    "quotes": "a'b\"c",
    "slashes": "a/b\\c",
    "blank": " ",
    "right to left": "a\u202eb",
    "a megabyte": "x" * (1 << 20),
    "a placeholder": "{model} $HOME ${oc.env:HOME} %s",
}


def scopes(bases: Mapping[str, Base]) -> Iterator[Malformed]:
    """Yield all of them."""
    for kind, listed in (("names", _names()), ("nesting", _nesting()), ("functions", _functions())):
        for base, name, change in listed:
            yield plain(kind, f"{base}: {name}", changed(bases[base], change), bases[base])
    for depth in (30, 40, 60, 200, 3000):
        yield plain("nesting", f"If in If, {depth} deep", nested(depth))
    yield from _not_text(bases)


def _not_text(bases: Mapping[str, Base]) -> Iterator[Malformed]:
    """Names that are no UTF-8: what protobuf would not write."""
    for base, name in (
        *(("conv", name) for name in ("image", "/Conv_c1", "Relu", "w1", "c1", "scores", "kernel_shape", "conv")),
        *(("control", name) for name in ("then_out", "/Mul_then_out", "then_branch", "Mul", "body")),
        *(("functions", name) for name in ("local", "Leak", "slope", "alpha", "Block")),
        *(("external", name) for name in ("w1", "weights.bin", "location", "offset")),
    ):
        content = bases[base].model.SerializeToString()
        broken = content.replace(name.encode(), b"\xff\xc0" + name.encode()[2:])
        yield plain("names", f"{base}: {name} that is no text", broken, bases[base])


# ---- names


def _names() -> Iterator[tuple[str, str, Change]]:
    for what, name in _STRANGE.items():
        yield "conv", f"{what} in a node's name", lambda model, name=name: setattr(model.graph.node[0], "name", name)
        yield "conv", f"{what} in a kind", lambda model, name=name: setattr(model.graph.node[0], "op_type", name)
        yield "conv", f"{what} in an unknown tensor", lambda model, name=name: model.graph.node[0].input.append(name)
        yield "attention", f"{what} in a tensor", lambda model, name=name: _renamed(model, "sum", name)
        yield "attention", f"{what} in an input", lambda model, name=name: _renamed(model, "x", name)
        yield "external", f"{what} in a domain", lambda model, name=name: setattr(model.graph.node[0], "domain", name)


def _renamed(model: ModelProto, old: str, new: str) -> None:
    graph = model.graph
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for one in [*graph.input, *graph.output, *graph.initializer]:
        if one.name == old:
            one.name = new


# ---- nested graphs and functions


def _nesting() -> Iterator[tuple[str, str, Change]]:
    def inside(kind: str, change: Callable[[object], object], at: int = 0) -> Change:
        return lambda model: change(node_of(model, kind).attribute[at].g)

    for kind in ("If", "Loop", "Scan"):
        for part in ("node", "input", "output"):
            yield (
                "control",
                f"{kind} without {part}s inside",
                inside(kind, lambda graph, part=part: graph.ClearField(part)),
            )
        yield (
            "control",
            f"{kind}, an unknown tensor inside",
            inside(kind, lambda graph: graph.node[0].input.append("ghost")),
        )
        yield "control", f"{kind}, a cycle inside", inside(kind, lambda graph: reads_own(graph.node[0]))
        yield (
            "control",
            f"{kind}, a node twice inside",
            inside(kind, lambda graph: graph.node.add().CopyFrom(graph.node[0])),
        )
        yield (
            "control",
            f"{kind}, an unknown kind inside",
            inside(kind, lambda graph: setattr(graph.node[0], "op_type", "No")),
        )
        yield (
            "control",
            f"{kind}, an outer name inside",
            inside(kind, lambda graph: graph.node[0].output.__setitem__(0, "x")),
        )
        yield (
            "control",
            f"{kind}, an output twice inside",
            inside(kind, lambda graph: graph.output.add().CopyFrom(graph.output[0])),
        )
        yield (
            "control",
            f"{kind}, a weight that lies inside",
            inside(
                kind, lambda graph: graph.initializer.add(name="bad", data_type=1, dims=[1 << 50], raw_data=b"1234")
            ),
        )
        yield "control", f"{kind}, a weight outside the folder inside", inside(kind, _escape)
    yield "control", "a Loop without end", _endless


def _escape(graph: object) -> None:
    made = graph.initializer.add(name="bad", data_type=1, dims=[4], data_location=1)  # type: ignore[attr-defined]
    made.external_data.add(key="location", value="../outside/secret.bin")


def _endless(model: ModelProto) -> None:
    next(tensor for tensor in model.graph.initializer if tensor.name == "trips").raw_data = b"\xff" * 7 + b"\x7f"


def _functions() -> Iterator[tuple[str, str, Change]]:
    def one(change: Callable[[object], object], at: int = 1) -> Change:
        return lambda model: change(model.functions[at])

    yield "functions", "one that calls itself", one(lambda function: _calls(function, "Block"))
    yield "functions", "two that call each other", one(lambda function: _calls(function, "Block"), at=0)
    yield "functions", "the same twice", lambda model: model.functions.add().CopyFrom(model.functions[1])
    yield "functions", "none of the name", lambda model: model.functions.pop()
    yield "functions", "no body", one(lambda function: function.ClearField("node"))
    yield "functions", "no outputs", one(lambda function: function.ClearField("output"))
    yield "functions", "no inputs", one(lambda function: function.ClearField("input"))
    yield "functions", "no opsets", one(lambda function: function.ClearField("opset_import"))
    yield "functions", "no name", one(lambda function: function.ClearField("name"))
    yield "functions", "no domain", one(lambda function: function.ClearField("domain"))
    yield "functions", "too many inputs in a call", lambda model: model.graph.node[0].input.extend(["w1", "w2"])
    yield "functions", "too many outputs in a call", lambda model: model.graph.node[0].output.extend(["a", "b"])
    yield "functions", "an unknown tensor in a body", one(lambda function: function.node[0].input.append("ghost"))
    yield "functions", "a cycle in a body", one(lambda function: reads_own(function.node[0]))
    yield "functions", "an output that nobody makes", one(lambda function: function.output.append("ghost"))
    yield "functions", "an attribute that is not declared", one(lambda function: function.ClearField("attribute"), at=0)
    yield "functions", "one that is called Neg", one(lambda function: setattr(function, "domain", ""))
    yield "functions", "2**24 calls", _exponential


def _calls(function: object, name: str) -> None:
    function.node[-1].op_type = name  # type: ignore[attr-defined]
    function.node[-1].domain = "local"  # type: ignore[attr-defined]


def _exponential(model: ModelProto) -> None:
    """Functions that call the one before twice, 24 of them: a megabyte of model, 16 million nodes when inlined."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for level in range(24):
        below = f"F{level - 1}" if level else "Neg"
        domain = "local" if level else ""
        nodes = [
            helper.make_node(below, ["a"], ["m"], domain=domain),
            helper.make_node(below, ["m"], ["b"], domain=domain),
        ]
        model.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, imports))
    model.graph.node.append(helper.make_node("F23", ["y"], ["z"], domain="local"))
    model.graph.output[0].name = "z"


def nested(depth: int) -> bytes:
    """Return the bytes of a model with so many If nodes in each other; protobuf would not write them beyond 100."""

    def part(number: int, content: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(content)) + content

    def info(name: str, dtype: int) -> bytes:
        kind = part(1, b"\x08" + bytes([dtype]) + part(2, b""))
        return part(1, name.encode()) + part(2, kind)

    inner = part(1, part(1, b"x") + part(2, b"y0") + part(4, b"Neg")) + part(2, b"g") + part(12, info("y0", 1))
    for level in range(1, depth + 1):
        branches = b"".join(
            part(5, part(1, name) + part(6, inner if at == 0 else _LEAF) + b"\xa0\x01\x05")
            for at, name in enumerate((b"then_branch", b"else_branch"))
        )
        out = f"y{level}".encode()
        inner = part(1, part(1, b"yes") + part(2, out) + part(4, b"If") + branches) + part(2, b"g")
        inner += part(12, info(out.decode(), 1))
    inner += part(11, info("x", 1)) + part(11, info("yes", 9))
    return b"\x08\x08" + part(8, b"\x10\x11") + part(7, inner)


def _leaf() -> bytes:
    kind = b"\x0a\x04" + b"\x08\x01\x12\x00"
    info = b"\x0a\x01z\x12" + bytes([len(kind)]) + kind
    node = b"\x0a\x01x\x12\x01z\x22\x03Neg"
    return b"\x0a" + bytes([len(node)]) + node + b"\x12\x01l\x62" + bytes([len(info)]) + info


_LEAF = _leaf()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
