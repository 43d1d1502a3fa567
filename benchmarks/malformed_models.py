"""Sound models that hold all that a model file can hold, and malformed ones made of them, always the same.

Bytes that were damaged, files that are no models, weights that lie elsewhere; and sound protobuf whose content is not:
wrong types, cycles, absurd sizes, names that are none, nested graphs and functions that cannot be.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks import varint

# the file with the weights of the model that has them outside
WEIGHTS = "weights.bin"


@dataclass(frozen=True)
class Base:
    """A sound model, and the files that lie beside it."""

    name: str
    model: ModelProto
    beside: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """The model file."""
        return self.model.SerializeToString()

    def changed(self, change: Change) -> bytes:
        """Return the file of a model to which something was done."""
        model = ModelProto.FromString(self.content)
        change(model)
        return model.SerializeToString()


def bases() -> dict[str, Base]:
    """Return the sound models by name, always the same ones."""
    made = [_convolution(), _attention(), _control_flow(), _external(), _quantized(), _functions()]
    return {base.name: base for base in made}


def value(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> object:
    return helper.make_tensor_value_info(name, dtype, shape)


def _weight(name: str, *shape: int) -> TensorProto:
    count = int(np.prod(shape))
    return numpy_helper.from_array(np.linspace(-0.5, 0.5, count, dtype=np.float32).reshape(shape), name)


def _constant(name: str, values: object, dtype: type = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _base(
    name: str,
    nodes: Sequence[NodeProto],
    inputs: Sequence[object],
    outputs: Sequence[object],
    weights: Sequence[TensorProto],
    **files: bytes,
) -> Base:
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    return Base(name, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), files)


def _node(kind: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    """A node; names in ``inputs`` and ``outputs`` are parted by blanks."""
    made = outputs.split()
    return helper.make_node(kind, inputs.split(), made, name=f"/{kind}_{made[0]}", **attributes)


def _convolution() -> Base:
    nodes = [
        _node("Conv", "image w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        _node("BatchNormalization", "c1 scale b1 mean var", "n1", epsilon=1e-5),
        _node("Relu", "n1", "r1"),
        _node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        _node("GlobalAveragePool", "p1", "g1"),
        _node("Flatten", "g1", "f1", axis=1),
        _node("Gemm", "f1 w2 b2", "scores", transB=1),
    ]
    weights = [_weight("w1", 4, 3, 3, 3), *(_weight(name, 4) for name in ("b1", "scale", "mean"))]
    weights += [_constant("var", [1, 1, 1, 1], np.float32), _weight("w2", 5, 4), _weight("b2", 5)]
    return _base("conv", nodes, [value("image", ["N", 3, 8, 8])], [value("scores", ["N", 5])], weights)


def _attention() -> Base:
    permutations = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    nodes = [
        helper.make_node("Constant", [], ["shape"], value=_constant("", [1, 4, 2, 4])),
        helper.make_node("Constant", [], ["root"], value_float=2.0),
        *(_node("MatMul", f"x w{name}", name) for name in "qkv"),
        *(_node("Reshape", f"{name} shape", f"{name}4") for name in "qkv"),
        *(_node("Transpose", f"{name}4", f"{name}t", perm=perm) for name, perm in permutations.items()),
        _node("MatMul", "qt kt", "raw"),
        _node("Div", "raw root", "scaled"),
        _node("Softmax", "scaled", "weighted", axis=-1),
        _node("MatMul", "weighted vt", "mixed"),
        _node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        _node("Reshape", "back flat", "joined"),
        _node("Add", "joined x", "sum"),
        _node("LayerNormalization", "sum gamma beta", "y", axis=-1),
    ]
    weights = [*(_weight(f"w{name}", 8, 8) for name in "qkv"), _weight("gamma", 8), _weight("beta", 8)]
    weights.append(_constant("flat", [1, 4, 8]))
    return _base("attention", nodes, [value("x", [1, 4, 8])], [value("y", [1, 4, 8])], weights)


def _control_flow() -> Base:
    then = helper.make_graph([_node("Mul", "x two", "then_out")], "then", [], [value("then_out", [3])])
    other = helper.make_graph([_node("Sub", "x two", "else_out")], "else", [], [value("else_out", [3])])
    body = helper.make_graph(
        [_node("Add", "state two", "next"), _node("Identity", "go", "go_on"), _node("Neg", "next", "row")],
        "body",
        [value("at", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state", [3])],
        [value("go_on", [], TensorProto.BOOL), value("next", [3]), value("row", [3])],
    )
    step = helper.make_graph(
        [_node("Add", "held one_row", "held_out"), _node("Abs", "held_out", "seen")],
        "step",
        [value("held", [3]), value("one_row", [3])],
        [value("held_out", [3]), value("seen", [3])],
    )
    nodes = [
        _node("ReduceSum", "x", "total", keepdims=0),
        _node("Greater", "total zero", "positive"),
        _node("If", "positive", "chosen", then_branch=then, else_branch=other),
        _node("Loop", "trips yes chosen", "last rows", body=body),
        _node("Scan", "last rows", "held_last all", body=step, num_scan_inputs=1),
        _node("Concat", "held_last last", "y", axis=0),
    ]
    weights = [_constant("two", 2, np.float32), _constant("zero", 0, np.float32), _constant("trips", 4)]
    weights.append(_constant("yes", True, np.bool_))
    return _base("control", nodes, [value("x", [3])], [value("y", [6]), value("all", [4, 3])], weights)


def _external() -> Base:
    nodes = [_node("MatMul", "x w1", "h"), _node("Relu", "h", "r"), _node("MatMul", "r w2", "y")]
    weights, content = [], b""
    for name in ("w1", "w2"):
        inside = _weight(name, 8, 8)
        weights.append(outside(name, [8, 8], WEIGHTS, offset=len(content), length=len(inside.raw_data)))
        content += inside.raw_data
    return _base("external", nodes, [value("x", [2, 8])], [value("y", [2, 8])], weights, **{WEIGHTS: content})


def outside(name: str, dims: list[int], location: str, **entries: object) -> TensorProto:
    """A tensor whose elements lie in the file ``location``."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=str(text))
    return made


def _quantized() -> Base:
    nodes = [
        _node("QuantizeLinear", "x xs xz", "xq"),
        _node("DequantizeLinear", "xq xs xz", "xd"),
        _node("DequantizeLinear", "wq ws wz", "wd", axis=0),
        _node("Conv", "xd wd", "c", kernel_shape=[1, 1]),
        _node("Relu", "c", "r"),
        _node("QuantizeLinear", "r xs xz", "rq"),
        _node("DequantizeLinear", "rq xs xz", "y"),
    ]
    weights = [
        _constant("xs", 0.02, np.float32),
        _constant("xz", 0, np.int8),
        _constant("wq", np.arange(-6, 6).reshape(4, 3, 1, 1), np.int8),
        _constant("ws", [0.1, 0.2, 0.3, 0.4], np.float32),
        _constant("wz", [0, 0, 0, 0], np.int8),
    ]
    return _base("quantized", nodes, [value("x", [1, 3, 4, 4])], [value("y", [1, 4, 4, 4])], weights)


_IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]


def _functions() -> Base:
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leak")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=1)
    inner = helper.make_function("local", "Leak", ["a"], ["b"], [leaky], _IMPORTS, attributes=["slope"])
    call = helper.make_node("Leak", ["s"], ["t"], domain="local", slope=0.1)
    outer = helper.make_function("local", "Block", ["p", "q"], ["t"], [_node("MatMul", "p q", "s"), call], _IMPORTS)
    nodes = [
        helper.make_node("Block", ["x", "w1"], ["h"], domain="local", name="first"),
        helper.make_node("Block", ["h", "w2"], ["y"], domain="local", name="second"),
    ]
    weights = [_weight("w1", 4, 4), _weight("w2", 4, 4)]
    base = _base("functions", nodes, [value("x", [2, 4])], [value("y", [2, 4])], weights)
    base.model.opset_import.append(_IMPORTS[1])
    base.model.functions.extend([inner, outer])
    return base


MODEL = "model.onnx"
FLIPS, TRUNCATIONS = 40, 16  # for each base
# a folder beside those of the models; nothing in it may be opened
OUTSIDE = "outside"
SECRET = "secret.bin"

Write = Callable[[Path], Path]


@dataclass(frozen=True)
class Malformed:
    """One malformed model. ``write``: puts its files into a folder and returns the path to hand over as the model."""

    kind: str
    name: str
    write: Write


def malformed(seed: int | None = None) -> list[Malformed]:
    """Return all malformed files, the same ones in the same order each time; with a ``seed`` further damaged ones."""
    sound, random = bases(), Random(0)
    found: list[Malformed] = []
    for base in sound.values():
        found += _bit_flips(base, random)
        found += _truncations(base)
    found += _wire(sound["conv"], random)
    found += _not_models(sound["conv"], random)
    found += _paths()
    found += _fields(sound)
    found += _escapes(sound["external"])
    for base in sound.values() if seed is not None else ():
        found += _bit_flips(base, Random(f"{seed} {base.name}"))
    return found


def plain(kind: str, name: str, content: bytes, beside: Mapping[str, bytes]) -> Malformed:
    """A model file of these bytes, with the files that lie beside it."""

    def write(folder: Path) -> Path:
        for file, data in {**beside, MODEL: content}.items():
            (folder / file).write_bytes(data)
        return folder / MODEL

    return Malformed(kind, name, write)


def _bit_flips(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files with one to eight bits flipped; half of them only one."""
    for number in range(FLIPS):
        content = bytearray(base.content)
        for _ in range(1 if number % 2 else random.randint(2, 8)):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        yield plain("bit flips", f"{base.name} {number}", bytes(content), base.beside)


def _truncations(base: Base) -> Iterator[Malformed]:
    """Yield files that end too early: by one byte, and at places all over."""
    sound = base.content
    ends = {1, 2, len(sound) - 1, *(len(sound) * step // TRUNCATIONS for step in range(1, TRUNCATIONS - 2))}
    for end in sorted(ends):
        yield plain("truncated", f"{base.name} {end}", sound[:end], base.beside)


def _wire(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield what protobuf itself has to cope with."""
    sound = base.content
    contents = {
        "twice in one file": sound + sound,
        "followed by zeros": sound + bytes(64),
        "followed by noise": sound + random.randbytes(64),
        "a field of 2 GiB that is not there": sound + b"\x3a" + b"\xff\xff\xff\xff\x07",
        "a length that never ends": sound + b"\x3a" + b"\xff" * 11,
        "field number zero": b"\x00\x00" + sound,
        "the graph as a number": b"\x38\x01" + sound,
        "the graph as a 64 bit word": b"\x39" + bytes(8) + sound,
        "an end without a group": sound + b"\x0c",
        "a group without an end": sound + b"\x0b",
        "10,000 unknown groups in each other": sound + b"\xa3\x06" * 10_000 + b"\xa4\x06" * 10_000,
        "an unknown field": sound + b"\xa2\x06\x05hello",
        "a graph in pieces": sound + b"\x3a\x00",
    }
    for name, content in contents.items():
        yield plain("wire format", name, content, base.beside)


def _not_models(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files of another kind."""
    contents = {
        "empty": b"",
        "one byte": b"\x08",
        "zeros": bytes(1 << 20),
        "text": b"this is not a model\n" * 40,
        "JSON": json.dumps({"ir_version": 8, "graph": {"node": []}}).encode(),
        "ONNX as text": b'<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] y) { y = Neg(x) }\n',
        "gzip": gzip.compress(base.content, mtime=0),
        "zip": b"PK\x03\x04" + random.randbytes(200),
        "ELF": b"\x7fELF\x02\x01\x01" + random.randbytes(200),
        "PNG": b"\x89PNG\r\n\x1a\n" + random.randbytes(200),
        "TFLite": b"\x1c\0\0\0TFL3" + random.randbytes(200),
        "UTF-16": "ä model".encode("utf-16"),
        "git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n",
        "a tensor": TensorProto(name="t", data_type=1, dims=[2], raw_data=bytes(8)).SerializeToString(),
        "only a version": b"\x08\x08",
        **{f"noise {number}": random.randbytes(1 << number) for number in range(2, 14)},
    }
    for name, content in contents.items():
        yield plain("not a model", name, content, {})


def _paths() -> Iterator[Malformed]:
    """Yield paths at which there is no file that can be read."""
    makers: dict[str, Callable[[Path], object]] = {
        "missing": lambda path: None,
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a socket": _socket,
        "a dangling link": lambda path: path.symlink_to("nowhere"),
        "a loop of links": lambda path: path.symlink_to(path.name),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "3 GiB of nothing": lambda path: (path.touch(), os.truncate(path, 3 << 30)),
    }
    for name, make in makers.items():
        yield Malformed("path", name, partial(_made, make))


def _made(make: Callable[[Path], object], folder: Path) -> Path:
    make(folder / MODEL)
    return folder / MODEL


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


# ---- what is changed in a sound model


Change = Callable[[Any], object]
Named = Iterator[tuple[str, str, Change]]
"""A base, what is changed in it, and how."""


def _at(message: Any, path: str) -> Any:
    """Return what a path leads to: fields by name, items of a list by number, name or (nodes) operator."""
    for part in filter(None, path.split("/")):
        if part.lstrip("-").isdigit():
            message = message[int(part)]
        elif hasattr(message, "extend"):
            message = next(one for one in message if part in (one.name, getattr(one, "op_type", "")))
        else:
            message = getattr(message, part)
    return message


def _put(path: str, new: object) -> Change:
    """Put something in place of a field, of an item, or of all items."""
    where, _, last = path.rpartition("/")

    def change(model: ModelProto) -> None:
        held = _at(model, where)
        if last.lstrip("-").isdigit():
            held[int(last)] = new
        elif isinstance(new, list):
            held.ClearField(last)
            getattr(held, last).extend(new)
        else:
            setattr(held, last, new)

    return change


def _clear(path: str) -> Change:
    where, _, last = path.rpartition("/")
    return lambda model: _at(model, where).ClearField(last)


def _twice(path: str) -> Change:
    """Add a copy of the first item."""
    return lambda model: _at(model, path).add().CopyFrom(_at(model, path)[0])


def _more(path: str, *new: object) -> Change:
    return lambda model: _at(model, path).extend(new)


def _add(path: str, **fields: object) -> Change:
    return lambda model: _at(model, path).add(**fields)


def _in_cycle(path: str) -> Change:
    """Let a node read what it makes."""
    return lambda model: _put(f"{path}/input/0", _at(model, path).output[0])(model)


def _fields(sound: Mapping[str, Base]) -> Iterator[Malformed]:
    """Yield models whose content is wrong."""
    changes: dict[str, Named] = {
        "tensors": _tensors(),
        "attributes": _attributes(),
        "graph": _graph(),
        "types": _types(),
        "versions": _versions(),
        "names": _names(),
        "nesting": _nesting(),
        "functions": _in_functions(),
    }
    for kind, listed in changes.items():
        for base, name, change in listed:
            yield plain(kind, f"{base}: {name}", sound[base].changed(change), sound[base].beside)
    for depth in (30, 40, 60, 200, 3000):
        yield plain("nesting", f"If in If, {depth} deep", nested(depth), {})
    yield from _not_text(sound)


# ---- tensors


def _tensors() -> Named:
    first = "graph/initializer/0"
    for code in (0, 2, 8, 9, 11, 15, 16, 17, 22, 23, 26, 27, 29, 99, -1, 2**31 - 1):
        yield "conv", f"type {code}", _put(f"{first}/data_type", code)
    for dims in ([], [0], [-1], [4, -3, 3, 3], [2**62, 4], [2**63 - 1], [2**32, 2**32], [1] * 5000, [0, 2**62]):
        shown = f"{dims[:3]}" if len(dims) > 4 else f"{dims}"
        yield "conv", f"dims {shown}", _put(f"{first}/dims", dims)
    changes = {
        "a byte too few": lambda model: _put(f"{first}/raw_data", _at(model, first).raw_data[:-1])(model),
        "a byte too many": lambda model: _put(f"{first}/raw_data", _at(model, first).raw_data + b"\0")(model),
        "no data": _clear(f"{first}/raw_data"),
        "raw and typed data": _more(f"{first}/float_data", *[1.0] * 3),
        "data of another type": _as_doubles,
        "a string for a number": _more(f"{first}/string_data", b"x"),
        "a segment": lambda model: _at(model, first).segment.SetInParent(),
        "no name": _clear(f"{first}/name"),
    }
    yield from ((base, name, change) for base in ("conv", "quantized", "control") for name, change in changes.items())
    yield "conv", "sparse, and its indices too large", _sparse([10**9], [1])
    yield "conv", "sparse, of negative indices", _sparse([-1], [1])
    yield "conv", "sparse, of unequal lengths", _sparse([1, 2, 3], [1])
    yield "conv", "sparse, of absurd dims", _sparse([1], [1], [1 << 40, 1 << 40])
    yield "conv", "sparse, and empty", _add("graph/sparse_initializer")


def _as_doubles(model: ModelProto) -> None:
    _clear("graph/initializer/0/raw_data")(model)
    _more("graph/initializer/0/double_data", *[1.0] * 108)(model)


def _sparse(indices: list[int], values: list[int], dims: Sequence[int] = (5,)) -> Change:
    def change(model: ModelProto) -> None:
        model.graph.initializer.remove(_at(model, "graph/initializer/b2"))
        made = model.graph.sparse_initializer.add(dims=dims)
        made.values.CopyFrom(helper.make_tensor("b2", 1, [len(values)], values))
        made.indices.CopyFrom(helper.make_tensor("b2_indices", 7, [len(indices)], indices))

    return change


# ---- attributes


def _attributes() -> Named:
    for base, kind in (("conv", "Conv"), ("conv", "Gemm"), ("attention", "Transpose"), ("attention", "Constant")):
        first = f"graph/node/{kind}/attribute/0"
        for code in (0, 1, 3, 4, 5, 10, 13):
            yield base, f"{kind}'s attribute of type {code}", _put(f"{first}/type", code)
        yield base, f"{kind} without attributes", _clear(f"graph/node/{kind}/attribute")
        yield base, f"{kind}'s attribute twice", _twice(f"graph/node/{kind}/attribute")
        yield base, f"{kind}'s attribute of no name", _clear(f"{first}/name")
        yield base, f"{kind}'s attribute that refers", _put(f"{first}/ref_attr_name", "r")
    for name, numbers in {
        "a million numbers": [1] * 1_000_000,
        "absurd numbers": [2**62, 2**62],
        "negative numbers": [-3, -3],
        "zeros": [0, 0],
        "three numbers": [3, 3, 3],
    }.items():
        yield "conv", f"a kernel of {name}", _put("graph/node/Conv/attribute/0/ints", numbers)
    yield "attention", "a permutation of the same axes", _put("graph/node/Transpose/attribute/0/ints/1", 0)
    yield "attention", "an axis of 2**62", _put("graph/node/Softmax/attribute/0/i", 1 << 62)
    yield "conv", "a huge string", _add("graph/node/Relu/attribute", name="note", type=3, s=b"x" * (4 << 20))
    yield "control", "an If without branches", _clear("graph/node/If/attribute")
    yield "control", "an If with one branch", lambda model: _at(model, "graph/node/If/attribute").pop()
    yield "control", "branches that are numbers", _put("graph/node/If/attribute/0/type", 2)
    yield "control", "a branch that is not there", _clear("graph/node/If/attribute/0/g")
    yield "control", "a Loop without a body", _clear("graph/node/Loop/attribute")
    yield "control", "a Scan without num_scan_inputs", lambda model: _at(model, "graph/node/Scan/attribute").pop()


# ---- the graph


def _graph() -> Named:
    changes = {
        "no graph": _clear("graph"),
        "an empty graph": lambda model: model.graph.Clear(),
        **{f"no {part}s": _clear(f"graph/{part}") for part in ("node", "input", "output", "initializer")},
        "an input twice": _twice("graph/input"),
        "an output twice": _twice("graph/output"),
        "a node twice": _twice("graph/node"),
        "a weight twice": _twice("graph/initializer"),
        "a node that reads itself": _in_cycle("graph/node/-1"),
        "a cycle": _cycle,
        "an unknown tensor": _put("graph/node/-1/input/0", "ghost"),
        "an unknown output": _put("graph/output/0/name", "ghost"),
        "an output of no name": _clear("graph/output/0/name"),
        "an input of no name": _clear("graph/input/0/name"),
        "a node without a kind": _clear("graph/node/-1/op_type"),
        "a kind that is not known": _put("graph/node/-1/op_type", "Nonsense"),
        "a domain that is not known": _put("graph/node/-1/domain", "no.such"),
        "a node that reads nothing": _clear("graph/node/-1/input"),
        "a node that makes nothing": _clear("graph/node/-1/output"),
        "a node of 5,000 inputs": _more("graph/node/-1/input", *["x"] * 5000),
        "a weight that is computed": _shadowed,
        "nodes in reverse": _reversed,
    }
    bases = ("conv", "attention", "control", "functions")
    yield from ((base, name, change) for base in bases for name, change in changes.items())
    yield "conv", "an input that is a weight of another type", _more("graph/input", value("w1", [7], TensorProto.INT64))
    yield "conv", "an input that is made by a node", _put("graph/input/0/name", "r1")


def _cycle(model: ModelProto) -> None:
    first = next(node for node in model.graph.node if node.input)
    first.input[0] = model.graph.node[-1].output[0]


def _shadowed(model: ModelProto) -> None:
    model.graph.initializer.add(name=model.graph.node[0].output[0], data_type=1, dims=[1], raw_data=bytes(4))


def _reversed(model: ModelProto) -> None:
    _put("graph/node", [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node[::-1]])(model)


# ---- declared types and versions


def _types() -> Named:
    first, last = (f"graph/{part}/0/type/tensor_type" for part in ("input", "output"))
    for code in (0, 8, 9, 16, 23, 99, -1):
        yield "conv", f"an input of type {code}", _put(f"{first}/elem_type", code)
    for size in (0, -1, 1 << 20, 1 << 40, (1 << 63) - 1):
        for base in ("conv", "attention"):
            yield base, f"an input with a size of {size}", _put(f"{first}/shape/dim/1/dim_value", size)
    dims = [type(helper.make_tensor_type_proto(1, [1]).tensor_type.shape.dim[0])()] * 5000
    yield "conv", "an input of 5,000 dimensions", _more(f"{first}/shape/dim", *dims)
    yield "conv", "an input without a shape", _clear(f"{first}/shape")
    yield "conv", "an input without a type", _clear("graph/input/0/type")
    for kind in ("sequence_type", "map_type", "optional_type", "sparse_tensor_type"):
        yield "conv", f"an input that is a {kind}", partial(_retyped, kind)
    yield "conv", "an output of another type", _put(f"{last}/elem_type", 7)
    yield "conv", "an output of another shape", _put(f"{last}/shape/dim/1/dim_value", 1 << 40)
    yield "conv", "value_info that lies", _more("graph/value_info", value("c1", [1 << 60], 8))


def _retyped(kind: str, model: ModelProto) -> None:
    model.graph.input[0].ClearField("type")
    getattr(model.graph.input[0].type, kind).SetInParent()


def _versions() -> Named:
    for version in (0, 1, 2, 3, 999, -1, (1 << 63) - 1):
        yield "conv", f"IR version {version}", _put("ir_version", version)
    for version in (0, 1, 6, 999, -1, (1 << 63) - 1):
        yield "conv", f"opset {version}", _put("opset_import/0/version", version)
    for base in ("conv", "control", "functions"):
        yield base, "no opset", _clear("opset_import")
        yield base, "two opsets", _add("opset_import", domain="", version=11)
        yield base, "an opset of no version", _clear("opset_import/0/version")
        yield base, "another domain only", _put("opset_import/0/domain", "no.such")


# ---- names

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


def _names() -> Named:
    for what, name in _STRANGE.items():
        yield "conv", f"{what} in a node's name", _put("graph/node/0/name", name)
        yield "conv", f"{what} in a kind", _put("graph/node/0/op_type", name)
        yield "conv", f"{what} in an unknown tensor", _more("graph/node/0/input", name)
        yield "attention", f"{what} in a tensor", partial(_renamed, "sum", name)
        yield "attention", f"{what} in an input", partial(_renamed, "x", name)
        yield "external", f"{what} in a domain", _put("graph/node/0/domain", name)


def _renamed(old: str, new: str, model: ModelProto) -> None:
    graph = model.graph
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for one in [*graph.input, *graph.output, *graph.initializer]:
        if one.name == old:
            one.name = new


def _not_text(sound: Mapping[str, Base]) -> Iterator[Malformed]:
    """Names that are no UTF-8: what protobuf would not write."""
    for base, names in {
        "conv": "image /Conv_c1 Relu w1 c1 scores kernel_shape conv",
        "control": "then_out /Mul_then_out then_branch Mul body",
        "functions": "local Leak slope alpha Block",
        "external": "w1 weights.bin location offset",
    }.items():
        for name in names.split():
            broken = sound[base].content.replace(name.encode(), b"\xff\xc0" + name.encode()[2:])
            yield plain("names", f"{base}: {name} that is no text", broken, sound[base].beside)


# ---- nested graphs and functions


def _nesting() -> Named:
    bad, elsewhere = {"name": "bad", "data_type": 1}, outside("bad", [4], "../outside/secret.bin")
    for kind in ("If", "Loop", "Scan"):
        inside = f"graph/node/{kind}/attribute/0/g"
        for part in ("node", "input", "output"):
            yield "control", f"{kind} without {part}s inside", _clear(f"{inside}/{part}")
        changes = {
            "an unknown tensor inside": _more(f"{inside}/node/0/input", "ghost"),
            "a cycle inside": _in_cycle(f"{inside}/node/0"),
            "a node twice inside": _twice(f"{inside}/node"),
            "an unknown kind inside": _put(f"{inside}/node/0/op_type", "No"),
            "an outer name inside": _put(f"{inside}/node/0/output/0", "x"),
            "an output twice inside": _twice(f"{inside}/output"),
            "a weight that lies inside": _add(f"{inside}/initializer", **bad, dims=[1 << 50], raw_data=b"1234"),
            "a weight outside the folder inside": _more(f"{inside}/initializer", elsewhere),
        }
        yield from (("control", f"{kind}, {name}", change) for name, change in changes.items())
    yield "control", "a Loop without end", _put("graph/initializer/trips/raw_data", b"\xff" * 7 + b"\x7f")


def _in_functions() -> Named:
    leak, block = "functions/0", "functions/1"
    changes = {
        "one that calls itself": partial(_calls, block),
        "two that call each other": partial(_calls, leak),
        "the same twice": lambda model: model.functions.add().CopyFrom(model.functions[1]),
        "none of the name": lambda model: model.functions.pop(),
        "no body": _clear(f"{block}/node"),
        "no outputs": _clear(f"{block}/output"),
        "no inputs": _clear(f"{block}/input"),
        "no opsets": _clear(f"{block}/opset_import"),
        "no name": _clear(f"{block}/name"),
        "no domain": _clear(f"{block}/domain"),
        "too many inputs in a call": _more("graph/node/0/input", "w1", "w2"),
        "too many outputs in a call": _more("graph/node/0/output", "a", "b"),
        "an unknown tensor in a body": _more(f"{block}/node/0/input", "ghost"),
        "a cycle in a body": _in_cycle(f"{block}/node/0"),
        "an output that nobody makes": _more(f"{block}/output", "ghost"),
        "an attribute that is not declared": _clear(f"{leak}/attribute"),
        "one that is called Neg": _put(f"{block}/domain", ""),
        "2**24 calls": _exponential,
    }
    yield from (("functions", name, change) for name, change in changes.items())


def _calls(function: str, model: ModelProto) -> None:
    call = _at(model, function).node[-1]
    call.op_type, call.domain = "Block", "local"


def _exponential(model: ModelProto) -> None:
    """Functions that call the one before twice, 24 of them: a megabyte of model, 16 million nodes when inlined."""
    for level in range(24):
        below, domain = (f"F{level - 1}", "local") if level else ("Neg", "")
        nodes = [helper.make_node(below, [read], [made], domain=domain) for read, made in ("am", "mb")]
        model.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, _IMPORTS))
    model.graph.node.append(helper.make_node("F23", ["y"], ["z"], domain="local"))
    model.graph.output[0].name = "z"


def nested(depth: int) -> bytes:
    """Return the bytes of a model with so many If nodes in each other; protobuf would not write them beyond 100."""

    def part(number: int, content: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(content)) + content

    def info(name: bytes, dtype: int) -> bytes:
        return part(1, name) + part(2, part(1, b"\x08" + bytes([dtype]) + part(2, b"")))

    leaf = part(1, part(1, b"x") + part(2, b"z") + part(4, b"Neg")) + part(2, b"l") + part(12, info(b"z", 1))
    inner = part(1, part(1, b"x") + part(2, b"y0") + part(4, b"Neg")) + part(2, b"g") + part(12, info(b"y0", 1))
    for level in range(1, depth + 1):
        branches = b"".join(
            part(5, part(1, name) + part(6, graph) + b"\xa0\x01\x05")
            for name, graph in ((b"then_branch", inner), (b"else_branch", leaf))
        )
        out = b"y%d" % level
        inner = part(1, part(1, b"yes") + part(2, out) + part(4, b"If") + branches) + part(2, b"g")
        inner += part(12, info(out, 1))
    inner += part(11, info(b"x", 1)) + part(11, info(b"yes", 9))
    return b"\x08\x08" + part(8, b"\x10\x11") + part(7, inner)


# ---- weights that lie elsewhere


def _escapes(base: Base) -> Iterator[Malformed]:
    """Yield external data that lies outside the model's folder, or is not what it says."""
    up = f"../{OUTSIDE}/{SECRET}"
    locations = {
        "above": up,
        "above, through a folder": f"sub/../../{OUTSIDE}/{SECRET}",
        "above, with backslashes": up.replace("/", "\\"),
        "above, with a dot": f"./{up}",
        "absolute": f"ROOT/{OUTSIDE}/{SECRET}",
        "absolute, with two slashes": f"/ROOT/{OUTSIDE}/{SECRET}",
        "a drive": "C:\\secret.bin",
        "a URL": f"file://ROOT/{OUTSIDE}/{SECRET}",
        "a home": f"~/{SECRET}",
        "a variable": "$HOME/secret.bin",
        "a link out": "link",
        "a link to a link out": "link2",
        "a folder that is a link out": f"folder/{SECRET}",
        "a link to a pipe outside": "pipelink",
        "a loop of links": "loop",
        "a pipe": "pipe",
        "a folder": "sub",
        "the model's folder": ".",
        "the folder above": "..",
        "nothing": "",
        "missing": "nowhere.bin",
        "/dev/zero": "/dev/zero",
        "a link to /dev/zero": "zero",
        "/dev/stdin": "/dev/stdin",
        "/proc/self/mem": "/proc/self/mem",
        "a NUL": f"{WEIGHTS}\0.txt",
        "a newline": f"{WEIGHTS}\n",
        "5,000 letters": "x" * 5000,
        "a link to a secret by a folder of links": f"folder/../{OUTSIDE}/{SECRET}",
    }
    entries: dict[str, dict[str, object]] = {name: {"location": location} for name, location in locations.items()} | {
        "an offset behind the end": {"offset": 1 << 40},
        "an offset of 2**63": {"offset": 1 << 63},
        "an offset of 2**70": {"offset": 1 << 70},
        "a negative offset": {"offset": -1},
        "an offset that is no number": {"offset": "many"},
        "an offset of 5,000 digits": {"offset": "9" * 5000},
        "an offset with underscores": {"offset": "1_0"},
        "a negative length": {"length": -256},
        "no bytes": {"length": 0},
        "one byte": {"length": 1},
        "a huge length": {"length": 1 << 62},
        "a length that is no number": {"length": "0x10"},
    }
    first = "graph/initializer/0"
    changes: dict[str, Change] = {name: partial(_set, changed) for name, changed in entries.items()} | {
        "no entries at all": _clear(f"{first}/external_data"),
        "two locations": _add(f"{first}/external_data", key="location", value=up),
        "inside and outside": _put(f"{first}/raw_data", bytes(256)),
        "absurd dims": _more(f"{first}/dims", 1 << 40, 1 << 40),
        "a negative dimension": _put(f"{first}/dims/0", -8),
        "strings": _put(f"{first}/data_type", 8),
        "an unknown type": _put(f"{first}/data_type", 99),
        "a location type of 7": lambda model: _at(model, first).MergeFromString(b"\x70\x07"),
    }
    for name, change in changes.items():
        yield Malformed("external data", name, partial(_with_links, base, change))
    constant = helper.make_node("Constant", [], ["c"], value=outside("c", [4], up))
    in_attribute = base.changed(_more("graph/node", constant))
    yield plain("external data", "a Constant's value above", in_attribute, base.beside)


def _set(entries: Mapping[str, object], model: ModelProto) -> None:
    for entry in model.graph.initializer[0].external_data:
        if entry.key in entries:
            entry.value = str(entries[entry.key])


def _with_links(base: Base, change: Change, folder: Path) -> Path:
    """Write a changed model beside links and pipes."""
    root = folder.parent
    (folder / "sub").mkdir()
    for link, target in {
        "link": root / OUTSIDE / SECRET,
        "link2": Path("link"),
        "folder": root / OUTSIDE,
        "pipelink": root / OUTSIDE / "pipe",
        "loop": Path("loop"),
        "zero": Path("/dev/zero"),
    }.items():
        (folder / link).symlink_to(target)
    os.mkfifo(folder / "pipe")

    def place(model: ModelProto) -> None:
        change(model)
        for entry in (entry for tensor in model.graph.initializer for entry in tensor.external_data):
            entry.value = entry.value.replace("ROOT", str(root).lstrip("/") if "//ROOT" in entry.value else str(root))

    return plain("", "", base.changed(place), base.beside).write(folder)


def secret() -> bytes:
    """What lies outside: as many float32 of one odd value as any of the models could want."""
    return struct.pack("<f", 1234.5678) * 4096
