"""Check scripts as people write them, on three failing models: the right answer, or exit 3 with the right advice.

    python -m benchmarks.check_scripts [SCRIPT ...] [--models crash] [--keep FOLDER]

A row is right where the culprit is the planted one, also with the nodes in front of it or behind it where the run says
that it kept the model's own inputs or outputs, and where the run ends with exit 3 and says what to change. An answer
that holds an innocent node otherwise, with exit 0, is wrong, whatever else is said.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.check_bodies import ALL_THREE, SCRIPTS, Script
from tests.harness import winnow

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
FAULT = "fault"
ADVICE = (
    "{inputs}",
    "{references}",
    "strategy.reduce_inputs=false",
    "strategy.reduce_outputs=false",
    "resume=",
    "could not import",
)
KEPT = {"strategy.reduce_inputs=false": "inputs", "strategy.reduce_outputs=false": "outputs"}


@dataclass(frozen=True)
class Row:
    """How a run ended. ``right``: as the module says."""

    script: str
    model: str
    answer: str
    code: int
    advice: str
    right: bool
    seconds: float
    message: str


def network(fault: list[NodeProto], weights: dict[str, np.ndarray]) -> ModelProto:
    """``fault`` (from ``a`` to ``b``) with four nodes in front of it and three behind."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["img", "w"], ["h0"], name="project"),
        node("Add", ["h0", "bias"], ["h1"], name="shift"),
        node("Tanh", ["h1"], ["h2"], name="squash"),
        node("Mul", ["h2", "two"], ["a"], name="scale"),
        *fault,
        node("Sub", ["b", "half"], ["h3"], name="center"),
        node("Sigmoid", ["h3"], ["h4"], name="gate"),
        node("Neg", ["h4"], ["logits"], name="flip"),
    ]
    held = {
        "w": np.array([[0.5, -0.25, 0.125], [0.25, 0.5, -0.5], [-0.75, 0.25, 0.5]], np.float32),
        "bias": np.array([0.1, -0.2, 0.3], np.float32),
        "two": np.float32(2),
        "half": np.float32(0.5),
    }
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**held, **weights}.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("img", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, 3])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def models() -> dict[str, tuple[ModelProto, ModelProto]]:
    """The failing models, each with its good parent."""
    node = helper.make_node
    root = node("Sqrt", ["a"], ["b"], name=FAULT)
    weighted = node("Mul", ["a", "k"], ["b"], name=FAULT)
    taken = node("Gather", ["a", "i"], ["b"], name=FAULT)
    good = network([weighted], {"k": np.float32(1)})
    return {
        "mismatch": (network([weighted], {"k": np.float32(1.5)}), good),
        "nan": (network([root], {}), network([node("Abs", ["a"], ["b"], name=FAULT)], {})),
        "crash": (network([taken], {"i": np.array([0, 9])}), network([taken], {"i": np.array([0, 1])})),
    }


def lay_out(folder: Path, model: ModelProto, parent: ModelProto, script: Script) -> None:
    """Write what a person has: the model, a good one, inputs, what is expected, the check."""
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    onnx.save(parent, folder / "parent.onnx")
    np.savez(folder / "inputs.npz", img=X)
    np.save(folder / "expected.npy", ReferenceEvaluator(parent).run(None, {"img": X})[0])
    for name, text in {"check.py": script.body, **script.files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def options(name: str, script: Script) -> Iterator[str]:
    """The command line that a person types for it."""
    yield from ("strategy=reduce", "model=model.onnx", "inputs=files", "inputs.path=inputs.npz", "checker.flaky=never")
    if name != "crash":  # what crashes has no good values after that, and the person no parent to take them from
        yield "reference.model=parent.onnx"
    if script.command is None:
        yield from ("checker=python", "checker.file=check.py")
    else:
        yield from (
            "checker=command",
            f"checker.command={json.dumps(script.command.replace('{python}', sys.executable))}",
        )
    yield from script.options


def judge(name: str, title: str, folder: Path) -> Row:
    """Run one script on one model."""
    script = SCRIPTS[title]
    lay_out(folder, *models()[name], script)
    started = time.monotonic()
    run = winnow(*options(name, script), folder=folder / "run", cwd=folder)
    result = run.result
    message = " ".join(str(result["message"]).split())
    told = str(result["message"]).replace(str(result["check"]), "")
    advice = next((what for what in ADVICE if what in told), "")
    # advice names the same options; only what the run says that it did counts
    did = "\n".join(line.partition("verdicts are not known")[0] for line in run.output.splitlines())
    kept = {what for option, what in KEPT.items() if option in did}
    order = [node.name for node in models()[name][0].graph.node]
    place = order.index(FAULT)
    allowed = {FAULT} | (set(order[:place]) if "inputs" in kept else set()) | (
        set(order[place + 1 :]) if "outputs" in kept else set()
    )  # fmt: skip
    found = FAULT in result["culprits"] and set(result["culprits"]) <= allowed
    right = found if run.code == 0 else run.code == 3 and bool(advice) and name not in script.judges
    return Row(
        title, name, ", ".join(result["culprits"]) or "-", run.code, advice, right, time.monotonic() - started, message
    )


def table(rows: Iterable[Row]) -> str:
    """The rows as text."""
    head = f"{'script':30} {'model':9} {'answer':30} exit {'advice':29} right"
    lines = [
        f"{row.script:30} {row.model:9} {row.answer[:30]:30} {row.code:4} {row.advice:29} "
        f"{'yes' if row.right else 'NO: ' + row.message[:200]}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"all if none is given: {', '.join(SCRIPTS)}")
    parser.add_argument("--models", default=",".join(ALL_THREE))
    parser.add_argument("--keep", type=Path, help="leave the run folders here")
    given = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        base = (given.keep or Path(temporary)).absolute()
        for title in given.scripts or SCRIPTS:
            for name in given.models.split(","):
                rows.append(judge(name, title, base / title.replace(" ", "_").replace("/", "_") / name))
                print(table(rows[-1:]).splitlines()[1], f"{rows[-1].seconds:.1f} s", flush=True)
    wrong = [row for row in rows if not row.right]
    innocent = [row for row in wrong if row.code == 0]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right; a wrong answer with exit 0: {len(innocent)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
