"""What in a model could trouble a run of it: of each kind one line, with the names of all places."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, defs

from runner.jobs.inspect.constants import Constant, graphs_of
from runner.jobs.inspect.weight_values import HALF_LARGEST, HALF_VANISHES
from runner.model.errors import ModelError
from runner.model.graph import scopes
from runner.model.graph.validate import check_names, sort_nodes
from runner.model.values import dtypes
from runner.text import counted, listed, one_line

_INT32 = dtypes.limits_of(TensorProto.INT32) or (0, 0)
# bytes from which on it matters that a weight is there twice
_WORTH_SHARING = 1024
# attributes that hold a small number which keeps another from being zero
_EPSILONS = frozenset({"epsilon", "eps"})
_MOST_NAMES = 1000


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


def unknown_operators(model: ModelProto) -> list[tuple[str, str]]:
    """Return domain and name of the operators that neither the model nor the ``onnx`` package defines."""
    versions = _imported(model)
    functions = {scopes.function_key(function)[:2] for function in model.functions}
    keys = {(scopes.domain_of(node.domain), node.op_type) for node in nodes_of(model)} - functions
    return sorted(key for key in keys if key[0] in versions and not _in_onnx(key, versions[key[0]]))


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Yield all nodes, those of nested graphs and of functions included."""
    yield from scopes.all_nodes(model.graph.node)
    for function in model.functions:
        yield from scopes.all_nodes(function.node)


def called(node: NodeProto) -> str:
    """Return a node's name, or its first output."""
    return node.name or next(filter(None, node.output), f"({node.op_type})")


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
    yield Concern("no opset", "the model says of no operator which version it means; runtimes refuse it", nothing)
    yield Concern("opset imported twice", "runtimes differ in which of the versions counts", twice)


def _unreadable(one: Constant) -> str:
    return one.problem


def _nan(one: Constant) -> str:
    return f"{one.values.nan} of {counted(one.elements, 'element')}" if one.values.nan else ""


def _mask(one: Constant) -> str:
    """Say it of one very low number, alone or with zeros: what is added to attention scores that do not count."""
    low, high = one.values.beyond or (0.0, 1.0)
    least_half = one.dtype == TensorProto.FLOAT16 and one.values.least == -HALF_LARGEST
    masks = (low == high < 0 or least_half) and (one.values.greatest or 0) <= 0
    return f"{one.values.least:.6g}" if masks else ""


def _infinite(one: Constant) -> str:
    return (
        f"{one.values.infinite} of {counted(one.elements, 'element')}" if one.values.infinite and not _mask(one) else ""
    )


def _beyond_half(one: Constant) -> str:
    return f"up to {one.values.magnitude:.6g}" if one.values.beyond_half and not _mask(one) else ""


def _vanishing(one: Constant) -> str:
    size = one.values.magnitude or 0
    return f"at most {size:.6g}" if one.dtype != TensorProto.FLOAT16 and 0 < size <= HALF_VANISHES else ""


def _subnormal(one: Constant) -> str:
    """Say it of types whose subnormals no trained weight comes near; of float16 where half of all are such."""
    few = one.dtype == TensorProto.FLOAT16 and one.values.subnormal * 2 < one.elements
    return f"{one.values.subnormal} of {counted(one.elements, 'element')}" if one.values.subnormal and not few else ""


def _beyond_int32(one: Constant) -> str:
    if one.dtype != TensorProto.INT64:
        return ""
    ends = (one.values.least or 0, one.values.greatest or 0)
    beyond = [end for end in ends if not _INT32[0] <= end <= _INT32[1]]
    return f"{beyond[0]:d}" if beyond else ""


#: kind, what is measured of a tensor ("": it is not concerned), what that leads to
_IN_TENSORS: tuple[tuple[str, Callable[[Constant], str], str], ...] = (
    ("unreadable weights", _unreadable, "no runtime can load the model"),
    ("NaN", _nan, "what is computed with it is NaN"),
    ("Inf", _infinite, "what is computed with it may be Inf or NaN"),
    ("mask", _mask, "-Inf in float16, or once something is added; a row of nothing else is NaN after Softmax"),
    ("beyond float16", _beyond_half, f"float16 ends at {HALF_LARGEST:g} and makes Inf of it"),
    ("vanishes in float16", _vanishing, "float16 makes 0 of it: what is divided by it is Inf or NaN"),
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
    return Concern("epsilon", f"{first:.6g}; float16 makes 0 of it, and what it keeps from 0 may be 0", list(found))


def _of_graphs(model: ModelProto) -> Iterator[Concern]:
    unused, unread = [], []
    for graph in graphs_of(model):
        read = _read_in(graph)
        held = [*(one.name for one in graph.initializer), *(one.values.name for one in graph.sparse_initializer)]
        unused += [name for name in held if name not in read]
        unread += [called(node) for node in graph.node if node.output and not read.intersection(node.output)]
    yield Concern("unused weights", "nothing reads them", unused)
    yield Concern("unread nodes", "nothing reads their outputs: runtimes leave them out", unread)


def _read_in(graph: GraphProto) -> set[str]:
    """Return what is read in a graph, or is its output."""
    return {name for node in graph.node for name in scopes.reads(node)} | {one.name for one in graph.output}


def _of_nodes(model: ModelProto) -> Iterator[Concern]:
    versions = _imported(model)
    names = Counter(node.name for node in model.graph.node if node.name)
    nameless = [called(node) for node in model.graph.node if not node.name]
    strange = {operator_name(node.domain, node.op_type) for node in nodes_of(model)
               if versions and scopes.domain_of(node.domain) not in versions}  # fmt: skip
    yield Concern("duplicate names", "several nodes have them", [name for name, count in names.items() if count > 1])
    yield Concern("nodes without a name", "reports call them by their first outputs", nameless)
    yield Concern("domain not imported", "the model imports no opset of its domain", sorted(strange))


def _imported(model: ModelProto) -> Mapping[str, int]:
    every = [*model.opset_import, *(one for function in model.functions for one in function.opset_import)]
    return {scopes.domain_of(one.domain): one.version for one in reversed(every)}


def _in_onnx(key: tuple[str, str], version: int) -> bool:
    try:
        defs.get_schema(key[1], version, key[0])
    except Exception:  # noqa: BLE001 - each release of onnx has a class of its own for it
        return False
    return True
