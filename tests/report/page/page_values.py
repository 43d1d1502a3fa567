"""Pages as values, of every kind, made without a run: for tests of what draws them, and for its figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from runner.model.graph.graph_index import Graph as Index
from runner.report.document import Bullets, section, table
from runner.report.page.data import Page, PageTrial
from runner.report.page.graph_columns import columns
from tests.report.page.page_parts import bisection, layers, nested_model, slice_of, tensor, transformer

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
    lists = (
        "labels",
        "facts",
        "warnings",
        "tensors",
        "layers",
        "trials",
        "curve",
        "alone",
        "sections",
        "commands",
        "jobs",
    )
    return Page(**{**empty, **{name: [] for name in lists}, **fields})


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
            *section("What heals it", [table(("change", "outcome"), [("float32 for Gelu", "pass")])]),
            *section("Environment", [table(("", ""), [("onnxruntime", "1.22.0"), ("python", "3.11.9")])]),
        ],
        commands=[
            {"what": "Show the failure again", "command": "python repro.py"},
            {"what": "Run the search again", "command": "winnow outputs/2026-01-02/replay.yaml"},
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
    whole = transformer(180, [60, 61])
    measured = layers(whole, 60, 61)
    for at, layer in enumerate(measured):
        held = "float32" if at in (60, 61) else "float16"
        layer["precision"] = {
            "held": held,
            "error": 1e-4,
            "most": 3.0e5 if at == 61 else 12.5,
            "limit": 65504.0,
            "why": "",
        }
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
            {
                "node": f"/layer_{at}",
                "error": 2.0 / at,
                "outcome": "fail" if at < 2 else "pass",
                "cost": 64,
                "raised": at < 2,
            }
            for at in (1, 2, 3)
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
    items = Bullets(("one", "long_" * 60))
    steps = ["Each step is a run.", items, table(("step", "status", "answer"), rows), "What goes on below it."]
    made["sections"][:0] = section("Steps", steps)
    return Page(**{**made, "title": "triage: encoder.onnx", "strategy": "triage"})


def repeat(count: int = 200) -> Page:
    trials = [
        PageTrial(
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
        "sections": [one for text in HOSTILE for one in section(text, [text, table((text, text), rows)])],
        "commands": [{"what": text, "command": text} for text in HOSTILE],
        "jobs": jobs,
    }
    return Page(**{**made, **fields})


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
}
"""Pages by what they show."""
