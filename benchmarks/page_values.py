"""Pages as values, of every kind, made without a run: for tests of what draws them, and for its figures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import ModelProto, TensorProto, helper

from runner.model.graph.graph_index import Graph as Index
from runner.report.page.collect.graph_columns import columns
from runner.report.page.data import Graph, LayerError, Page, Tensor, Trial, Values

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


def page(**fields: Any) -> Page:
    """A page on which nothing applies, but for these."""
    empty: dict[str, Any] = {
        "kind": "run",
        "title": "model.onnx",
        "verdict": "",
        "cause": "",
        "status": "",
        "strategy": "",
        "elements": "",
        "reduced": None,
        "whole": None,
        "made": "2026-01-02 03:04:05",
        "version": "0.1.0",
    }
    lists = ("labels", "facts", "warnings", "tensors", "layers", "trials", "curve", "sections", "commands", "jobs")
    return Page(**{**empty, **{name: [] for name in lists}, **fields})


def transformer(nodes: int, culprits: Sequence[int] = (), names: Mapping[int, str] | None = None) -> Graph:
    """A chain of blocks of nine nodes with a residual each, and a weight for each product."""
    names = names or {}
    operators = [*dict.fromkeys(_LAYER)]
    tensors, types, inputs, constants = ["input"], ["float16[1, 128, 768]"], [], []
    blocks: list[str] = []
    block, called = [], []
    attributes: dict[str, list[list[str]]] = {}
    before = residual = 0
    for node in range(nodes):
        layer, at = divmod(node, len(_LAYER))
        kind = _LAYER[at]
        path = f"model/encoder/stage.{layer // 24}/layer.{layer}/{'attention' if at < 5 else 'mlp'}"
        if not blocks or blocks[-1] != path:
            blocks.append(path)
        block.append(len(blocks) - 1)
        called.append(names.get(node, f"/{path}/{kind}_{at}"))
        read = [before]
        if kind == "MatMul":
            tensors.append(f"{path}.{at}.weight")
            types.append("float16[768, 768]")
            constants.append(len(tensors) - 1)
            read.append(len(tensors) - 1)
        if kind == "Add":
            read.append(residual)
        if kind in {"Softmax", "LayerNormalization"}:
            attributes[str(node)] = [["axis", "-1"]]
        inputs.append(read)
        tensors.append(f"{called[-1]}_output_0")
        types.append("float16[1, 128, 768]")
        before = len(tensors) - 1
        residual = before if kind == "Add" else residual
    made = sorted({*range(1, len(tensors))} - {*constants})
    return Graph(
        names=called,
        operators=operators,
        operator=[operators.index(_LAYER[node % len(_LAYER)]) for node in range(nodes)],
        blocks=blocks,
        block=block,
        tensors=tensors,
        types=types,
        inputs=inputs,
        outputs=[[place] for place in made],
        constants=constants,
        feeds=[0],
        results=made[-1:],
        attributes=attributes,
        culprits=[*culprits],
        bodies=[],
        undrawn=0,
    )


def values(seed: int, spread: float = 1.0, bad: int = 0) -> Values:
    """A sample as of 4,096 normal values."""
    chance = random.Random(seed)
    drawn = sorted(chance.gauss(0, spread) for _ in range(4096))
    low, high, count = drawn[0], drawn[-1], 32
    edges = [low + (high - low) * at / count for at in range(count + 1)]
    counts = [0] * count
    for value in drawn:
        counts[min(count - 1, int((value - low) / (high - low) * count))] += 1
    first = [round(chance.gauss(0, spread), 5) for _ in range(8)]
    return Values(
        dtype="float16",
        shape=[1, 128, 768],
        low=low,
        high="inf" if bad else high,
        mean=0.01,
        nan=0,
        inf=bad,
        edges=edges,
        counts=counts,
        first=[*first],
    )


def tensor(name: str, where: str = "the reduced model", seed: int = 1) -> Tensor:
    good, wrong = values(seed), values(seed + 1, 1.8, bad=3)
    differences: Any = [
        {"index": [0, 3, at], "good": 0.125 * at, "wrong": "inf" if at == 2 else 0.5} for at in range(6)
    ]
    return Tensor(name=name, where=where, good=good, wrong=wrong, differences=differences, differing=1284)


def layers(graph: Graph, start: int, worst: int | None = None) -> list[LayerError]:
    """Errors that begin at a node."""

    def error(node: int) -> float | str:
        if node == worst:
            return "inf"
        return 1e-6 * (1 + node % 7) if node < start else 0.02 + 0.01 * (node % 40)

    return [
        LayerError(
            tensor=graph["tensors"][graph["outputs"][node][0]],
            node=name,
            error="inf"
            if node == worst
            else 1e-6 * (1 + node % 7)
            if node < start
            else min(0.9, 0.02 + 0.01 * (node % 40)),
            own=None if node % 3 else 1e-5 if node != start else 0.21,
            nan=0,
            inf=2 if node == worst else 0,
            precision=None,
        )
        for node, name in enumerate(graph["names"])
    ]


def bisection(size: int, culprits: Sequence[int], log: str = "") -> list[Trial]:
    """What a search by halves asks: stretches around the culprits."""
    given: Any = {"number": 1, "phase": "pre-flight", "label": "the file as it is", "size": size, "kept": []}
    given |= {"outcome": "fail", "seconds": 0.9, "reason": "max error 0.41 > 0.01", "log": log}
    trials, low, high = [Trial(**given)], 0, size
    first, last = min(culprits), max(culprits) + 1
    while (low, high) != (first, last):
        middle = (low + high) // 2
        for kept, shrunk in (((low, middle), last <= middle), ((middle, high), first >= middle)):
            number = len(trials)
            outcome = "fail" if shrunk else "unresolved" if number % 5 == 0 else "pass"
            trials.append(
                Trial(
                    number=0 if number == 1 else number,
                    phase="search",
                    label="prefix" if kept[0] == low else "suffix",
                    size=kept[1] - kept[0],
                    kept=[[kept[0], kept[1] - 1]],
                    outcome=outcome,
                    seconds=0.2 + math.sin(number) ** 2,
                    reason="max error 0.41 > 0.01" if outcome == "fail" else "",
                    log=log,
                )
            )
            if shrunk:
                low, high = kept
                break
        else:
            low, high = (low, last) if last < high else (first, high)
    return trials


def slice_of(graph: Graph, first: int, last: int) -> Graph:
    """Some nodes in a row, as a graph of their own, all of them culprits."""
    used = sorted({at for part in (graph["inputs"], graph["outputs"]) for row in part[first:last] for at in row})
    place = {at: number for number, at in enumerate(used)}
    made = {at for row in graph["outputs"][first:last] for at in row}
    paths = sorted({graph["block"][node] for node in range(first, last)})
    return Graph(
        names=graph["names"][first:last],
        operators=graph["operators"],
        operator=graph["operator"][first:last],
        blocks=[graph["blocks"][path] for path in paths],
        block=[paths.index(path) for path in graph["block"][first:last]],
        tensors=[graph["tensors"][at] for at in used],
        types=[graph["types"][at] for at in used],
        inputs=[[place[at] for at in row] for row in graph["inputs"][first:last]],
        outputs=[[place[at] for at in row] for row in graph["outputs"][first:last]],
        constants=[place[at] for at in graph["constants"] if at in place],
        feeds=[place[at] for at in used if at not in made and at not in graph["constants"]],
        results=[place[graph["outputs"][last - 1][0]]],
        attributes={str(int(at) - first): rows for at, rows in graph["attributes"].items() if first <= int(at) < last},
        culprits=[*range(last - first)],
        bodies=[],
        undrawn=0,
    )


def reduced(nodes: int = 25_000, names: Mapping[int, str] | None = None, log: str = "max abs error 0.41\n") -> Page:
    """A reduction to three nodes in the middle."""
    first = nodes // 2
    culprits = [*range(first, min(nodes, first + 3))]
    whole = transformer(nodes, culprits, names)
    part = slice_of(whole, culprits[0], culprits[-1] + 1)
    return page(
        title="reduce_bisect: encoder.onnx",
        verdict=f"{len(culprits)} of {nodes:,} nodes still fail: Add, MatMul and Add around layer.{first // 9}.",
        cause="They are the cause: with good values in their place the whole model passes, and with good values before "
        "them it still fails as badly.",
        status="found",
        strategy="reduce_bisect",
        facts=[
            ["checks", "31 (24 search, 7 trust)"],
            ["reused", "4"],
            ["minimality", "proven 1-minimal"],
            ["failure", "mismatch, max error 0.41"],
            ["time", "12.4 s"],
            ["target", "onnxruntime 1.22, CPU"],
        ],
        warnings=["2 checks were unresolved: the candidate has no valid shapes."],
        reduced=part,
        whole=whole,
        tensors=[tensor(name) for name in part["tensors"]],
        layers=layers(whole, first, first + 1),
        elements="nodes",
        trials=bisection(nodes, culprits, log),
        sections=[
            {
                "title": "What heals it",
                "text": "",
                "head": ["change", "outcome"],
                "rows": [["float32 for Gelu", "pass"]],
            },
            {"title": "Environment", "text": "", "head": [], "rows": [["onnxruntime", "1.22.0"], ["python", "3.11.9"]]},
        ],
        commands=[
            {"what": "Show the failure again", "command": "python repro.py"},
            {"what": "Run the search again", "command": "winnow outputs/2026-01-02/replay.yaml"},
        ],
    )


def nested_model(bad: str = "bad", steps: int = 2) -> ModelProto:
    """An If whose first branch has a Loop with so many nodes and one named ``bad``, and a function called twice."""
    value, node, graph = helper.make_tensor_value_info, helper.make_node, helper.make_graph
    kind, shape = TensorProto.FLOAT, [1, 8]
    names = ["s", *(f"s{at}" for at in range(1, steps + 1))]
    repeated = [
        *(node("Mul", [names[at], "a"], [names[at + 1]], f"step{at}") for at in range(steps)),
        node("Exp", [names[-1]], ["e"], bad),
        node("Identity", ["c"], ["again"], "condition"),
    ]
    carried = [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("s", kind, shape)]
    body = graph(repeated, "body", carried, [value("again", TensorProto.BOOL, []), value("e", kind, shape)])
    then = [
        node("Neg", ["a"], ["n"], "turn"),
        node("Constant", [], ["count"], value_int=3),
        node("Loop", ["count", "", "n"], ["u"], "loop", body=body),
    ]
    branches = {
        "then_branch": graph(then, "then", [], [value("u", kind, shape)]),
        "else_branch": graph([node("Relu", ["a"], ["u"], "plain")], "else", [], [value("u", kind, shape)]),
    }
    nodes = [
        node("Abs", ["x"], ["a"], "before"),
        node("If", ["yes"], ["b"], "gate", **branches),
        node("Swish", ["b"], ["d"], "first", domain="own"),
        node("Swish", ["d"], ["y"], "second", domain="own"),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    swish = [node("Sigmoid", ["v"], ["w"], "sigmoid"), node("Mul", ["v", "w"], ["r"], "product")]
    function = helper.make_function("own", "Swish", ["v"], ["r"], swish, imports[:1])
    ends = [value("x", kind, shape), value("yes", TensorProto.BOOL, [])]
    made = graph(nodes, "nested", ends, [value("y", kind, shape)])
    return helper.make_model(made, opset_imports=imports, functions=[function], ir_version=9)


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
    whole = transformer(180, [60, 61])
    measured = layers(whole, 60, 61)
    for at, layer in enumerate(measured):
        held = "float32" if at in (60, 61) else "float16"
        layer["precision"] = {"held": held, "error": 1e-4, "most": 3.0e5 if at == 61 else 12.5, "limit": 65504.0}
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
    )


def tactics() -> Page:
    made = bisection(64, [12, 13])
    return page(
        title="tactic_isolate: resnet.onnx",
        verdict="One tactic breaks the engine: sm80_xmma_fprop of Conv_12.",
        status="found",
        strategy="tactic_isolate",
        labels=["simulated builder"],
        elements="tactics",
        trials=made,
    )


def triage() -> Page:
    rows = [
        ["reduce", "found", "3 nodes"],
        ["precision", "found", "12 nodes"],
        ["repeat", "not flaky", "20 of 20 fail"],
    ]
    made = reduced(90)
    text = f"Each step is a run.\n- one\n- {'long_' * 60}"
    steps: Any = {"title": "Steps", "text": text, "head": ["step", "status", "answer"], "rows": rows}
    more: Any = {"title": "", "text": "What goes on with the section above.", "head": [], "rows": []}
    made["sections"][:0] = [steps, more]
    return Page(**{**made, "title": "triage: encoder.onnx", "strategy": "triage"})


def repeat(count: int = 200) -> Page:
    trials = [
        Trial(
            number=number,
            phase="search",
            label=f"iteration {number}",
            size=1,
            kept=[[number - 1, number - 1]],
            outcome="fail" if number % 13 == 0 else "different" if number % 57 == 0 else "pass",
            seconds=0.05 + 0.02 * math.sin(number),
            reason="",
            log="",
        )
        for number in range(1, count + 1)
    ]
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
    names = {node: f"{HOSTILE[node % len(HOSTILE)]}" for node in range(30)}
    made = reduced(30, names, log="\n".join(HOSTILE))
    rows = [[name, name] for name in HOSTILE]
    for graph in (made["reduced"], made["whole"]):
        assert graph is not None
        graph["operators"] = [f"{name}{HOSTILE[at % len(HOSTILE)]}" for at, name in enumerate(graph["operators"])]
        graph["blocks"] = [f"{path}/{HOSTILE[at % len(HOSTILE)]}" for at, path in enumerate(graph["blocks"])]
        graph["types"] = [HOSTILE[at % len(HOSTILE)] for at in range(len(graph["types"]))]
        graph["attributes"] = {str(node): rows for node in range(len(graph["names"]))}
    whole = made["whole"]
    assert whole
    body: Any = {"owner": 0, "name": HOSTILE[1], "path": HOSTILE[0], "feeds": [], "results": []}
    whole["bodies"] = [{**body, "node": 25, "nodes": 5, "tensor": whole["outputs"][25][0]}]
    for trial, text in zip(made["trials"], HOSTILE, strict=False):
        trial.update({"label": text, "phase": text, "reason": text, "outcome": text})
    jobs: Any = [
        {**job, **dict.fromkeys(("number", "status", "answer", "trust"), text), "overrides": [text]}
        for job, text in zip(sweep()["jobs"], HOSTILE, strict=False)
    ]
    for job, where in zip(
        jobs, ("javascript:alert(5)", "//elsewhere/x", '"><script>', "a b/report.html"), strict=False
    ):
        job["page"] = where
    fields: dict[str, Any] = {
        **dict.fromkeys(("title", "verdict", "cause", "status", "strategy", "made", "version", "elements"), HOSTILE[1]),
        "labels": [*HOSTILE],
        "warnings": [*HOSTILE],
        "facts": rows,
        "sections": [{"title": text, "text": text, "head": [text, text], "rows": rows} for text in HOSTILE],
        "commands": [{"what": text, "command": text} for text in HOSTILE],
        "jobs": jobs,
    }
    return Page(**{**made, **fields})


def flat(nodes: int = 9000) -> Page:
    """A model whose names have no scopes."""
    whole = transformer(nodes, [nodes - 1])
    return page(title="without scopes", whole=Graph(**{**whole, "block": [0] * nodes, "blocks": [""]}))


def empty_graph() -> Page:
    return page(whole=transformer(0), reduced=transformer(0), verdict="Nothing fails here.")


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
    "one": lambda: page(title="one node", reduced=transformer(1, [0]), verdict="One node."),
    "flat": lambda: page(
        title="without scopes", whole={**transformer(9000, [8999]), "block": [0] * 9000, "blocks": [""]}
    ),
}
"""Pages by what they show."""
