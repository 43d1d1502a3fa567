"""All node test cases of the onnx package, each planted in a small network and cut out of it again.

    python -m benchmarks.node_cases [CASE ...] [--every N] [--keep FOLDER]

A case counts if ONNX Runtime (else the reference evaluator) runs it by itself. The failure is structural: a candidate
fails if it has all planted nodes. Wanted: exactly these are found; the candidate is no worse than the original under
onnx.checker; it runs on the backend that the values were recorded on, and its outputs are the recorded ones, up to four
units in the last place (of operators that draw, their types and shapes): in half precision ONNX Runtime rounds more
where it has to hand out more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from benchmarks import print_head, print_row
from runner.checkers.metrics import EPSILON, compare_recorded
from runner.jobs.reduce.subgraph import Subgraph
from runner.model.files.candidate_store import Store
from runner.model.files.read_model import ingest
from runner.model.graph.graph_index import Graph
from runner.model.passes.infer_shapes import read_types
from runner.model.values import recorded as values
from runner.model.values.recorded import TensorFile
from runner.model.values.value_types import leaf_dtype, structure_of
from runner.reference.recording import Recorder
from runner.schema.backend import OnnxReferenceBackend, OnnxRuntimeBackend, Optimization
from runner.schema.checker import CompareChecker, Metric
from runner.verdict import Candidate
from runner.workers.pool import Pool
from strategies.minimal import reduce
from strategies.search import Answer, Search

T = TensorProto
FLOATS = (T.FLOAT, T.DOUBLE)
# what one Cast makes of a float or an int64 without a loss -> the opset from which it does
_CAST = {
    "FLOAT16": 6, "BFLOAT16": 13, "FLOAT8E4M3FN": 19, "FLOAT8E4M3FNUZ": 19, "FLOAT8E5M2": 19, "FLOAT8E5M2FNUZ": 19,
    "INT8": 6, "INT16": 6, "INT32": 6, "UINT8": 6, "UINT16": 6, "BOOL": 6, "INT4": 21, "UINT4": 21, "FLOAT4E2M1": 23,
    "FLOAT8E8M0": 24, "INT2": 25, "UINT2": 25,
}  # fmt: skip
CAST = {getattr(T, name): opset for name, opset in _CAST.items() if hasattr(T, name)}
NETWORK_OPSET = 17


class Route(Enum):
    """How the values of a case get into the planted nodes."""

    COMPUTED = "computed"
    """Case value + 0 * (something of an activation), in the value's type or a wider one."""
    CHOSEN = "chosen"
    """Gathered out of a constant, element by element, at indices that an activation says; so for every type."""
    FED = "fed"
    """They are inputs of the network."""


@dataclass
class Planted:
    """The network. ``nodes``: the first outputs of the planted nodes. ``values``: type and value of what they read."""

    model: ModelProto
    feeds: dict[str, Any]
    nodes: tuple[str, ...]
    values: dict[str, tuple[TypeProto, Any]]


@dataclass
class Network:
    """A network while it is being made; all names of its own start with ``net/``."""

    opset: int
    ir_version: int
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    feeds: dict[str, Any] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return its output."""
        output = output or f"net/{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: Any) -> str:
        """Add an initializer and return its name."""
        tensor = deepcopy(value) if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value))
        tensor.name = f"net/constant_{len(self.initializers)}"
        self.initializers.append(tensor)
        return tensor.name

    def feed(self, name: str, declared: TypeProto, value: Any) -> str:
        """Add an input with its value and return its name."""
        self.inputs.append(helper.make_value_info(name, declared))
        self.feeds[name] = value
        return name


def plant(case: Any, route: Route, *, tail: bool = True) -> Planted:
    """Return the network around the nodes of ``case``; ``tail``: what they compute goes on into it."""
    model = case.model
    opset = next((entry.version for entry in model.opset_import if not entry.domain), None)
    network = Network(opset or NETWORK_OPSET, model.ir_version)
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> str:
        return network.constant((rng.standard_normal(shape) / 4).astype(np.float32))

    image = rng.random((1, 3, 8, 8), np.float32)
    x = network.feed("net/x", helper.make_tensor_type_proto(T.FLOAT, image.shape), image)
    for channels, before in ((4, 3), (4, 4)):
        x = network.add("Conv", [x, weights(channels, before, 3, 3)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        # runtimes have no older Relu than that of opset 6
        x = network.add("Relu", [x]) if network.opset >= 6 else network.add("MaxPool", [x], kernel_shape=[1, 1])
    x = network.add("Flatten", [network.add("GlobalAveragePool", [x])])
    x = network.add("Softmax", [network.add("MatMul", [x, weights(4, 4)])])
    # a softmax is positive, so this is -0.0: adding it changes no number, not even 0.0
    mean = network.add("ReduceMean", [x], keepdims=0)
    zero = network.add("Mul", [mean, network.constant(np.float32(-0.0))]) if network.opset >= 7 else ""

    given = zip(model.graph.input, case.data_sets[0][0], strict=True)
    values = {value.name: (value.type, content) for value, content in given}
    for name, (declared, content) in values.items():
        _lead(network, route, zero, name, declared, content)
    network.nodes.extend(model.graph.node)
    network.initializers.extend(model.graph.initializer)

    for value in model.graph.output:
        number = _number(network, value) if tail else None
        if number is None:
            network.outputs.append(value)
        else:
            x = network.add("Add", [x, number])
    x = network.add("Softmax", [network.add("MatMul", [x, weights(4, 4)])], "net/y")
    network.outputs.append(helper.make_tensor_value_info(x, T.FLOAT, [1, 4]))
    # a Constant is data, no node
    elements = [node for node in model.graph.node if node.op_type != "Constant"]
    first = tuple(next(name for name in node.output if name) for node in elements)
    return Planted(_model(network, model), network.feeds, first, values)


def _model(network: Network, source: ModelProto) -> ModelProto:
    if network.ir_version < 4:  # initializers have to be inputs as well
        network.inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in network.initializers]
    graph = helper.make_graph(network.nodes, "planted", network.inputs, network.outputs, network.initializers)
    graph.value_info.extend(source.graph.value_info)
    model = helper.make_model(graph, functions=source.functions, ir_version=source.ir_version)
    del model.opset_import[:]
    model.opset_import.extend(source.opset_import)
    if all(entry.domain for entry in model.opset_import):
        old = source.ir_version < 8
        model.opset_import.add(domain="", version={3: 7, 7: 13}.get(source.ir_version, NETWORK_OPSET) if old else 17)
    return model


def _lead(network: Network, route: Route, zero: str, name: str, declared: TypeProto, value: Any) -> None:
    """Make ``value`` an activation of that name."""
    kind = declared.WhichOneof("value")
    if route is Route.FED and kind != "tensor_type":
        network.feed(name, declared, value)
    elif kind == "optional_type":
        inner = declared.optional_type.elem_type
        if value is None:
            network.add("Optional", [], name, type=inner)
        else:
            _lead(network, route, zero, f"net/{name}", inner, value)
            network.add("Optional", [f"net/{name}"], name)
    elif kind == "sequence_type":
        inner = declared.sequence_type.elem_type
        parts = [f"net/{name}/{at}" for at in range(len(value))]
        for part, item in zip(parts, value, strict=True):
            _lead(network, route, zero, part, inner, item)
        if parts:
            network.add("SequenceConstruct", parts, name)
        else:
            network.add("SequenceEmpty", [], name, dtype=inner.tensor_type.elem_type)
    else:
        _lead_tensor(network, route, zero, name, declared, _tensor(value, declared.tensor_type.elem_type))


def _lead_tensor(
    network: Network, route: Route, zero: str, name: str, declared: TypeProto, tensor: TensorProto
) -> None:
    dtype = tensor.data_type
    if route is Route.FED or network.opset < 7:
        network.feed(name, declared, tensor)
    elif dtype == T.INT64 and len(tensor.dims) <= 1:
        # a shape, axes, an index: in networks these mostly depend on no data
        network.add("Identity", [network.constant(tensor)], name)
    elif route is Route.COMPUTED and dtype in (*FLOATS, T.INT64):
        same = zero if dtype == T.FLOAT else network.add("Cast", [zero], to=dtype)
        network.add("Add", [network.constant(tensor), same], name)
    elif route is Route.COMPUTED and network.opset >= CAST.get(dtype, 99):
        array = numpy_helper.to_array(tensor)
        # an int32 may have more digits than a float32
        wide = np.int64 if array.dtype.kind in "iub" else np.float32
        same = zero if wide is np.float32 else network.add("Cast", [zero], to=T.INT64)
        network.add("Cast", [network.add("Add", [network.constant(array.astype(wide)), same])], name, to=dtype)
    else:
        # one element an index: of strings ONNX Runtime's Gather takes only the first of several
        places = network.constant(np.arange(np.prod(tensor.dims, dtype=np.int64)).reshape(tuple(tensor.dims)))
        places = network.add("Add", [places, network.add("Cast", [zero], to=T.INT64)])
        flat = deepcopy(tensor)
        flat.dims[:] = [int(np.prod(tensor.dims, dtype=np.int64))]
        network.add("Gather", [network.constant(flat), places], name)


def _number(network: Network, value: Any) -> str | None:
    """Lead what a planted node computes on: a scalar made of it, finite whatever it is. None: its type cannot be."""
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type":
        return network.add("Cast", [network.add("SequenceLength", [value.name])], to=T.FLOAT)
    if kind == "optional_type":
        return network.add("Cast", [network.add("OptionalHasElement", [value.name])], to=T.FLOAT)
    dtype = value.type.tensor_type.elem_type
    if network.opset < 7 or dtype in (T.STRING, T.COMPLEX64, T.COMPLEX128):
        return None
    wide = value.name if dtype == T.FLOAT else network.add("Cast", [value.name], to=T.FLOAT)
    above = network.add("Greater", [wide, network.constant(np.float32(0))])
    return network.add("ReduceSum", [network.add("Cast", [above], to=T.FLOAT)], keepdims=0)


def _tensor(value: Any, dtype: int) -> TensorProto:
    """``value`` as a tensor of this type; data sets hold some types as another that is wide enough."""
    if isinstance(value, TensorProto):
        return value
    array = np.asarray(value)
    if dtype == T.STRING:
        tensor = TensorProto(data_type=dtype, dims=array.shape)
        tensor.string_data.extend(
            item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()
        )
        return tensor
    return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(dtype), copy=False))


ROUTES = ((Route.COMPUTED, True), (Route.CHOSEN, True), (Route.CHOSEN, False), (Route.FED, True), (Route.FED, False))
"""The ways to plant a case, the most real one first; whether what it computes goes on into the network."""


BACKENDS = (OnnxRuntimeBackend(optimization=Optimization.none).to_json(), OnnxReferenceBackend().to_json())
DRAWS = ("Random", "Dropout", "Multinomial", "Bernoulli")
ULPS = 4


@dataclass(frozen=True)
class Row:
    """What came of one case. ``backend`` "": nothing runs it by itself. ``problems``: why it is not right."""

    name: str
    backend: str = ""
    route: str = ""
    checks: int = 0
    exact: bool = False
    problems: tuple[str, ...] = ()


class Bench:
    """Runs cases, all in one process with its workers."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder = folder
        self.pool = pool

    def run(self, case: Any) -> Row:
        """Plant a case, cut it out, look at what came out."""
        folder = self.folder / case.name
        folder.mkdir(parents=True)
        backend, alone, why = self._runs(case, folder)
        if backend is None:
            return Row(case.name, problems=(why,))
        if all(node.op_type == "Constant" for node in case.model.graph.node):
            return Row(case.name, backend["name"], problems=("nothing to cut: a Constant is data, no node",))
        problems = []
        for route, tail in ROUTES:
            try:
                planted = plant(case, route, tail=tail)
            except (ValueError, TypeError) as error:
                problems.append(f"{route.value}: {error}")
                continue
            work = folder / f"{route.value}{'' if tail else '-bare'}"
            subject, problem = self._recorded(planted, backend, alone, work)
            if subject is not None:
                return self._cut(case.name, subject, planted, backend, route, work)
            problems.append(f"{route.value}: {problem}")
        return Row(case.name, backend["name"], problems=("cannot be planted: " + " | ".join(problems),))

    def _runs(self, case: Any, folder: Path) -> tuple[dict[str, Any] | None, dict[str, TensorFile], str]:
        """The backend that runs a case by itself, and what comes out there; or why none does."""
        path = folder / "case.onnx"
        path.write_bytes(case.model.SerializeToString())
        feeds = {
            value.name: _file(value.name, value.type, content, folder / f"case_{number}.pb")
            for number, (value, content) in enumerate(zip(case.model.graph.input, case.data_sets[0][0], strict=False))
        }
        reasons = []
        for backend in BACKENDS:
            outputs, problem = self._call(backend, path, feeds, folder / "case")
            if not problem:
                return backend, outputs, ""
            reasons.append(f"{backend['name']}: {problem}")
        return None, {}, " | ".join(reasons)

    def _recorded(
        self, planted: Planted, backend: dict[str, Any], alone: dict[str, TensorFile], work: Path
    ) -> tuple[Subgraph | None, str]:
        """The planted network with recorded values; or why its nodes do not read and make what the case does."""
        work.mkdir()
        path = work / "network.onnx"
        path.write_bytes(planted.model.SerializeToString())
        ingest({"model": str(path), "store": str(work / "store")})
        store = Store(work / "store")
        graph = Graph.load(store.structure)
        types = {value.name: value.type for value in planted.model.graph.input}
        sample = {
            name: _file(name, types[name], content, work / f"input_{number}.pb")
            for number, (name, content) in enumerate(planted.feeds.items())
        }
        recorder = Recorder(graph, store, self.pool, backend, graph.value_types, work / "values")
        recorded = recorder.record([sample])
        if recorded.unrunnable:
            return None, f"{recorded.unrunnable[0]} does not run: {recorded.reason}"
        for number, (name, (declared, content)) in enumerate(planted.values.items()):
            if not any(name in node.inputs for node in graph.nodes) or name in graph.initializers:
                continue
            found = recorded.values[0].get(name)
            if found is None or _difference(found, _file(name, declared, content, work / f"value_{number}.pb"), ulps=0):
                return None, f"{name} is not recorded as it is in the case"
        planted_nodes = [node.index for node in graph.nodes if node.outputs[0] in planted.nodes]
        for name, file in alone.items():
            found = recorded.values[0].get(name)
            if found is None or _difference(found, file, drawn=draws(graph, planted_nodes)):
                return None, f"{name} is not what the case alone makes of it"
        carried = graph.constants.difference(planted_nodes)
        where = (path, work / "seeded")
        return Subgraph(graph, store, recorded, self._inferred(store), *where, carried=carried), ""

    def _inferred(self, store: Store) -> dict[str, onnx.TypeProto]:
        out = store.folder / "inferred.onnx"
        arguments = {"model": str(store.structure), "mode": "onnx", "shapes": {}, "out": str(out)}
        return read_types(out) if self.pool.call("infer_shapes", arguments).value else {}

    def _cut(
        self, name: str, subject: Subgraph, planted: Planted, backend: dict[str, Any], route: Route, work: Path
    ) -> Row:
        search = Search(subject.space, reduce(subject.space))
        checks = 0
        while not search.done:
            (ask,) = search.ask()
            made = subject.make(ask.trial, work / f"trial{checks}")
            checks += 1
            search.tell(ask.trial, _answer(made, planted))
        trial = search.done.trial
        wanted = {at for at, node in enumerate(subject.graph.nodes) if node.outputs[0] in planted.nodes}
        exact = trial is not None and set(trial.elements) == wanted
        problems = [] if exact else [f"found {subject.names(trial) if trial else 'nothing'} for {planted.nodes}"]
        if trial is not None:
            final = subject.make(trial, work / "answer")
            problems += [final.reason] if not isinstance(final, Candidate) else self._doubts(final, subject, backend)
        return Row(name, backend["name"], route.value, checks, exact, tuple(problems))

    def _doubts(self, answer: Candidate, subject: Subgraph, backend: dict[str, Any]) -> Iterator[str]:
        """What is wrong with a candidate that holds the right nodes."""
        original, candidate = (
            self.pool.call("check_model", {"model": str(path)}).value or {"ok": False, "message": "no answer"}
            for path in (subject.file, answer.model)
        )
        if original["ok"] and not candidate["ok"]:
            yield f"onnx.checker: {candidate['message']}"
        assert answer.model is not None
        (sample,) = answer.samples
        outputs, problem = self._call(backend, answer.model, sample.feeds, answer.folder / "outputs")
        if problem:
            yield f"the candidate does not run: {problem}"
            return
        for value in onnx.load(answer.model).graph.output:
            if value.name not in sample.expected or value.name not in outputs:
                yield f"{value.name} was not {'recorded' if value.name in outputs else 'returned'}"
                continue
            drawn = draws(subject.graph, answer.trial.elements)
            problem = _difference(outputs[value.name], sample.expected[value.name], drawn=drawn)
            if problem:
                yield f"{value.name} {problem}"

    def _call(
        self, backend: dict[str, Any], model: Path, feeds: dict[str, TensorFile], out: Path
    ) -> tuple[dict[str, TensorFile], str]:
        samples = [{name: str(file.path) for name, file in feeds.items()}]
        arguments = {"backend": backend, "model": str(model), "samples": samples, "out": str(out)}
        reply = self.pool.call("run", arguments, timeout=60, confirm=False)
        if reply.value is None:
            return {}, reply.death or (f"{reply.failure.type}: {reply.failure.message}"[:200] if reply.failure else "")
        return {name: TensorFile.from_json(found) for name, found in reply.value["samples"][0].items()}, ""


def _difference(found: TensorFile, wanted: TensorFile, *, drawn: bool = False, ulps: int = ULPS) -> str:
    """What differs between two values; of one that was drawn only type and shape count."""
    if drawn:
        same = (found.dtype, found.shape, found.structure) == (wanted.dtype, wanted.shape, wanted.structure)
        return "" if same else "has another type or shape"
    epsilon = EPSILON.get(wanted.dtype if wanted.structure is None else leaf_dtype(wanted.structure), 0.0)
    rule = CompareChecker(metric=Metric.elementwise, rtol=ulps * epsilon, atol=ulps * epsilon)
    difference = compare_recorded(found, wanted, rule)
    return f"differs: {difference.kind} {difference.detail} {difference.error:g}" if difference.fails() else ""


def draws(graph: Graph, nodes: Iterable[int]) -> bool:
    return any(word in graph.nodes[at].op_type for at in nodes for word in DRAWS)


def _answer(made: object, planted: Planted) -> Answer:
    """The structural check: does the candidate's file have all planted nodes?"""
    if not isinstance(made, Candidate) or made.model is None:
        return Answer.UNKNOWN
    found = {name for node in onnx.load(made.model).graph.node for name in node.output}
    return Answer.YES if found.issuperset(planted.nodes) else Answer.NO


def _file(name: str, declared: onnx.TypeProto, content: Any, path: Path) -> TensorFile:
    """Write a value of a data set as a recorded value."""
    structure = structure_of(declared)
    assert structure is not None
    if structure[0] == "tensor":
        return values.write(_tensor(content, structure[1]), name, path)
    make = {"sequence": numpy_helper.from_list, "optional": numpy_helper.from_optional, "map": numpy_helper.from_dict}
    return values.write_container(make[structure[0]](content), structure, name, path)


def cases(names: Iterable[str] = (), every: int = 1) -> list[Any]:
    """The node test cases of the installed onnx package, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    wanted = set(names)
    return [case for case in found if case.name in wanted] if wanted else found[::every]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--every", type=int, default=1, help="take only each n-th case")
    parser.add_argument("--keep", type=Path, help="leave the files here")
    given = parser.parse_args()
    started = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        root = given.keep or Path(scratch)
        with Pool(root / "workers") as pool:
            bench = Bench(root / "cases", pool)
            for case in cases(given.cases, given.every):
                rows.append(bench.run(case))
                if rows[-1].backend and (rows[-1].problems or given.cases):
                    print(rows[-1], flush=True)
    return report(rows, time.monotonic() - started)


def report(rows: list[Row], seconds: float) -> int:
    """Print what nothing runs, what is wrong, and the counts."""
    print("\nnot runnable anywhere:")
    for row in rows:
        if not row.backend:
            print(f"  {row.name}: {row.problems[0][:160]}")
    run = [row for row in rows if row.backend]
    wrong = [row for row in run if row.problems]
    print("\nnot right:")
    for row in wrong:
        print(f"  {row.name} ({row.backend}, {row.route}): {'; '.join(row.problems)[:400]}")
    right = 100 * (len(run) - len(wrong)) / max(1, len(run))
    print()
    print_head("cases", "run", "exact", "exact, valid and matched", "%", "not runnable", "checks", "seconds")
    counts = len(rows), len(run), sum(row.exact for row in run), len(run) - len(wrong), f"{right:.2f}"
    print_row(*counts, len(rows) - len(run), sum(row.checks for row in run), int(seconds))
    print("\nby backend and route:", dict(Counter((row.backend, row.route) for row in run)))
    return 1 if right < 99 else 0


if __name__ == "__main__":
    sys.exit(main())
