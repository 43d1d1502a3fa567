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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from benchmarks.planting import Planted, Route, plant, routes
from runner.candidate import Candidate
from runner.checkers.auto_tolerance import EPSILON
from runner.checkers.compare_values import compare
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
from runner.workers.pool import Pool
from strategies.minimal import reduce
from strategies.outcome import Answer
from strategies.search import Search

ORT = OnnxRuntimeBackend(optimization=Optimization.none).to_json()
REFERENCE = OnnxReferenceBackend().to_json()
BACKENDS = (ORT, REFERENCE)
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
        for route, tail in routes():
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
        for name, content in planted.values.items():
            read = any(name in node.inputs for node in graph.nodes)
            if read and name not in graph.initializers and not _same(recorded.values[0].get(name), content):
                return None, f"{name} is not recorded as it is in the case"
        planted_nodes = [node.index for node in graph.nodes if node.outputs[0] in planted.nodes]
        for name, file in alone.items():
            found = recorded.values[0].get(name)
            if found is None or _difference(found, file, draws(graph, planted_nodes)):
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
            problem = _difference(outputs[value.name], sample.expected[value.name], drawn)
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


def _difference(found: TensorFile, wanted: TensorFile, drawn: bool) -> str:
    """What differs between two values; of one that was drawn only type and shape count."""
    if drawn:
        same = (found.dtype, found.shape, found.structure) == (wanted.dtype, wanted.shape, wanted.structure)
        return "" if same else "has another type or shape"
    epsilon = EPSILON.get(wanted.dtype if wanted.structure is None else leaf_dtype(wanted.structure), 0.0)
    rule = CompareChecker(metric=Metric.elementwise, rtol=ULPS * epsilon, atol=ULPS * epsilon)
    difference = compare(found, wanted, rule)
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
        if isinstance(content, TensorProto):
            return values.write(content, name, path)
        array = np.asarray(content)
        if structure[1] != TensorProto.STRING:
            array = array.astype(onnx.helper.tensor_dtype_to_np_dtype(structure[1]), copy=False)
        return values.write(array, name, path)
    make = {"sequence": numpy_helper.from_list, "optional": numpy_helper.from_optional, "map": numpy_helper.from_dict}
    return values.write_container(make[structure[0]](content), structure, name, path)


def _same(file: TensorFile | None, content: Any) -> bool:
    return file is not None and _equal(values.contents(file), content)


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_equal, found, wanted))
    if wanted is None or found is None:
        return found is wanted
    wanted = numpy_helper.to_array(wanted) if isinstance(wanted, TensorProto) else np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    if found.dtype.kind in "OSU":
        return [_text(item) for item in found.ravel()] == [_text(item) for item in wanted.ravel()]
    return bool(np.array_equal(found.astype(np.complex128), wanted.astype(np.complex128), equal_nan=True))


def _text(item: object) -> str:
    return item.decode() if isinstance(item, bytes) else str(item)


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
    print("\n| cases | run | exact | exact, valid and matched | % | not runnable | checks | seconds |")
    print("|---" * 8 + "|")
    cells = [len(rows), len(run), sum(row.exact for row in run), len(run) - len(wrong), f"{right:.2f}"]
    print(
        "| " + " | ".join(map(str, [*cells, len(rows) - len(run), sum(row.checks for row in run), int(seconds)])), "|"
    )
    print("\nby backend and route:", dict(Counter((row.backend, row.route) for row in run)))
    return 1 if right < 99 else 0


if __name__ == "__main__":
    sys.exit(main())
