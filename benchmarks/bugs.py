"""How well failures are grouped into bugs: 40 failing models of 6 planted defects, in different hosts and places.

    python -m benchmarks.bugs /tmp/bugs --python ~/onnxruntime-1.20.1/bin/python

Each model has one defect of `bug_patterns` somewhere in a host. Half of them have hosts, sizes and seeds that nothing
was tried on while the grouping was written; both halves are told apart. Precision and recall are of pairs of failures:
of those that stand in one bug, how many have one defect; of those that have one defect, how many stand in one bug.
Then the same where it is not known what heals a third of them, or any: what is asked, and what is left to likeness.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from runner.schema.installed_choices import SCHEMAS


@dataclass
class Graph:
    """A graph in the making. ``n``: the square root of how many features a sample has."""

    n: int
    random: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node, and return its output's name."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, array: Any) -> str:
        """Add an initializer, and return its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(self, *shape: int) -> str:
        """Add small random weights."""
        return self.weight((self.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def shaped(self, name: str, *shape: int) -> str:
        """Reshape a tensor."""
        return self.add("Reshape", [name, self.weight(np.array(shape, np.int64))])

    def flat(self, name: str) -> str:
        """Reshape a tensor to what stands between blocks."""
        return self.shaped(name, 1, self.n * self.n)


def identity_transpose(graph: Graph, x: str) -> str:
    """GemmTransposeFusion: a Transpose that moves nothing becomes transA (microsoft/onnxruntime#32228)."""
    n = graph.n
    moved = graph.add("Transpose", [graph.shaped(x, n, n)], perm=[0, 1])
    return graph.flat(graph.add("Gemm", [moved, graph.normal(n, n), graph.normal(n)]))


def padded_pool(graph: Graph, x: str) -> str:
    """Pad_Fusion: the average of a border is divided by the wrong count (microsoft/onnxruntime#22177)."""
    n = graph.n
    pads = graph.weight(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    padded = graph.add("Pad", [graph.shaped(x, 1, 1, n, n), pads, graph.weight(np.float32(0))])
    return graph.flat(graph.add("AveragePool", [padded], kernel_shape=[3, 3]))


def wide_gamma(graph: Graph, x: str) -> str:
    """SkipLayerNormFusion: a gamma of three dimensions is refused by its own kernel (microsoft/onnxruntime#27455)."""
    n = graph.n
    shaped = graph.shaped(x, 1, n, n)
    total = graph.add("Add", [shaped, graph.add("Tanh", [shaped])])
    gamma, beta = (graph.weight(np.ones((1, 1, n), np.float32) * value) for value in (1, 0))
    return graph.flat(graph.add("LayerNormalization", [total, gamma, beta], axis=-1))


def double_clip(graph: Graph, x: str) -> str:
    """FuseReluClip: it does not know double (microsoft/onnxruntime#11836)."""
    wide = graph.add("Relu", [graph.add("Cast", [x], to=TensorProto.DOUBLE)])
    limits = [graph.weight(np.float64(value)) for value in (0.0, 6.0)]
    return graph.add("Cast", [graph.add("Clip", [wide, *limits])], to=TensorProto.FLOAT)


def cast_and_scale(graph: Graph, x: str) -> str:
    """CastElimination with DivMulFusion: an edge is lost (microsoft/onnxruntime#32416)."""
    n = graph.n
    shaped = graph.shaped(x, n, n)
    norm = graph.add("ReduceMax", [graph.add("Abs", [shaped])], axes=[0, 1], keepdims=1)
    largest = graph.add("Add", [norm, graph.weight(np.full((1, 1), 1, np.float32))])
    wide = graph.add("Cast", [shaped], to=TensorProto.FLOAT)
    scale = graph.add("Div", [graph.weight(np.float32(1)), largest])
    return graph.flat(graph.add("Mul", [wide, scale]))


def rms_norm(graph: Graph, x: str) -> str:
    """SimplifiedLayerNormFusion: it does not look at keepdims=0 (microsoft/onnxruntime#30513)."""
    n = graph.n
    shaped = graph.shaped(x, 1, n, n)
    squared = graph.add("Pow", [shaped, graph.weight(np.float32(2))])
    mean = graph.add("ReduceMean", [squared], axes=[-1], keepdims=0)
    root = graph.add("Sqrt", [graph.add("Add", [mean, graph.weight(np.float32(1e-6))])])
    gamma = graph.weight((1 + graph.random.random(n)).astype(np.float32))
    return graph.flat(graph.add("Mul", [graph.add("Div", [shaped, root]), gamma]))


#: the patterns by the defect's name
BUGS: Mapping[str, Callable[[Graph, str], str]] = MappingProxyType(
    {one.__name__: one for one in (identity_transpose, padded_pool, wide_gamma, double_clip, cast_and_scale, rms_norm)}
)


_ATTEMPTS = 5
#: of how many failures it is not known what heals them: of every n-th
WITHHELD = {"none": 0, "a third": 3, "all": 1}
_RUNNER = (sys.executable, "-m", "runner")


def dense(graph: Graph, x: str) -> str:
    """A layer of a perceptron."""
    size = graph.n * graph.n
    return graph.add("Relu", [graph.add("Gemm", [x, graph.normal(size, size), graph.normal(size)])])


def convolution(graph: Graph, x: str) -> str:
    """A residual layer of a convolutional net, with an average pool that is right."""
    image = graph.shaped(x, 1, 1, graph.n, graph.n)
    found = graph.add("Conv", [image, graph.normal(4, 1, 3, 3)], pads=[1, 1, 1, 1])
    found = graph.add("AveragePool", [graph.add("Relu", [found])], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    found = graph.add("Conv", [found, graph.normal(1, 4, 1, 1)])
    return graph.flat(graph.add("Add", [found, image]))


def attention(graph: Graph, x: str) -> str:
    """A head of attention, with a normalization that is right."""
    n = graph.n
    tokens = graph.shaped(x, 1, n, n)
    query, key, value = (graph.add("MatMul", [tokens, graph.normal(n, n)]) for _ in range(3))
    scores = graph.add("MatMul", [query, graph.add("Transpose", [key], perm=[0, 2, 1])])
    mixed = graph.add("MatMul", [graph.add("Softmax", [scores], axis=-1), value])
    gamma, beta = graph.weight(np.ones(n, np.float32)), graph.weight(np.zeros(n, np.float32))
    normal = graph.add("LayerNormalization", [graph.add("Add", [mixed, tokens]), gamma, beta], axis=-1)
    return graph.flat(normal)


def gated(graph: Graph, x: str) -> str:
    """A gate, as of a recurrent cell."""
    size = graph.n * graph.n
    gate = graph.add("Sigmoid", [graph.add("MatMul", [x, graph.normal(size, size)])])
    return graph.add("Mul", [graph.add("Tanh", [x]), gate])


SEEN, HELD_BACK = (dense, convolution), (attention, gated)
SIZES = {SEEN: (6, 8), HELD_BACK: (5, 10)}


@dataclass(frozen=True)
class Planted:
    """A model with a defect. ``seen``: its host is one that the grouping was tried on."""

    name: str
    bug: str
    seen: bool


def planted_ones(count: int) -> list[Planted]:
    """Return which defects there are in which half."""
    names = list(BUGS)
    return [Planted(f"{number:02d}", names[number // 2 % len(names)], number % 2 == 0) for number in range(count)]


def write_model(one: Planted, path: Path, seed: int, attempt: int) -> None:
    """Write a model with its defect in a place of its own."""
    hosts = SEEN if one.seen else HELD_BACK
    random = np.random.default_rng([seed, int(one.name), attempt])
    graph = Graph(int(random.choice(SIZES[hosts])), random)
    size, depth = graph.n * graph.n, int(random.integers(2, 8))
    place, current = int(random.integers(0, depth + 1)), "x"
    for at in range(depth + 1):
        if at == place:
            current = BUGS[one.bug](graph, current)
        current = hosts[int(random.integers(len(hosts)))](graph, current) if at < depth else current
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name in ("x", current)]
    made = helper.make_graph(graph.nodes, "host", ends[:1], ends[1:], graph.weights)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def winnow(*words: str) -> int:
    """Run Winnow; return its exit code."""
    return subprocess.run([*_RUNNER, *words, "verbosity=warning"], check=False, capture_output=True).returncode


def failing(one: Planted, folder: Path, seed: int, options: Sequence[str]) -> None:
    """Write a model that fails, and what a diagnosis of it leaves; where a defect is not felt, draw another host."""
    for attempt in range(_ATTEMPTS):
        model, result = folder / "failures" / f"{one.name}.onnx", folder / "results" / one.name
        if not (result / "result.json").is_file():
            write_model(one, model, seed, attempt)
            diagnosed(model, result, options)
        if json.loads((result / "result.json").read_text())["status"] != "nothing_to_find":
            return
        shutil.rmtree(result)


def diagnosed(model: Path, folder: Path, options: Sequence[str]) -> None:
    """Leave in ``folder`` what a triage leaves; as its steps, where there is none."""
    if "triage" in SCHEMAS["strategy"]:
        winnow("strategy=triage", f"model={model}", *options, f"hydra.run.dir={folder}")
        return
    steps = [folder / "steps" / name for name in ("01-reduce", "02-passes")]
    code = winnow("strategy=reduce", f"model={model}", *options, f"hydra.run.dir={steps[0]}")
    result = json.loads((steps[0] / "result.json").read_text())
    if not code:
        sets = [f"inputs.path={steps[0]}", "inputs=files"] if any(steps[0].glob("test_data_set_*/in*")) else []
        words = (f"model={steps[0] / 'reduced.onnx'}", *options, *sets, f"hydra.run.dir={steps[1]}")
        winnow("strategy=passes", *words)
        passes = json.loads((steps[1] / "result.json").read_text())["passes"]
        result |= {"strategy": "triage", "model": "steps/01-reduce/reduced.onnx", "passes": passes}
    (folder / "result.json").write_text(json.dumps(result))


def pairs(groups: Mapping[str, object], members: Sequence[Planted]) -> tuple[float, float]:
    """Return precision and recall of pairs of ``members``; a failure that is in no group is alone."""
    together = right = wanted = 0
    for one, other in combinations(members, 2):
        same, grouped = one.bug == other.bug, groups.get(one.name, one) == groups.get(other.name, other)
        together, right, wanted = together + grouped, right + (grouped and same), wanted + same
    return right / together if together else 1.0, right / wanted if wanted else 1.0


def told(result: Mapping[str, Any], planted: Sequence[Planted]) -> None:
    """Print the bugs, and how right they are."""
    groups = {Path(one).name: number for number, bug in enumerate(result["bugs"]) for one in bug["failures"]}
    of = {one.name: one.bug for one in planted}
    for bug in result["bugs"]:
        defects = Counter(of[Path(one).name] for one in bug["failures"])
        hows = Counter(one["how"] for one in bug["evidence"])
        print(f"{bug['count']:3d}  {bug['name']}: {dict(defects)}; {dict(hows)}")
    for warning in result["warnings"]:
        print("apart:", warning[:200])
    parts = {"all": list(planted), "seen": [one for one in planted if one.seen]}
    parts["held back"] = [one for one in planted if not one.seen]
    for name, members in parts.items():
        precision, recall = pairs(groups, members)
        print(f"{name}: {len(members)} failures, precision {precision:.3f}, recall {recall:.3f}")
    print(f"{len(result['bugs'])} bugs of {len({*of.values()})} defects; {result['checks']['trust']} checks, "
          f"{result['seconds']['total']:.1f} s")  # fmt: skip


def main() -> None:
    """Make the models, diagnose each, group them, and print how right that is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", required=True, help="an interpreter with onnxruntime 1.20.1")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    folder = given.folder.absolute()
    (folder / "failures").mkdir(parents=True, exist_ok=True)
    options = [f"target.python={Path(given.python).expanduser()}"]
    planted = planted_ones(given.count)
    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda one: failing(one, folder, given.seed, options), planted))
    for withheld, every in WITHHELD.items():
        results, place = folder / "results", folder / f"bugs-{every}"
        if every:
            results = folder / f"results-{every}"
            shutil.rmtree(results, ignore_errors=True)
            shutil.copytree(folder / "results", results)
            for one in planted[::every]:
                file = results / one.name / "result.json"
                file.write_text(json.dumps({**json.loads(file.read_text()), "passes": None, "workarounds": []}))
        words = ["strategy=bugs", f"strategy.results=[{results}]", f"hydra.run.dir={place}"]
        print(f"\nwhat heals is withheld of {withheld}:", shlex.join(["python", "-m", "runner", *words]))
        print("exit", winnow(*words))
        told(json.loads((place / "result.json").read_text()), planted)


if __name__ == "__main__":
    main()
