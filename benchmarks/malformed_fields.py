"""Malformed model files whose protobuf is sound and whose content is not: wrong types, cycles, absurd sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from benchmarks.malformed_bases import Base, value
from benchmarks.malformed_files import Malformed, plain

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
    yield "conv", "sparse, and its indices too large", _sparse([10**9], [1])
    yield "conv", "sparse, of negative indices", _sparse([-1], [1])
    yield "conv", "sparse, of unequal lengths", _sparse([1, 2, 3], [1])
    yield "conv", "sparse, of absurd dims", _sparse([1], [1], [1 << 40, 1 << 40])
    yield "conv", "sparse, and empty", lambda model: model.graph.sparse_initializer.add()


def _as_doubles(tensor: TensorProto) -> None:
    tensor.ClearField("raw_data")
    tensor.double_data.extend([1.0] * 108)


def _sparse(indices: list[int], values: list[int], dims: tuple[int, ...] | list[int] = (5,)) -> Change:
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
