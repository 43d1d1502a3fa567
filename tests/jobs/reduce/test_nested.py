"""What is named inside a nested graph is where the failure is: not in a body that it does not need."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info

from tests.harness import by_command, check_script, winnow
from tests.model.models import model_of, tensor

QUICK = ("strategy=reduce", "checker.flaky=never")


def value(name: str, shape=(2, 4), kind=TensorProto.FLOAT):
    return make_tensor_value_info(name, kind, shape)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return make_graph(nodes, name, [], [value(nodes[-1].output[0])])


def choice(path: Path, condition: list[onnx.NodeProto], bad: str, constants=()) -> Path:
    """An If between two activations; its then branch holds an operator ``bad``, the else branch good ones only."""
    then = branch(
        "then", make_node("Relu", ["a"], ["t0"], name="T0"), make_node(bad, ["t0"], ["t1"], name="BAD"),
        make_node("Neg", ["t1"], ["t2"], name="T2"),
    )  # fmt: skip
    other = branch(
        "else", make_node("Identity", ["a"], ["e0"], name="E0"), make_node("Tanh", ["e0"], ["e1"], name="E1")
    )
    nodes = [
        make_node("Relu", ["x"], ["a"], name="A"),
        *condition,
        make_node("If", ["taken"], ["b"], name="IF", then_branch=then, else_branch=other),
        make_node("Neg", ["b"], ["y"], name="N"),
    ]
    onnx.save(model_of(nodes, [value("x")], [value("y")], list(constants)), str(path))
    return path


def loop(path: Path) -> Path:
    body = make_graph(
        [
            make_node("Relu", ["v"], ["v1"], name="R"),
            make_node("Tanh", ["v1"], ["v2"], name="T"),
            make_node("Identity", ["go"], ["on"], name="I"),
        ],
        "body",
        [value("at", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v")],
        [value("on", [], TensorProto.BOOL), value("v2")],
    )
    nodes = [
        make_node("Relu", ["x"], ["a"], name="A"),
        make_node("Loop", ["count", "start", "a"], ["l"], name="LOOP", body=body),
        make_node("Neg", ["l"], ["y"], name="N"),
    ]
    constants = [tensor("count", np.array(3, np.int64)), tensor("start", np.array(True))]
    onnx.save(model_of(nodes, [value("x")], [value("y")], constants), str(path))
    return path


def holding(word: str) -> tuple[str, ...]:
    """A check that fails for every model in whose bytes a word stands."""
    argv = ["sh", "-c", '! grep -q "$1" "$0"', "{model}", word]
    return "checker=command", f"checker.command={json.dumps(argv)}"


def never_taken(path: Path, bad: str) -> Path:
    return choice(path, [], bad, [tensor("taken", np.array(False))])


def wide(path: Path) -> Path:
    """The If itself fails: its condition has eight elements."""
    greater = make_node("Greater", ["x", "zero"], ["taken"], name="GT")
    return choice(path, [greater], "Sigmoid", [tensor("zero", np.array(0, np.float32))])


RUN = """
import sys, numpy as np, onnx, onnxruntime as ort
from onnx.helper import make_node

def wrong(graph):
    for node in list(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                wrong(attribute.g)
        if node.op_type in ("If", "Tanh"):
            out, node.output[0] = node.output[0], node.output[0] + "_right"
            graph.node.insert(list(graph.node).index(node) + 1, make_node("Exp", [node.output[0]], [out]))

model = onnx.load(sys.argv[1])
feeds, good = dict(np.load(sys.argv[2])), dict(np.load(sys.argv[3]))
wrong(model.graph)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs() if one.name in good]
made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
sys.exit(int(not all(np.allclose(value, good[name], atol=1e-3) for name, value in zip(names, made))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("taken", "nested"), [(True, []), (False, ["IF.else_branch/E1"])])
def test_a_branch_that_never_ran_is_no_answer_to_a_failure_by_values(
    tmp_path: Path, taken: bool, nested: list[str]
) -> None:
    """The If hands on wrong values, whichever branch it takes, and so does a Tanh of one branch."""
    path = choice(tmp_path / "model.onnx", [], "Sigmoid", [tensor("taken", np.array(taken))])
    check = tmp_path / "check.py"
    check.write_text(RUN)
    argv = json.dumps([sys.executable, str(check), "{model}", "{inputs}", "{references}"])
    given = (*QUICK, f"model={path}", "checker=command", f"checker.command={argv}")
    run = winnow(*given, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["nested"]) == (0, ["IF"], nested), run.output


CASES = {
    "the If itself": (wide, (), ["IF"], []),
    "an operator that lacks an input": (
        lambda path: never_taken(path, "Pow"), (), ["IF"], ["IF.then_branch/BAD"]
    ),
    "the branch that is not taken": (
        lambda path: never_taken(path, "Sinh"), holding("Sinh"), ["IF"], ["IF.then_branch/BAD"]
    ),
    "the Loop itself": (loop, holding("Loop"), ["LOOP"], []),
    "a node of the Loop": (loop, holding("Tanh"), ["LOOP"], ["LOOP.body/T"]),
}  # fmt: skip


@pytest.mark.slow
def test_an_input_that_a_body_looks_at_stays_one(tmp_path: Path) -> None:
    """Outside it only its shape is read, so that its value could be a constant."""
    shape = [make_node("Shape", ["a"], ["s"], name="S"), make_node("Gather", ["s", "at"], ["first"], name="G")]
    shape += [make_node("Greater", ["first", "at"], ["taken"], name="MORE")]
    net = choice(tmp_path / "net.onnx", shape, "Softsign", [tensor("at", np.array(0))])
    check = check_script(tmp_path, "sys.exit(int('IF' in nodes and 'S' in nodes))")
    run = winnow(f"model={net}", *by_command(check), "strategy.inside=false", folder=tmp_path / "run")
    assert set(run.result["culprits"]) == {"S", "IF"}, run.output
    assert "a" in [one.name for one in run.model().graph.input]


@pytest.mark.variants
@pytest.mark.parametrize("case", CASES)
def test_a_body_is_named_only_if_the_failure_needs_it(tmp_path: Path, case: str) -> None:
    make, check, culprits, nested = CASES[case]
    run = winnow(*QUICK, f"model={make(tmp_path / 'model.onnx')}", *check, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert (run.result["culprits"], run.result["nested"]) == (culprits, nested), run.output
    assert run.result["minimality"] == "1-minimal"
    inside = f"{culprits[0]}, inside it {', '.join(nested)} (" if nested else f"{culprits[0]} ("
    assert run.screen[0].startswith("found: ") and inside in run.screen[0], run.output
