"""What an ONNX model is made of, what could trouble a run of it, and what its weights hold.

The operation ``describe_model``: what an ONNX model is made of, read with its weights left where they are.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, defs

from runner.exit_codes import ModelError
from runner.files import stamp
from runner.model.files.parse_without_weights import ExternalFiles, chunks
from runner.model.files.read_model import check_names, check_text, confirm_unchanged, parse_hashed, sort_nodes
from runner.model.graph import scopes
from runner.model.graph.graph_index import initializers_of
from runner.model.passes.infer_shapes import called
from runner.model.passes.lift_constants import constant_tensor
from runner.model.values import dtypes, tensor_bytes
from runner.model.values.tensor_bytes import dtype_name
from runner.text import counted, listed, one_line

# What is in the elements of a weight, seen piece by piece: a model's weights are never in memory all at once.

HALF_LARGEST = dtypes.FLOATS[TensorProto.FLOAT16].largest
HALF_VANISHES = dtypes.FLOATS[TensorProto.FLOAT16].least / 2
"""The largest number that float16 rounds to zero."""
_PIECE = 4 << 20
# a weight of so many elements has a median; a number above it is looked at, and so many times the median is odd
_SEVERAL, _LARGE, _ODD = 16, 1e4, 1e6
# what a slice has for "to the end", and less one for "to the beginning": no number that anything is computed with
_TO_THE_END = 2**63 - 1
# how the elements of a float type lie (complex numbers are two): unsigned integers, bits without the sign, of the
# fraction, and the numpy type
_LAYOUTS = {
    TensorProto.FLOAT: ("<u4", 0x7FFFFFFF, 0x007FFFFF, "<f4"),
    TensorProto.COMPLEX64: ("<u4", 0x7FFFFFFF, 0x007FFFFF, "<f4"),
    TensorProto.DOUBLE: ("<u8", 0x7FFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF, "<f8"),
    TensorProto.COMPLEX128: ("<u8", 0x7FFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF, "<f8"),
    TensorProto.FLOAT16: ("<u2", 0x7FFF, 0x03FF, "<f2"),
    TensorProto.BFLOAT16: ("<u2", 0x7FFF, 0x007F, ""),
}


@dataclass(frozen=True)
class WeightValues:
    """What is known of the elements of one tensor.

    ``digest``: of its bytes. ``subnormal``: elements below the least normal number of the type that are not zero;
    ``beyond_half``: finite ones that float16 has no number for. ``least``, ``greatest``: of all numbers, infinite ones
    included, but not those that mean "to the end" in int64; ``beyond``: the same of those that are infinite or that
    float16 has no number for. Of no number, or a type that is not looked into, the least is above the greatest.
    ``median``: of the absolute values, the least of the pieces; only where one of them is large.
    """

    nan: int = 0
    infinite: int = 0
    subnormal: int = 0
    beyond_half: int = 0
    least: float | int = math.inf
    greatest: float | int = -math.inf
    beyond: tuple[float, float] = (math.inf, -math.inf)
    digest: str = ""
    median: float = math.inf

    @property
    def magnitude(self) -> float:
        """The largest absolute value; 0 of no number."""
        return max(abs(self.least), abs(self.greatest)) if self.least <= self.greatest else 0

    def __add__(self, more: WeightValues) -> WeightValues:
        """Return what is known of both together, but for their bytes."""
        return WeightValues(
            self.nan + more.nan,
            self.infinite + more.infinite,
            self.subnormal + more.subnormal,
            self.beyond_half + more.beyond_half,
            min(self.least, more.least),
            max(self.greatest, more.greatest),
            (min(self.beyond[0], more.beyond[0]), max(self.beyond[1], more.beyond[1])),
            median=min(self.median, more.median),
        )


def values_in(dtype: int, pieces: Iterable[Any]) -> WeightValues:
    """Return what is in a tensor of this type whose little-endian bytes come in pieces of whole elements."""
    digest, found = hashlib.blake2b(digest_size=16), WeightValues()
    for piece in pieces:
        digest.update(piece)
        if dtype in _LAYOUTS:
            found += _floats(piece, dtype)
        elif dtype == TensorProto.INT64:
            whole = np.frombuffer(piece, "<i8")
            whole = whole[(whole > -_TO_THE_END) & (whole < _TO_THE_END)]
            if whole.size:
                found += WeightValues(least=int(whole.min()), greatest=int(whole.max()))
        elif dtype in dtypes.FLOATS and dtype in dtypes.BY_NUMBER:
            found += WeightValues(nan=int(dtypes.finiteness(piece, dtypes.BY_NUMBER[dtype])[1]))
    return replace(found, digest=digest.hexdigest())


def _floats(piece: Any, dtype: int) -> WeightValues:
    unsigned, magnitude, fraction, kind = _LAYOUTS[dtype]
    bits = np.frombuffer(piece, unsigned)
    # zero minus one is the largest of all
    subnormal = int(np.count_nonzero((bits & magnitude) - bits.dtype.type(1) < fraction))
    numbers = np.frombuffer(piece, kind) if kind else (bits.astype("<u4") << 16).view("<f4")
    nan = 0
    if np.isnan(numbers.min()):  # as rare as it is cheap to see
        whole, numbers = numbers.size, numbers[~np.isnan(numbers)]
        nan = whole - numbers.size
        if not numbers.size:
            return WeightValues(nan)
    least, greatest = float(numbers.min()), float(numbers.max())
    large = numbers.size >= _SEVERAL and _LARGE < max(-least, greatest) < math.inf
    median = float(np.median(np.abs(numbers).astype(np.float64))) if large else math.inf
    found = WeightValues(nan, 0, subnormal, 0, least, greatest, median=median)
    if least >= -HALF_LARGEST and greatest <= HALF_LARGEST:
        return found
    beyond = numbers[np.abs(numbers) > HALF_LARGEST]
    infinite = int(np.count_nonzero(np.isinf(beyond)))
    ends = float(beyond.min()), float(beyond.max())
    return replace(found, infinite=infinite, beyond_half=beyond.size - infinite, beyond=ends)


# The weights of a model, looked into one after the other, and where in the model each is.


@dataclass(frozen=True)
class Constant:
    """One tensor that the model holds.

    ``name``: of the initializer, or of the output of the node whose attribute it is. ``problem``: why its elements
    could not be seen.
    """

    name: str
    dtype: int
    dims: tuple[int, ...]
    bytes: int
    values: WeightValues
    problem: str = ""

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.dims) if all(dim >= 0 for dim in self.dims) else 0


def constants_of(model: ModelProto, path: Path) -> list[Constant]:
    """Return all tensors of the model that was read from ``path``, as far as they can be read."""
    files = ExternalFiles(path, own=True)
    return [_seen(name, tensor, files) for name, tensor in _tensors(model)]


def graphs_of(model: ModelProto) -> Iterator[GraphProto]:
    """Yield the graph of a model, those nested in it, and those nested in its functions."""
    yield from scopes.graphs_below(model.graph)
    for function in model.functions:
        for node in function.node:
            for nested in scopes.subgraphs(node):
                yield from scopes.graphs_below(nested)


def _tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    for graph in graphs_of(model):
        yield from ((tensor.name, tensor) for tensor in graph.initializer)
        yield from ((one.values.name, part) for one in graph.sparse_initializer for part in scopes.sparse_parts(one))
    for body in (model.graph.node, *(function.node for function in model.functions)):
        for node in scopes.all_nodes(body):
            name = next(iter(node.output), "") or node.name
            # a Constant may be written as plain numbers
            held = [*scopes.attribute_tensors(node.attribute)] or [*filter(None, [constant_tensor(node)])]
            yield from ((name, tensor) for tensor in held)


def _seen(name: str, tensor: TensorProto, files: ExternalFiles) -> Constant:
    dtype, dims, size, problem, values = tensor.data_type, tuple(tensor.dims), 0, "", WeightValues()
    try:
        if tensor_bytes.is_external(tensor):
            size = tensor_bytes.byte_size(dtype, dims) or 0
            values = values_in(dtype, chunks(*files.region(tensor)))
        elif problem := tensor_bytes.size_problem(tensor) or "":
            pass
        elif dtype == tensor_bytes.STRING:
            size = sum(map(len, tensor.string_data))
        else:
            size = tensor_bytes.byte_size(dtype, dims) or 0
            raw = memoryview(tensor_bytes.raw_bytes(tensor) or b"")
            values = values_in(dtype, (raw[at : at + _PIECE] for at in range(0, len(raw), _PIECE)))
    except (ModelError, OSError, ValueError) as error:
        problem = str(error)
    return Constant(name, dtype, dims, size, values, problem)


# What in a model could trouble a run of it: of each kind one line, with the names of all places.

_INT32 = dtypes.limits_of(TensorProto.INT32) or (0, 0)
# bytes from which on it matters that a weight is there twice
_WORTH_SHARING = 1024
# attributes that hold a small number which keeps another from being zero
_EPSILONS = frozenset({"epsilon", "eps"})
_MOST_NAMES = 1000
# names that optimizers of ONNX Runtime give
_OF_FUSIONS = re.compile(r"^gemm_(in|out)put_(re)?shape|^Inserted(PrecisionFree)?Cast_|^FusedBack_|_token_\d+$")


@dataclass(frozen=True)
class Concern:
    """One kind of trouble. ``what``: in words, with what it leads to; ``names``: nodes, tensors or operators."""

    kind: str
    what: str
    names: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return it as result.json has it."""
        names = list(self.names)
        return {"kind": self.kind, "where": one_line(listed(names)), "what": self.what, "names": names[:_MOST_NAMES]}


def concerns_of(model: ModelProto, constants: Sequence[Constant]) -> list[Concern]:
    """Return what the model itself tells."""
    found = (
        _invalid(model.graph),
        *_of_opsets(model),
        *_of_weights(constants),
        *_of_duplicates(constants),
        _epsilons(model),
        *_of_graphs(model),
        *_of_nodes(model),
    )
    return [one for one in found if one.names]


def operator_name(domain: str, name: str) -> str:
    """Return what an operator is called, with its domain unless it is the default one."""
    return f"{domain}.{name}" if scopes.domain_of(domain) else name


def unknown_operators(model: ModelProto) -> list[tuple[str, str, list[str]]]:
    """Return domain and name of the operators that neither the model nor ``onnx`` defines, with their nodes' names."""
    versions = _imported(model)
    functions = {scopes.function_key(function)[:2] for function in model.functions}
    nodes = defaultdict(list)
    for node in nodes_of(model):
        nodes[scopes.domain_of(node.domain), node.op_type].append(node.name)
    keys = sorted(key for key in nodes.keys() - functions if key[0] in versions)
    return [(*key, nodes[key]) for key in keys if not _in_onnx(key, versions[key[0]])]


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Yield all nodes, those of nested graphs and of functions included."""
    yield from scopes.all_nodes(model.graph.node)
    for function in model.functions:
        yield from scopes.all_nodes(function.node)


def _invalid(graph: GraphProto) -> Concern:
    """Say what is wrong with the names of a graph; of several the first."""
    problem = ""
    try:
        reads = [scopes.reads(node) for node in graph.node]
        check_names(graph, reads)
        sort_nodes(GraphProto(node=graph.node), reads)
    except ModelError as error:
        problem = str(error)
    return Concern("invalid graph", f"{problem}; no runtime can load the model", ["the graph"] if problem else [])


def _of_opsets(model: ModelProto) -> Iterator[Concern]:
    counts = Counter(scopes.domain_of(one.domain) or "ai.onnx" for one in model.opset_import)
    nothing = [] if counts else ["opset_import"]
    twice = [domain for domain, count in counts.items() if count > 1]
    yield Concern("no opset", "the model imports no opset, so runtimes refuse it", nothing)
    yield Concern("opset imported twice", "runtimes differ in which of the versions counts", twice)


def _part(one: Constant, count: int) -> str:
    return f"{count} of {counted(one.elements, 'element')}" if count else ""


def _mask(one: Constant) -> str:
    """Say it of one very low number, alone or with zeros: what is added to attention scores that do not count."""
    low, high = one.values.beyond
    least_half = one.dtype == TensorProto.FLOAT16 and one.values.least == -HALF_LARGEST
    masks = (low == high < 0 or least_half) and one.values.greatest <= 0
    return f"{one.values.least:.6g}" if masks else ""


def _beyond_half(one: Constant) -> str:
    return f"up to {one.values.magnitude:.6g}" if one.values.beyond_half and not _mask(one) else ""


def _odd(one: Constant) -> str:
    """Say it of a number that no weight beside it comes near: what a damaged file, or a flipped bit, looks like."""
    size, median = one.values.magnitude, one.values.median
    return f"{size:.6g} beside a median of {median:.2g}" if median and size > _ODD * median else ""


def _vanishing(one: Constant) -> str:
    size = one.values.magnitude
    return f"at most {size:.6g}" if one.dtype != TensorProto.FLOAT16 and 0 < size <= HALF_VANISHES else ""


def _subnormal(one: Constant) -> str:
    """Say it of types whose subnormals no trained weight comes near; of float16 where half of all are such."""
    few = one.dtype == TensorProto.FLOAT16 and one.values.subnormal * 2 < one.elements
    return "" if few else _part(one, one.values.subnormal)


def _beyond_int32(one: Constant) -> str:
    if one.dtype != TensorProto.INT64 or one.values.magnitude == 0:
        return ""
    beyond = [end for end in (one.values.least, one.values.greatest) if not _INT32[0] <= end <= _INT32[1]]
    return f"{beyond[0]:d}" if beyond else ""


#: kind, what is measured of a tensor ("": it is not concerned), what that leads to
_IN_TENSORS: tuple[tuple[str, Callable[[Constant], str], str], ...] = (
    ("unreadable weights", lambda one: one.problem, "no runtime can load the model"),
    ("NaN", lambda one: _part(one, one.values.nan), "every result from it is NaN"),
    ("Inf", lambda one: "" if _mask(one) else _part(one, one.values.infinite), "results from it may be Inf or NaN"),
    ("mask", _mask, "-Inf once a sum leaves float16; a row of -Inf alone is NaN after Softmax"),
    ("beyond float16", _beyond_half, f"float16 ends at {HALF_LARGEST:g}, so it becomes Inf"),
    ("odd weight", _odd, "one number far from all others: is the file damaged?"),
    ("vanishes in float16", _vanishing, "float16 rounds it to 0, and a division by it gives Inf or NaN"),
    ("subnormal", _subnormal, "slow on CPUs, and 0 where a runtime flushes such numbers"),
    ("beyond int32", _beyond_int32, "TensorRT before 10 keeps int64 in int32"),
)


def _of_weights(constants: Sequence[Constant]) -> Iterator[Concern]:
    for kind, measured, leads_to in _IN_TENSORS:
        found = {one.name: said for one in constants if (said := measured(one))}
        yield Concern(kind, f"{next(iter(found.values()), '')}; {leads_to}", list(found))


def _of_duplicates(constants: Sequence[Constant]) -> Iterator[Concern]:
    alike: dict[Any, list[Constant]] = defaultdict(list)
    for one in constants:
        if one.bytes >= _WORTH_SHARING and not one.problem and one.values.digest:
            alike[one.dtype, one.dims, one.values.digest].append(one)
    groups = [group for group in alike.values() if len(group) > 1]
    spent = sum(one.bytes for group in groups for one in group[1:])
    names = [f"{one.name} (as {group[0].name})" for group in groups for one in group[1:]]
    yield Concern("duplicate weights", f"{spent} bytes are there more than once", names)


def _epsilons(model: ModelProto) -> Concern:
    found = {
        called(node): attribute.f
        for node in nodes_of(model)
        for attribute in node.attribute
        if attribute.name in _EPSILONS and 0 < abs(attribute.f) <= HALF_VANISHES
    }
    first = next(iter(found.values()), 0.0)
    return Concern(
        "epsilon", f"{first:.6g}; float16 rounds it to 0, so a divisor that it keeps above 0 may be 0", list(found)
    )


def _of_graphs(model: ModelProto) -> Iterator[Concern]:
    unused, unread = [], []
    for graph in graphs_of(model):
        read = {name for node in graph.node for name in scopes.reads(node)} | {one.name for one in graph.output}
        held = [*(one.name for one in graph.initializer), *(one.values.name for one in graph.sparse_initializer)]
        unused += [name for name in held if name not in read]
        unread += [called(node) for node in graph.node if node.output and not read.intersection(node.output)]
    yield Concern("unused weights", "nothing reads them", unused)
    yield Concern("unread nodes", "nothing reads their outputs: runtimes leave them out", unread)


def duplicate_names(model: ModelProto) -> list[str]:
    """Return the names that several top-level nodes have; ONNX Runtime loads no model with any."""
    names = Counter(node.name for node in model.graph.node if node.name)
    return [name for name, count in names.items() if count > 1]


def _of_nodes(model: ModelProto) -> Iterator[Concern]:
    versions = _imported(model)
    nameless = [called(node) for node in model.graph.node if not node.name]
    strange = {operator_name(node.domain, node.op_type) for node in nodes_of(model)
               if versions and scopes.domain_of(node.domain) not in versions}  # fmt: skip
    made = [name for graph in graphs_of(model) for name in _names_in(graph) if _OF_FUSIONS.search(name)]
    said = "a runtime's optimizer made them, and makes the same again for another node: give them other names"
    yield Concern("names of fusions", said, list(dict.fromkeys(made)))
    yield Concern("duplicate names", "several nodes have the same name: give each its own", duplicate_names(model))
    yield Concern("nodes without a name", "reports call them by their first outputs", nameless)
    yield Concern("domain not imported", "the model imports no opset of its domain", sorted(strange))


def _names_in(graph: GraphProto) -> Iterator[str]:
    yield from (one.name for one in graph.initializer)
    yield from (name for node in graph.node for name in (node.name, *node.output))


def _imported(model: ModelProto) -> Mapping[str, int]:
    every = [*model.opset_import, *(one for function in model.functions for one in function.opset_import)]
    return {scopes.domain_of(one.domain): one.version for one in reversed(every)}


def _in_onnx(key: tuple[str, str], version: int) -> bool:
    try:
        return not defs.get_schema(key[1], version, key[0]).deprecated
    except Exception:  # noqa: BLE001 - each release of onnx has a class of its own for it
        return False


_MOST_LARGEST = 10
_NARROW = 8
# files beyond this are walked through; the structure of a smaller one with its weights fits anywhere
_WHOLE = 32 << 20


def describe_model(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model at ``args["model"]`` is made of: see docs/inspect.md.

    ``unknown``: its operators that the ``onnx`` package does not know. Raises ModelError for a file that is no
    model, or that changes meanwhile.
    """
    path = Path(args["model"])
    before = stamp(path)
    digest = hashlib.sha256()
    model, size, _ = parse_hashed(path, _WHOLE, digest)
    if not model.HasField("graph"):
        raise ModelError(f"{path} has no graph: it is not an ONNX model, or an empty one")
    check_text(model)
    constants = constants_of(model, path)
    concerns = [one.to_json() for one in concerns_of(model, constants)]
    confirm_unchanged(path, before)
    lone = sum(node.op_type == "Constant" for node in nodes_of(model))
    top = sum(node.op_type != "Constant" for node in model.graph.node)
    inputs, outputs = ([_declared(one) for one in some] for some in (_fed(model), model.graph.output))
    return {
        "kind": "onnx",
        "bytes": size,
        "sha256": digest.hexdigest(),
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        **header_of(model),
        "nodes": top,
        "constants": lone,
        "nested": sum(1 for _ in nodes_of(model)) - lone - top,
        "functions": [operator_name(one.domain, one.name) for one in model.functions],
        "inputs": inputs,
        "outputs": outputs,
        "dynamic": {one["name"]: dims for one in inputs if (dims := _open(one["shape"]))},
        "dtypes": _dtypes(model, constants),
        "weights": _weights(constants, _packed(model)),
        "concerns": concerns,
        "unknown": unknown_operators(model),
    }


def header_of(model: ModelProto) -> dict[str, Any]:
    """Return the IR version and the opsets that a model states, and how often it has each operator."""
    opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
    operators = _counts(operator_name(node.domain, node.op_type) for node in nodes_of(model))
    return {"ir_version": model.ir_version, "opsets": opsets, "operators": operators}


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name is there, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _is_parameter(dtype: int) -> bool:
    """Whether numbers of a type are weights: other integers are sizes and indices, and the sums of 32 bits few."""
    narrow = dtypes.is_integer(dtype) and dtypes.BY_NUMBER[dtype].bits <= _NARROW
    return dtype in dtypes.FLOATS or (narrow and dtype != TensorProto.BOOL)


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


def _dtypes(model: ModelProto, constants: Sequence[Constant]) -> dict[str, int]:
    """Return how many tensors of each type the model has: weights, inputs, outputs, and what else it declares.

    What two graphs call by one name are two tensors.
    """
    found = [dtype_name(one.dtype).lower() for one in constants]
    for graph in graphs_of(model):
        held = {*initializers_of(graph), *(node.output[0] for node in graph.node if node.op_type == "Constant")}
        declared = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
        own = scopes.definitions(graph) - held
        found += [_type(value.type) for name, value in declared.items() if name in own]
    return _counts(found)


def _packed(model: ModelProto) -> dict[str, int]:
    """Return the weights that hold several numbers in a byte, and how many."""
    given = ((node, {one.name: one.i for one in node.attribute}) for node in nodes_of(model))
    return {node.input[1]: 8 // how.get("bits", 4) for node, how in given if node.op_type == "MatMulNBits"}


def _weights(constants: Sequence[Constant], packed: Mapping[str, int]) -> dict[str, Any]:
    by_type: dict[str, list[Constant]] = {}
    for one in constants:
        by_type.setdefault(dtype_name(one.dtype).lower(), []).append(one)
    largest = sorted(constants, key=lambda one: -one.bytes)[:_MOST_LARGEST]
    return {
        "count": len(constants),
        "bytes": sum(one.bytes for one in constants),
        "parameters": sum(one.elements * packed.get(one.name, 1) for one in constants if _is_parameter(one.dtype)),
        "dtypes": {
            name: {"count": len(some), **{key: sum(getattr(one, key) for one in some) for key in ("elements", "bytes")}}
            for name, some in sorted(by_type.items())
        },
        "largest": [
            {"name": one.name, "dtype": dtype_name(one.dtype).lower(), "shape": list(one.dims), "bytes": one.bytes}
            for one in largest
        ],
    }
