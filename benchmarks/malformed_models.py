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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

# the file with the weights of the model that has them outside
WEIGHTS = "weights.bin"


@dataclass(frozen=True)
class Base:
    """A sound model, and the files that lie beside it."""

    name: str
    model: ModelProto
    beside: Mapping[str, bytes] = field(default_factory=dict)


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


def _model(graph: GraphProto, functions: tuple[object, ...] = (), domains: tuple[str, ...] = ()) -> ModelProto:
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def _node(kind: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    """A node; names in ``inputs`` and ``outputs`` are parted by blanks, and `-` is an omitted one."""
    names = [["" if name == "-" else name for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, *names, name=f"/{kind}_{names[1][0]}", **attributes)


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
    inputs, outputs = [value("image", ["N", 3, 8, 8])], [value("scores", ["N", 5])]
    return Base("conv", _model(helper.make_graph(nodes, "conv", inputs, outputs, weights)))


def _attention() -> Base:
    shape = helper.make_node("Constant", [], ["shape"], value=_constant("", [1, 4, 2, 4]))
    root = helper.make_node("Constant", [], ["root"], value_float=2.0)
    nodes = [
        shape,
        root,
        *(_node("MatMul", f"x w{name}", name) for name in "qkv"),
        *(_node("Reshape", f"{name} shape", f"{name}4") for name in "qkv"),
        *(_node("Transpose", f"{name}4", f"{name}t", perm=perm) for name, perm in _PERMUTATIONS.items()),
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
    graph = helper.make_graph(nodes, "attention", [value("x", [1, 4, 8])], [value("y", [1, 4, 8])], weights)
    return Base("attention", _model(graph))


_PERMUTATIONS = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}


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
    outputs = [value("y", [6]), value("all", [4, 3])]
    return Base("control", _model(helper.make_graph(nodes, "control", [value("x", [3])], outputs, weights)))


def _external() -> Base:
    nodes = [_node("MatMul", "x w1", "h"), _node("Relu", "h", "r"), _node("MatMul", "r w2", "y")]
    weights, content = [], b""
    for name in ("w1", "w2"):
        inside = _weight(name, 8, 8)
        weights.append(outside(name, [8, 8], WEIGHTS, offset=len(content), length=len(inside.raw_data)))
        content += inside.raw_data
    graph = helper.make_graph(nodes, "external", [value("x", [2, 8])], [value("y", [2, 8])], weights)
    return Base("external", _model(graph), {WEIGHTS: content})


def outside(
    name: str, dims: list[int], location: str, dtype: int = TensorProto.FLOAT, **entries: object
) -> TensorProto:
    """A tensor whose elements lie in the file ``location``."""
    made = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
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
    inputs, outputs = [value("x", [1, 3, 4, 4])], [value("y", [1, 4, 4, 4])]
    return Base("quantized", _model(helper.make_graph(nodes, "quantized", inputs, outputs, weights)))


def _functions() -> Base:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leak")
    attribute = leaky.attribute.add(name="alpha", ref_attr_name="slope")
    attribute.type = 1
    inner = helper.make_function("local", "Leak", ["a"], ["b"], [leaky], imports, attributes=["slope"])
    call = helper.make_node("Leak", ["s"], ["t"], domain="local", slope=0.1)
    outer = helper.make_function("local", "Block", ["p", "q"], ["t"], [_node("MatMul", "p q", "s"), call], imports)
    nodes = [
        helper.make_node("Block", ["x", "w1"], ["h"], domain="local", name="first"),
        helper.make_node("Block", ["h", "w2"], ["y"], domain="local", name="second"),
    ]
    weights = [_weight("w1", 4, 4), _weight("w2", 4, 4)]
    graph = helper.make_graph(nodes, "functions", [value("x", [2, 4])], [value("y", [2, 4])], weights)
    return Base("functions", _model(graph, (inner, outer), ("local",)))


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


def plain(kind: str, name: str, content: bytes, base: Base | None = None) -> Malformed:
    """A model file of these bytes, with the files that lie beside ``base``."""

    def write(folder: Path) -> Path:
        for beside, data in (base.beside if base else {}).items():
            (folder / beside).write_bytes(data)
        (folder / MODEL).write_bytes(content)
        return folder / MODEL

    return Malformed(kind, name, write)


def bit_flips(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files with one to eight bits flipped; half of them only one."""
    sound = base.model.SerializeToString()
    for number in range(FLIPS):
        content = bytearray(sound)
        for _ in range(1 if number % 2 else random.randint(2, 8)):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        yield plain("bit flips", f"{base.name} {number}", bytes(content), base)


def truncations(base: Base) -> Iterator[Malformed]:
    """Yield files that end too early: by one byte, and at places all over."""
    sound = base.model.SerializeToString()
    ends = {1, 2, len(sound) - 1, *(len(sound) * step // TRUNCATIONS for step in range(1, TRUNCATIONS - 2))}
    for end in sorted(ends):
        yield plain("truncated", f"{base.name} {end}", sound[:end], base)


def wire(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield what protobuf itself has to cope with."""
    sound = base.model.SerializeToString()
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
        yield plain("wire format", name, content, base)


def not_models(base: Base, random: Random) -> Iterator[Malformed]:
    """Yield files of another kind."""
    sound = base.model.SerializeToString()
    contents = {
        "empty": b"",
        "one byte": b"\x08",
        "zeros": bytes(1 << 20),
        "text": b"this is not a model\n" * 40,
        "JSON": json.dumps({"ir_version": 8, "graph": {"node": []}}).encode(),
        "ONNX as text": b'<ir_version: 8, opset_import: ["": 17]>\ng (float[2] x) => (float[2] y) { y = Neg(x) }\n',
        "gzip": gzip.compress(sound, mtime=0),
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
        yield plain("not a model", name, content)


def paths() -> Iterator[Malformed]:
    """Yield paths at which there is no file that can be read."""
    makers: dict[str, Callable[[Path], object]] = {
        "missing": lambda path: None,
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a socket": _socket,
        "a dangling link": lambda path: path.symlink_to("nowhere"),
        "a loop of links": lambda path: path.symlink_to(path.name),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "3 GiB of nothing": _sparse,
    }
    for name, make in makers.items():
        yield Malformed("path", name, _path(make))


def _path(make: Callable[[Path], object]) -> Write:
    def write(folder: Path) -> Path:
        make(folder / MODEL)
        return folder / MODEL

    return write


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def escapes(base: Base) -> Iterator[Malformed]:
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
    for name, location in locations.items():
        yield _external_files(base, name, lambda tensor, location=location: _set(tensor, location=location))
    entries: dict[str, dict[str, object]] = {
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
    for name, changed in entries.items():
        yield _external_files(base, name, lambda tensor, changed=changed: _set(tensor, **changed))
    yield _external_files(base, "no entries at all", lambda tensor: tensor.ClearField("external_data"))
    yield _external_files(base, "two locations", lambda tensor: tensor.external_data.add(key="location", value=up))
    yield _external_files(base, "inside and outside", lambda tensor: setattr(tensor, "raw_data", bytes(256)))
    yield _external_files(base, "absurd dims", lambda tensor: tensor.dims.extend([1 << 40, 1 << 40]))
    yield _external_files(base, "a negative dimension", lambda tensor: tensor.dims.__setitem__(0, -8))
    yield _external_files(base, "strings", lambda tensor: setattr(tensor, "data_type", 8))
    yield _external_files(base, "an unknown type", lambda tensor: setattr(tensor, "data_type", 99))
    yield _external_files(base, "a location type of 7", lambda tensor: tensor.MergeFromString(b"\x70\x07"))
    yield _in_attribute(base, up)


def _set(tensor: TensorProto, **changed: object) -> None:
    for entry in tensor.external_data:
        if entry.key in changed:
            entry.value = str(changed[entry.key])


def _external_files(base: Base, name: str, change: Callable[[TensorProto], object]) -> Malformed:
    def write(folder: Path) -> Path:
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
        for beside, data in base.beside.items():
            (folder / beside).write_bytes(data)
        model = type(base.model).FromString(base.model.SerializeToString())
        change(model.graph.initializer[0])
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = entry.value.replace(
                    "ROOT", str(root).lstrip("/") if "//ROOT" in entry.value else str(root)
                )
        (folder / MODEL).write_bytes(model.SerializeToString())
        return folder / MODEL

    return Malformed("external data", name, write)


def _in_attribute(base: Base, location: str) -> Malformed:
    model = type(base.model).FromString(base.model.SerializeToString())
    constant = model.graph.node.add(op_type="Constant", output=["c"])
    attribute = constant.attribute.add(name="value", type=4)
    attribute.t.CopyFrom(outside("c", [4], location))
    return plain("external data", "a Constant's value above", model.SerializeToString(), base)


def secret() -> bytes:
    """What lies outside: as many float32 of one odd value as any of the models could want."""
    return struct.pack("<f", 1234.5678) * 4096


Change = Callable[[ModelProto], object]


def fields(bases: Mapping[str, Base]) -> Iterator[Malformed]:
    """Yield all of them."""
    changes: dict[str, Iterator[tuple[str, str, Change]]] = {
        "tensors": _tensors(),
        "attributes": _attributes(),
        "graph": _graph(),
        "types": _types(),
        "versions": _versions(),
    }
    for kind, listed in changes.items():
        for base, name, change in listed:
            yield plain(kind, f"{base}: {name}", changed(bases[base], change), bases[base])


def changed(base: Base, change: Change) -> bytes:
    model = ModelProto.FromString(base.model.SerializeToString())
    change(model)
    return model.SerializeToString()


# ---- tensors


def _first(change: Callable[[TensorProto], object]) -> Change:
    return lambda model: change(model.graph.initializer[0])


def _tensors() -> Iterator[tuple[str, str, Change]]:
    for code in (0, 2, 8, 9, 11, 15, 16, 17, 22, 23, 26, 27, 29, 99, -1, 2**31 - 1):
        yield "conv", f"type {code}", _first(lambda tensor, code=code: setattr(tensor, "data_type", code))
    for dims in ([], [0], [-1], [4, -3, 3, 3], [2**62, 4], [2**63 - 1], [2**32, 2**32], [1] * 5000, [0, 2**62]):
        shown = f"{dims[:3]}" if len(dims) > 4 else f"{dims}"
        yield "conv", f"dims {shown}", _first(lambda tensor, dims=dims: tensor.dims.__setitem__(slice(None), dims))
    for base in ("conv", "quantized", "control"):
        yield base, "a byte too few", _first(lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-1]))
        yield base, "a byte too many", _first(lambda tensor: setattr(tensor, "raw_data", tensor.raw_data + b"\0"))
        yield base, "no data", _first(lambda tensor: tensor.ClearField("raw_data"))
        yield base, "raw and typed data", _first(lambda tensor: tensor.float_data.extend([1.0] * 3))
        yield base, "data of another type", _first(_as_doubles)
        yield base, "a string for a number", _first(lambda tensor: tensor.string_data.append(b"x"))
        yield base, "a segment", _first(lambda tensor: tensor.segment.SetInParent())
        yield base, "no name", _first(lambda tensor: tensor.ClearField("name"))
    yield "conv", "sparse, and its indices too large", _sparse_fields([10**9], [1])
    yield "conv", "sparse, of negative indices", _sparse_fields([-1], [1])
    yield "conv", "sparse, of unequal lengths", _sparse_fields([1, 2, 3], [1])
    yield "conv", "sparse, of absurd dims", _sparse_fields([1], [1], [1 << 40, 1 << 40])
    yield "conv", "sparse, and empty", lambda model: model.graph.sparse_initializer.add()


def _as_doubles(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.double_data.extend([1.0] * 108)


def _sparse_fields(indices: list[int], values: list[int], dims: tuple[int, ...] | list[int] = (5,)) -> Change:
    def change(model: ModelProto) -> None:
        kept = [tensor for tensor in model.graph.initializer if tensor.name != "b2"]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        made = model.graph.sparse_initializer.add(dims=dims)
        made.values.CopyFrom(helper.make_tensor("b2", 1, [len(values)], values))
        made.indices.CopyFrom(helper.make_tensor("b2_indices", 7, [len(indices)], indices))

    return change


# ---- attributes


def node_of(model: ModelProto, kind: str) -> NodeProto:
    return next(node for node in model.graph.node if node.op_type == kind)


def _attribute(kind: str, change: Callable[[AttributeProto], object], at: int = 0) -> Change:
    return lambda model: change(node_of(model, kind).attribute[at])


def _attributes() -> Iterator[tuple[str, str, Change]]:
    for base, kind in (("conv", "Conv"), ("conv", "Gemm"), ("attention", "Transpose"), ("attention", "Constant")):
        for code in (0, 1, 3, 4, 5, 10, 13):
            change = _attribute(kind, lambda one, code=code: setattr(one, "type", code))
            yield base, f"{kind}'s attribute of type {code}", change
        yield base, f"{kind} without attributes", lambda model, kind=kind: node_of(model, kind).ClearField("attribute")
        yield base, f"{kind}'s attribute twice", lambda model, kind=kind: _twice(node_of(model, kind))
        yield base, f"{kind}'s attribute of no name", _attribute(kind, lambda one: one.ClearField("name"))
        yield base, f"{kind}'s attribute that refers", _attribute(kind, lambda one: setattr(one, "ref_attr_name", "r"))
    for name, numbers in {
        "a million numbers": [1] * 1_000_000,
        "absurd numbers": [2**62, 2**62],
        "negative numbers": [-3, -3],
        "zeros": [0, 0],
        "three numbers": [3, 3, 3],
    }.items():
        change = _attribute("Conv", lambda one, numbers=numbers: one.ints.__setitem__(slice(None), numbers))
        yield "conv", f"a kernel of {name}", change
    yield "attention", "a permutation of the same axes", _attribute("Transpose", lambda one: one.ints.__setitem__(1, 0))
    yield "attention", "an axis of 2**62", _attribute("Softmax", lambda one: setattr(one, "i", 1 << 62))
    yield "conv", "a huge string", _huge
    yield "control", "an If without branches", lambda model: node_of(model, "If").ClearField("attribute")
    yield "control", "an If with one branch", lambda model: node_of(model, "If").attribute.pop()
    yield "control", "branches that are numbers", _attribute("If", lambda one: setattr(one, "type", 2))
    yield "control", "a branch that is not there", _attribute("If", lambda one: one.ClearField("g"))
    yield "control", "a Loop without a body", lambda model: node_of(model, "Loop").ClearField("attribute")
    yield "control", "a Scan without num_scan_inputs", lambda model: node_of(model, "Scan").attribute.pop()


def _huge(model: ModelProto) -> None:
    node_of(model, "Relu").attribute.add(name="note", type=3, s=b"x" * (4 << 20))


def _twice(node: NodeProto) -> None:
    node.attribute.add().CopyFrom(node.attribute[0])


# ---- the graph


def _graph() -> Iterator[tuple[str, str, Change]]:
    for base in ("conv", "attention", "control", "functions"):
        yield base, "no graph", lambda model: model.ClearField("graph")
        yield base, "an empty graph", lambda model: model.graph.Clear()
        for part in ("node", "input", "output", "initializer"):
            yield base, f"no {part}s", lambda model, part=part: model.graph.ClearField(part)
        yield base, "an input twice", lambda model: model.graph.input.add().CopyFrom(model.graph.input[0])
        yield base, "an output twice", lambda model: model.graph.output.add().CopyFrom(model.graph.output[0])
        yield base, "a node twice", lambda model: model.graph.node.add().CopyFrom(model.graph.node[0])
        yield base, "a weight twice", lambda model: model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        yield base, "a node that reads itself", lambda model: reads_own(model.graph.node[-1])
        yield base, "a cycle", _cycle
        yield base, "an unknown tensor", lambda model: model.graph.node[-1].input.__setitem__(0, "ghost")
        yield base, "an unknown output", lambda model: setattr(model.graph.output[0], "name", "ghost")
        yield base, "an output of no name", lambda model: model.graph.output[0].ClearField("name")
        yield base, "an input of no name", lambda model: model.graph.input[0].ClearField("name")
        yield base, "a node without a kind", lambda model: model.graph.node[-1].ClearField("op_type")
        yield base, "a kind that is not known", lambda model: setattr(model.graph.node[-1], "op_type", "Nonsense")
        yield base, "a domain that is not known", lambda model: setattr(model.graph.node[-1], "domain", "no.such")
        yield base, "a node that reads nothing", lambda model: model.graph.node[-1].ClearField("input")
        yield base, "a node that makes nothing", lambda model: model.graph.node[-1].ClearField("output")
        yield base, "a node of 5,000 inputs", lambda model: model.graph.node[-1].input.extend(["x"] * 5000)
        yield base, "a weight that is computed", _shadowed
        yield base, "nodes in reverse", _reversed
    yield "conv", "an input that is a weight of another type", _clash
    yield "conv", "an input that is made by a node", lambda model: setattr(model.graph.input[0], "name", "r1")


def reads_own(node: NodeProto) -> None:
    node.input[0] = node.output[0]


def _cycle(model: ModelProto) -> None:
    first = next(node for node in model.graph.node if node.input)
    first.input[0] = model.graph.node[-1].output[0]


def _shadowed(model: ModelProto) -> None:
    model.graph.initializer.add(name=model.graph.node[0].output[0], data_type=1, dims=[1], raw_data=bytes(4))


def _reversed(model: ModelProto) -> None:
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


def _clash(model: ModelProto) -> None:
    model.graph.input.extend([value("w1", [7], TensorProto.INT64)])


# ---- declared types and versions


def _types() -> Iterator[tuple[str, str, Change]]:
    for code in (0, 8, 9, 16, 23, 99, -1):
        yield "conv", f"an input of type {code}", _input(lambda one, code=code: setattr(one, "elem_type", code))
    for size in (0, -1, 1 << 20, 1 << 40, (1 << 63) - 1):
        yield "conv", f"an input with a size of {size}", _input(lambda one, size=size: _size(one, size))
        yield "attention", f"an input with a size of {size}", _input(lambda one, size=size: _size(one, size))
    yield "conv", "an input of 5,000 dimensions", _input(lambda one: [one.shape.dim.add() for _ in range(5000)])
    yield "conv", "an input without a shape", _input(lambda one: one.ClearField("shape"))
    yield "conv", "an input without a type", lambda model: model.graph.input[0].ClearField("type")
    for kind in ("sequence_type", "map_type", "optional_type", "sparse_tensor_type"):
        yield "conv", f"an input that is a {kind}", lambda model, kind=kind: _retyped(model, kind)
    yield (
        "conv",
        "an output of another type",
        lambda model: setattr(model.graph.output[0].type.tensor_type, "elem_type", 7),
    )
    yield "conv", "an output of another shape", lambda model: _size(model.graph.output[0].type.tensor_type, 1 << 40)
    yield "conv", "value_info that lies", lambda model: model.graph.value_info.extend([value("c1", [1 << 60], 8)])


def _input(change: Callable[[object], object]) -> Change:
    return lambda model: change(model.graph.input[0].type.tensor_type)


def _size(tensor: object, size: int) -> None:
    tensor.shape.dim[1].dim_value = size  # type: ignore[attr-defined]


def _retyped(model: ModelProto, kind: str) -> None:
    model.graph.input[0].ClearField("type")
    getattr(model.graph.input[0].type, kind).SetInParent()


def _versions() -> Iterator[tuple[str, str, Change]]:
    for version in (0, 1, 2, 3, 999, -1, (1 << 63) - 1):
        yield "conv", f"IR version {version}", lambda model, version=version: setattr(model, "ir_version", version)
    for version in (0, 1, 6, 999, -1, (1 << 63) - 1):
        yield (
            "conv",
            f"opset {version}",
            lambda model, version=version: setattr(model.opset_import[0], "version", version),
        )
    for base in ("conv", "control", "functions"):
        yield base, "no opset", lambda model: model.ClearField("opset_import")
        yield base, "two opsets", lambda model: model.opset_import.add(domain="", version=11)
        yield base, "an opset of no version", lambda model: model.opset_import[0].ClearField("version")
        yield base, "another domain only", lambda model: setattr(model.opset_import[0], "domain", "no.such")


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
    for kind, listed in (("names", _names()), ("nesting", _nesting()), ("functions", _functions_scopes())):
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


def _functions_scopes() -> Iterator[tuple[str, str, Change]]:
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
