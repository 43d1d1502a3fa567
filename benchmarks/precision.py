"""python -m benchmarks.precision [--rtx PYTHON] [--seconds N] [--counts 1,2,5] MODEL.onnx ...: fewest raised nodes.

In each model an overflow of fp16, or a cancellation (x + 4096 - 4096), is planted at 1, 2 and 5 scattered places;
``strategy=precision`` finds what has to stay in fp32. Inputs are those of ``feeds.npz`` beside the model. For each:
the set passes, every smaller one fails (each name is lowered, and the model judged here, outside of Winnow); all trial
models pass ``onnx.checker`` with full type inference; no cast is redundant; the answer builds with TensorRT for RTX
(``--rtx``). That is the search alone; ``--held``: as it comes, with a margin and samples held out, where sets may be
larger. Beside it: AutoCast's range rule, and ``auto_convert_mixed_precision`` (``pip install onnxconverter-common``)
within ``--seconds``.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.precision_rivals import RTOL, beyond_range, close, run
from runner.backends.nested_graphs import bodies
from runner.jobs.precision.prepare_search import Precision, parents_of
from runner.jobs.precision.setup import cast, samples_of
from runner.reference.load import load
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import CompareChecker
from runner.schema.inputs import FilesInputs
from runner.schema.root import Settings
from runner.schema.strategy import PrecisionSettings
from runner.workers.pool import Pool
from strategies.trial import Trial

PLANTABLE = ("MatMul", "Conv", "Gemm", "Add", "Relu", "Mul")
KINDS: dict[str, tuple[tuple[str, float], ...]] = {
    # by powers of two that fp16 has: no constant is out of its range, only what comes of them
    "overflow": (("Mul", 2.0**13), ("Mul", 2.0**13), ("Mul", 2.0**-13), ("Mul", 2.0**-13)),
    "cancellation": (("Add", 4096.0), ("Sub", 4096.0)),
}
OUTSIDE = ("python -m runner strategy=precision checker=compare checker.metric=scale "
           f"checker.rtol={RTOL} checker.nan=fail checker.inf=fail verbosity=error").split()[1:]  # fmt: skip

ALONE = ("strategy.margin=1", "strategy.held_out=0", "strategy.allow_overflow=true", "strategy.untaken=low")
"""The search alone, which is what "1-minimal" is judged by here."""


def plant(model: ModelProto, kind: str, count: int) -> ModelProto:
    """Return a copy with a fault behind ``count`` float nodes, evenly scattered."""
    made = ModelProto()
    made.CopyFrom(model)
    typed = onnx.shape_inference.infer_shapes(model).graph.value_info
    floats = {value.name for value in typed if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    places = [i for i, node in enumerate(made.graph.node) if node.op_type in PLANTABLE and node.output[0] in floats]
    chosen = {places[(2 * number + 1) * len(places) // (2 * count)] for number in range(count)}
    steps = KINDS[kind]
    for number, (_, value) in enumerate(steps):
        made.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), f"plant_{number}"))
    nodes: list[NodeProto] = []
    for place, node in enumerate(made.graph.node):
        nodes.append(node)
        node.name = node.name or f"{node.op_type}_{place}"
        if place in chosen:
            out = node.output[0]
            node.output[0] = f"{out}_before"
            names = [f"{out}_before", *(f"{out}_step{number}" for number in range(len(steps) - 1)), out]
            for number, (op, _) in enumerate(steps):
                read = [names[number], f"plant_{number}"]
                nodes.append(helper.make_node(op, read, [names[number + 1]], f"plant{place}_{number}"))
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del made.graph.node[:]
    made.graph.node.extend(copies)
    return made


def early_exit(model: ModelProto) -> ModelProto:
    """Return the network with its second half in a branch of an If, which an activation decides on."""
    made = ModelProto()
    made.CopyFrom(model)
    nodes = list(model.graph.node)
    first, second = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    floats = [node for node in first if node.op_type in PLANTABLE]
    (result,) = model.graph.output
    shape = [size.dim_value for size in result.type.tensor_type.shape.dim]
    lists = {"exit_shape": np.array(shape, np.int64), "exit_limit": np.array(1e30, np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in lists.items())
    inner = helper.make_tensor_value_info(f"{result.name}_deep", TensorProto.FLOAT, shape)
    for node in (copies := [NodeProto.FromString(node.SerializeToString()) for node in second]):
        for names in (node.input, node.output):
            names[:] = [inner.name if name == result.name else name for name in names]
    then = helper.make_graph(copies, "deep", [], [inner])
    zero = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.0])
    other = helper.make_tensor_value_info("exit_zeros", TensorProto.FLOAT, shape)
    zeros = [helper.make_node("ConstantOfShape", ["exit_shape"], ["exit_zeros"], "exit", value=zero)]
    decide = [
        helper.make_node("ReduceMax", [floats[-1].output[0]], ["exit_score"], "exit_max", keepdims=0),
        helper.make_node("Less", ["exit_score", "exit_limit"], ["exit_deep"], "exit_less"),
    ]
    branches = {"then_branch": then, "else_branch": helper.make_graph(zeros, "shallow", [], [other])}
    owner = helper.make_node("If", ["exit_deep"], [result.name], "exit_if", **branches)
    del made.graph.node[:]
    made.graph.node.extend([*first, *decide, owner])
    del made.graph.value_info[:]
    return made


def redundant_casts(model: ModelProto) -> list[str]:
    """Return casts of constants, and those that another undoes or that have no effect."""
    graphs = [model.graph, *(graph for node in model.graph.node for _, graph in bodies(node))]
    makers = {name: node for graph in graphs for node in graph.node for name in node.output}
    constant = {tensor.name for graph in graphs for tensor in graph.initializer}
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    found = []
    for node in (node for graph in graphs for node in graph.node):
        if node.op_type != "Cast" or node.attribute[0].i not in floats:
            continue
        maker = makers.get(node.input[0])
        undone = maker is not None and maker.op_type == "Cast" and "__cast" in maker.name and "__cast" in node.name
        if undone or node.input[0] in constant or (maker is not None and maker.op_type == "Constant"):
            found.append(node.name)
    return found


@dataclass(frozen=True)
class Bench:
    """One planted model with its inputs, ready to be cast in any way."""

    subject: Precision
    gold: list[Any]
    feeds: dict[str, Any]
    folder: Path

    def made(self, raised: frozenset[int]) -> ModelProto:
        """Return the mixed model, whole."""
        candidate = self.subject.make(Trial(raised), self.folder)
        assert candidate.model
        model = onnx.load(str(candidate.model))
        candidate.discard()
        return model

    def passes(self, raised: frozenset[int]) -> bool:
        """Judge a raised set outside of Winnow's checkers."""
        return close(self.gold, run(self.made(raised), self.feeds, emulated=True))

    def numbers(self, names: Any) -> frozenset[int]:
        """Return the layers with these names; others cannot be lowered anyway."""
        return frozenset(i for i, layer in enumerate(self.subject.layers) if layer.path in {*names})


def row(model: ModelProto, feeds: Path, options: argparse.Namespace) -> Iterator[Any]:
    """Yield the cells of a row."""
    with tempfile.TemporaryDirectory() as place, Pool(Path(place) / "workers") as pool:
        folder, path = Path(place), Path(place) / "net.onnx"
        onnx.save(model, str(path))
        given = [f"model={path}", "inputs=files", f"inputs.path={feeds}", *(() if options.held else ALONE)]
        start = time.monotonic()
        command = [sys.executable, *OUTSIDE, *given, f"hydra.run.dir={folder / 'run'}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        if not (folder / "run" / "result.json").exists():
            sys.exit(ended.stderr)
        result = json.loads((folder / "run" / "result.json").read_text())
        if result["status"] != "found":
            yield f"{result['status']}: {result['message']} {ended.stderr[-200:]}"
            return
        names = [one["node"] for one in result["precision"]["selected"]]
        settings = Settings(
            model=str(path),
            strategy=PrecisionSettings(),
            inputs=FilesInputs(path=str(feeds)),
            reference=as_reference(OnnxRuntimeBackend)(),
            target=OnnxRuntimeBackend(),
            checker=CompareChecker(),
        )
        loaded = load(settings, pool, folder / "again")
        casting = cast(settings, PrecisionSettings(), loaded, pool)
        parents = parents_of(casting.layers)
        subject = Precision(
            casting.mixer,
            loaded.store,
            samples_of(casting, loaded, loaded.recorded.values, folder / "cast"),
            tuple(range(len(casting.layers))),
            parents,
            tuple((index,) for index in range(len(casting.layers))),
        )
        with np.load(feeds) as arrays:
            fed = {name: arrays[name] for name in arrays.files}
        bench = Bench(subject, run(model, fed, emulated=False), fed, folder)
        found = bench.numbers(names)
        count, layers = len(found), len(subject.layers)
        bound = math.log2(math.comb(layers, count))
        checks = result["checks"]["search"] + result["checks"]["refine"]
        minimal = bench.passes(found) and not any(bench.passes(found - {one}) for one in found)
        valid, trials = _trials(bench, folder / "run")
        yield from (layers, count, checks, f"{bound:.1f}", f"{1.5 * bound + 2 * count + 5:.0f}", f"{seconds:.1f}")
        yield "yes" if minimal else "NO"
        yield f"{valid} of {trials}"
        final = onnx.load(str(folder / "run" / "mixed.onnx"))
        yield len(redundant_casts(final)) + len(redundant_casts(bench.made(frozenset())))
        yield _built(folder / "run" / "mixed.onnx", path, feeds, folder, options.rtx)
        ranged = bench.numbers(beyond_range(model, fed))
        yield f"{len(ranged)}{'' if bench.passes(ranged) else ' fails'}"
        yield _automatic(bench, path, feeds, options.seconds)


def _trials(bench: Bench, run_folder: Path) -> tuple[int, int]:
    """Return how many of the trials' models are valid with full type inference, and how many there were."""
    lines = [json.loads(line) for line in (run_folder / "journal.jsonl").read_text().splitlines()]
    trials = {Trial.parse(line["ranges"]) for line in lines if "ranges" in line}
    valid = 0
    for trial in trials:
        # its large weights stay where they are: types and shapes are looked at
        model = bench.subject.mixer.mixed(trial.elements)
        try:
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
            valid += 1
        except Exception as error:  # noqa: BLE001 - whatever inference raises
            print(f"{trial.ranges}: {error}", file=sys.stderr)
    return valid, len(trials)


def _built(model: Path, original: Path, feeds: Path, folder: Path, python: str | None) -> str:
    if not python:
        return "-"
    if _builds(model, feeds, folder / "built", python):
        return "yes"
    return "no" if _builds(original, feeds, folder / "original", python) else "no, nor does the original"


def _builds(model: Path, feeds: Path, folder: Path, python: str) -> bool:
    given = ["checker=builds", "target=tensorrt", f"target.python={python}", "inputs=files", f"inputs.path={feeds}"]
    command = [sys.executable, "-m", "runner", "strategy=repeat", "strategy.until=1", f"model={model}", *given]
    subprocess.run([*command, f"hydra.run.dir={folder}"], capture_output=True, check=False)
    return "pass" in json.loads((folder / "result.json").read_text())["outcomes"]


def _automatic(bench: Bench, model: Path, feeds: Path, seconds: float) -> str:
    command = [sys.executable, "-m", "benchmarks.precision_rivals", str(model), str(feeds)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"more than {seconds:.0f} s"
    if ended.returncode:
        return "not installed" if "onnxconverter_common" in ended.stderr else ended.stderr.strip()[-80:]
    told = json.loads(ended.stdout.splitlines()[-1])
    if "error" in told:
        return f"{told['error']} ({told['trials']} trials)"
    return f"{len(bench.numbers(told['raised']))} ({told['trials']} trials)"


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--rtx")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--counts", default="1,2,5")
    parser.add_argument("--exits", nargs="*", type=Path, default=[], help="models whose second half goes into an If")
    parser.add_argument("--held", action="store_true", help="as it comes: with a margin, and samples held out")
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_intermixed_args()
    heads = (
        "model", "planted", "layers", "raised", "checks", "log2 C", "allowed", "seconds", "1-minimal", "valid trials",
        "redundant casts", "builds", "range rule", "auto_convert_mixed_precision",
    )  # fmt: skip
    print("|", " | ".join(heads), "|\n" + "|---" * len(heads) + "|")
    for path in [*options.models, *options.exits]:
        model = onnx.load(str(path))
        for kind in options.kinds.split(","):
            for count in map(int, options.counts.split(",")):
                planted = plant(model, kind, count)
                planted = early_exit(planted) if path in options.exits else planted
                name = f"{path.parent.name}{' in an If' * (path in options.exits)}"
                cells = row(planted, path.parent / "feeds.npz", options)
                print("|", " | ".join(map(str, (name, f"{count} {kind}", *cells))), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
