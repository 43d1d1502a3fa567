"""Pages as values, of every kind, made without a run: for tests of what draws them, and for its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx.parser import parse_model

from runner.model.graph.graph_index import Graph as Index
from runner.report.document import Bullets, section, table
from runner.report.page.data import LayerError, Page, PageGraph, PageTensor, PageTrial, PageValues
from runner.report.page.graph_columns import columns
from runner.report.page.tensor_values import sample

#: names that would end an element, run or turn round what follows them, were they taken for anything but text
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "]]><!--<script>",
    "line\u2028break\u2029",
    "\u202eesrever\u202c",
    "nul\x00 bell\x07 tab\t",
    "\"' onclick=alert(3) &lt;b&gt; &#60;",
    "javascript:alert(4)",
    "\udcff\ud800",
)
_LAYER = ("MatMul", "Add", "Mul", "Softmax", "MatMul", "LayerNormalization", "Gelu", "MatMul", "Add")
_TEXTS = ["title", "verdict", "cause", "status", "strategy", "elements"]


def transformer(nodes: int) -> list[NodeProto]:
    """The nodes of a chain of blocks of nine with a residual each, and a weight for each product."""
    made: list[NodeProto] = []
    before = residual = "input"
    for node in range(nodes):
        layer, at = divmod(node, len(_LAYER))
        path = f"model/encoder/stage.{layer // 24}/layer.{layer}/{'attention' if at < 5 else 'mlp'}"
        kind = _LAYER[at]
        more = {"MatMul": [f"{path}.{at}.weight"], "Add": [residual]}.get(kind, [])
        axis = {"axis": -1} if kind in ("Softmax", "LayerNormalization") else {}
        output = f"/{path}/{kind}_{at}_output_0"
        made.append(helper.make_node(kind, [before, *more], [output], f"/{path}/{kind}_{at}", **axis))
        before, residual = output, output if kind == "Add" else residual
    return made


def drawn(nodes: Sequence[NodeProto], culprits: Sequence[int] = ()) -> PageGraph:
    """Some of these nodes as a graph of their own."""
    made = dict.fromkeys(name for node in nodes for name in node.output)
    read = dict.fromkeys(name for node in nodes for name in node.input if name not in made)
    weights = [
        TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=[768, 768]) for name in read if "weight" in name
    ]
    fed = [name for name in read if "weight" not in name] or ["input"]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in names]
        for names in (fed, [*made][-1:])
    ]
    graph = helper.make_graph(nodes, "part", *ends, weights)
    types = dict.fromkeys((*fed, *made), "float16[1, 128, 768]")
    return columns(Index.of(helper.make_model(graph)), types, [nodes[at].name for at in culprits])


def values(seed: int, spread: float = 1.0, bad: int = 0) -> PageValues:
    """A sample as of 4,096 normal values."""
    array = np.random.default_rng(seed).normal(0, spread, 4096).astype(np.float16)
    array[:bad] = math.inf
    return {**sample(array, TensorProto.FLOAT16), "shape": [1, 128, 768]}


def tensor(name: str, where: str = "the reduced model") -> PageTensor:
    differences: Any = [
        {"index": [0, 3, at], "good": 0.125 * at, "wrong": "inf" if at == 2 else 0.5} for at in range(6)
    ]
    good, wrong = values(1), values(2, 1.8, bad=3)
    return PageTensor(name=name, where=where, good=good, wrong=wrong, differences=differences, differing=1284)


def layers(graph: PageGraph, start: int, worst: int | None = None) -> list[LayerError]:
    """Errors that begin at a node."""

    def error(node: int) -> float | str:
        if node == worst:
            return "inf"
        return 1e-6 * (1 + node % 7) if node < start else min(0.9, 0.02 + 0.01 * (node % 40))

    return [
        LayerError(
            tensor=graph["tensors"][graph["outputs"][node][0]],
            node=name,
            error=error(node),
            own=None if node % 3 else 1e-5 if node != start else 0.21,
            nan=0,
            inf=2 if node == worst else 0,
            precision=None,
        )
        for node, name in enumerate(graph["names"])
    ]


def trial(number: int, **told: Any) -> PageTrial:
    plain: Any = {"phase": "search", "label": "", "kept": [], "size": 1, "seconds": 0.2 + math.sin(number) ** 2}
    return PageTrial(**{**plain, "number": number, "outcome": "pass", "reason": "", "log": "", **told})


def bisection(size: int, culprits: Sequence[int], log: str = "") -> list[PageTrial]:
    """What a search by halves asks: stretches around the culprits."""
    fails = {"outcome": "fail", "reason": "max error 0.41 > 0.01"}
    trials = [trial(1, phase="pre-flight", label="the model file", size=size, log=log, **fails)]
    low, high, first, last = 0, size, min(culprits), max(culprits) + 1
    while (low, high) != (first, last):
        middle = (low + high) // 2
        for label, kept, shrunk in (
            ("prefix", (low, middle), last <= middle),
            ("suffix", (middle, high), first >= middle),
        ):
            number = len(trials)
            ended = fails if shrunk else {"outcome": "unresolved" if number % 5 == 0 else "pass"}
            of = {"label": label, "size": kept[1] - kept[0], "kept": [[kept[0], kept[1] - 1]]}
            trials.append(trial(0 if number == 1 else number, log=log, **of, **ended))
            if shrunk:
                low, high = kept
                break
        else:
            low, high = (low, last) if last < high else (first, high)
    return trials


def nested_model() -> ModelProto:
    """An If whose first branch has a Loop with a node named ``bad``, and a function that is called twice."""
    return parse_model("""<ir_version: 9, opset_import: ["": 17, "own": 1]>
    nested (float[1,8] x, bool yes) => (float[1,8] y) {
        [before] a = Abs(x)
        [gate] b = If(yes) <
            then_branch = then () => (float[1,8] u) {
                [turn] n = Neg(a)
                count = Constant<value_int: int = 3>()
                [loop] u = Loop(count, , n) <
                    body = body (int64 i, bool c, float[1,8] s) => (bool again, float[1,8] e) {
                        [step0] s1 = Mul(s, a)
                        [step1] s2 = Mul(s1, a)
                        [bad] e = Exp(s2)
                        [condition] again = Identity(c)
                    }
                >
            },
            else_branch = else () => (float[1,8] u) { [plain] u = Relu(a) }
        >
        [first] d = own.Swish(b)
        [second] y = own.Swish(d)
    }
    <domain: "own", opset_import: ["": 17]>
    Swish (v) => (r) { [sigmoid] w = Sigmoid(v) [product] r = Mul(v, w) }""")


def page(**fields: Any) -> Page:
    """A page on which nothing applies, but for these."""
    plain = {"kind": "run", "title": "model.onnx", "made": "2026-01-02 03:04:05", "version": "0.1.0"}
    return Page(**{**plain, **fields})


def reduced(nodes: int = 25_000, log: str = "max abs error 0.41\n") -> Page:
    """A reduction to three nodes in the middle."""
    first = nodes // 2
    culprits = [*range(first, min(nodes, first + 3))]
    protos = transformer(nodes)
    whole, part = drawn(protos, culprits), drawn([protos[at] for at in culprits], range(len(culprits)))
    return page(
        title="reduce_bisect: encoder.onnx",
        verdict=f"{len(culprits)} of {nodes:,} nodes still fail: Add, MatMul and Add around layer.{first // 9}.",
        cause="They are the cause: with good values in their place the whole model passes, and with good values before "
        "them it still fails as badly.",
        status="found",
        strategy="reduce_bisect",
        facts=[["checks", "31 (24 search, 7 trust)"], ["reused", "4"], ["failure", "mismatch, max error 0.41"]],
        warnings=["2 checks were unresolved: the candidate has no valid shapes."],
        reduced=part,
        whole=whole,
        tensors=[tensor(name) for name in part["tensors"]],
        layers=layers(whole, first, first + 1),
        elements="nodes",
        trials=bisection(nodes, culprits, log),
        sections=[
            *section("What heals it", [table(("change", "outcome"), [("float32 for Gelu", "pass")])]),
            *section("Environment", [table(("", ""), [("onnxruntime", "1.22.0"), ("python", "3.11.9")])]),
        ],
        commands=[
            ["Show the failure again", "python repro.py"],
            ["Run the search again", "winnow outputs/2026-01-02/replay.yaml"],
        ],
    )


def nested() -> Page:
    """A node of a Loop inside a branch is the answer; other nested nodes share its tensors' names."""
    guilty = "gate.then_branch/loop.body/bad"
    whole = columns(Index.of(nested_model()), {}, ["gate", guilty])
    errors = [{**layers(whole, 0)[0], "node": guilty, "tensor": "gate.then_branch/loop.body/e"}]
    return page(
        title="reduce_minimal: decoder.onnx",
        verdict="1 of 4 nodes fails: bad, inside gate",
        labels=["nested graphs"],
        status="found",
        whole=whole,
        layers=errors,
        tensors=[tensor("gate.then_branch/loop.body/e", "the whole model"), tensor("e", "the whole model")],
        elements="nodes",
        trials=bisection(4, [1]),
    )


def precision() -> Page:
    whole = drawn(transformer(180), [60, 61])
    measured = layers(whole, 60, 61)
    for at, layer in enumerate(measured):
        held, most = "float32" if at in (60, 61) else "float16", 3.0e5 if at == 61 else 12.5
        layer["precision"] = {"held": held, "error": 1e-4, "most": most, "limit": 65504.0, "why": ""}
    points = [(0, "nan"), (2, 40.0), (4, 9.0), (7, 3.1), (12, 0.8), (25, 0.2), (60, 0.01), (180, 0.0)]
    return page(
        title="precision_adding: encoder.onnx",
        verdict="12 of 180 nodes have to stay in float32.",
        status="found",
        strategy="precision_adding",
        whole=whole,
        layers=measured,
        elements="candidate nodes",
        trials=bisection(180, [60, 61]),
        curve=[
            {"raised": at, "error": error, "outcome": "pass" if at >= 12 else "fail", "chosen": at == 12}
            for at, error in points
        ],
        alone=[
            {"node": f"/layer_{at}", "error": 2.0 / at, "outcome": outcome, "cost": 64, "raised": outcome == "fail"}
            for at, outcome in ((1, "fail"), (2, "pass"), (3, "pass"))
        ],
    )


def tactics() -> Page:
    return page(
        title="tactic_isolate: resnet.onnx",
        verdict="One tactic breaks the engine: sm80_xmma_fprop of Conv_12.",
        status="found",
        strategy="tactic_isolate",
        labels=["simulated builder"],
        elements="tactics",
        trials=bisection(64, [12, 13]),
    )


def triage() -> Page:
    made = reduced(90)
    rows = [["reduce", "found", "3 nodes"], ["repeat", "not flaky", "20 of 20 fail"]]
    items = Bullets(("one", "long_" * 60))
    steps = ["Each step is a run.", items, table(("step", "status", "answer"), rows), "What goes on below it."]
    made.sections[:0] = section("Steps", steps)
    return replace(made, title="triage: encoder.onnx", strategy="triage")


def repeat(count: int = 200) -> Page:
    def outcome(number: int) -> str:
        return "fail" if number % 13 == 0 else "different" if number % 57 == 0 else "pass"

    trials = [trial(at, label=f"iteration {at}", outcome=outcome(at), kept=[[at - 1] * 2]) for at in range(1, count)]
    return page(
        title="repeat: flaky.onnx",
        verdict=f"It fails in {sum(one['outcome'] == 'fail' for one in trials)} of {count} iterations.",
        status="flaky",
        strategy="repeat",
        elements="iterations",
        trials=trials,
    )


def sweep(count: int = 24) -> Page:
    jobs: Any = [
        {
            "number": str(at),
            "overrides": ["strategy=reduce_bisect", f"model=models/net_{at}.onnx"],
            "status": "found" if at % 4 else "nothing fails",
            "exit_code": 0 if at % 4 else 3,
            "answer": f"{at % 5 + 1} nodes" if at % 4 else "",
            "trust": "cause" if at % 3 else "sufficient",
            "asked": 20 + at,
            "run": 15 + at,
            "reused": 5,
            "seconds": 3.25 * at,
            "page": f"{at}/report.html" if at % 7 else "",
        }
        for at in range(count)
    ]
    return page(
        kind="sweep", title="Sweep of 24 jobs", verdict="18 of 24 jobs found an answer.", status="done", jobs=jobs
    )


def hostile() -> Page:
    """A page in which every text is one that means harm."""
    made = reduced(30, log="\n".join(HOSTILE))
    rows = [[name, name] for name in HOSTILE]
    for graph in (made.reduced, made.whole):
        assert graph is not None
        graph["operators"] = [f"{name}{HOSTILE[at % len(HOSTILE)]}" for at, name in enumerate(graph["operators"])]
        graph["blocks"] = [f"{path}/{HOSTILE[at % len(HOSTILE)]}" for at, path in enumerate(graph["blocks"])]
        graph["types"] = [HOSTILE[at % len(HOSTILE)] for at in range(len(graph["types"]))]
        graph["names"] = [HOSTILE[at % len(HOSTILE)] for at in range(len(graph["names"]))]
        graph["attributes"] = {str(node): rows for node in range(len(graph["names"]))}
    whole = made.whole
    assert whole
    body: Any = {"owner": 0, "name": HOSTILE[1], "path": HOSTILE[0], "feeds": [], "results": []}
    whole["bodies"] = [{**body, "node": 25, "nodes": 5, "tensor": whole["outputs"][25][0]}]
    for one, text in zip(made.trials, HOSTILE, strict=False):
        one.update({"label": text, "phase": text, "reason": text, "outcome": text})
    jobs: Any = [
        {**job, **dict.fromkeys(("number", "status", "answer", "trust"), text), "overrides": [text]}
        for job, text in zip(sweep().jobs, HOSTILE, strict=False)
    ]
    for job, where in zip(
        jobs, ("javascript:alert(5)", "//elsewhere/x", '"><script>', "a b/report.html"), strict=False
    ):
        job["page"] = where
    fields: dict[str, Any] = {
        **dict.fromkeys((*_TEXTS, "made", "version"), HOSTILE[1]),
        "labels": [*HOSTILE],
        "warnings": [*HOSTILE],
        "facts": rows,
        "sections": [one for text in HOSTILE for one in section(text, [text, table((text, text), rows)])],
        "commands": [[text, text] for text in HOSTILE],
        "jobs": jobs,
    }
    return replace(made, **fields)


def empty_graph() -> Page:
    return page(whole=drawn([]), reduced=drawn([]), verdict="Nothing fails here.")


KINDS: Mapping[str, Callable[[], Page]] = {
    "reduce": reduced,
    "nested": nested,
    "repeat": repeat,
    "precision": precision,
    "triage": triage,
    "tactics": tactics,
    "sweep": sweep,
    "hostile": hostile,
    "nothing": page,
    "empty": empty_graph,
    "one": lambda: page(title="one node", reduced=drawn(transformer(1), [0]), verdict="One node."),
}
"""Pages by what they show."""
