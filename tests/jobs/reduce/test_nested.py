"""What is named inside a nested graph is where the failure is: not in a body that it does not need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import by_command, check_script, winnow, written
from tests.jobs.models import saved
from tests.jobs.reduce.test_nested_cause import COMPARE, related
from tests.matrix import slow

QUICK = ("strategy=reduce", "checker.flaky=never")


def choice(path: Path, bad: str, condition: str = "", constants: str = "") -> Path:
    """An If between two activations; its then branch holds an operator ``bad``, the else branch good ones only."""
    text = f"""g (float[2,4] x) => (float[2,4] y) <{constants}> {{
        [A] a = Relu(x) {condition}
        [IF] b = If(taken) <
            then_branch = then () => (float[2,4] t2) {{ [T0] t0 = Relu(a) [BAD] t1 = {bad}(t0) [T2] t2 = Neg(t1) }},
            else_branch = other () => (float[2,4] e1) {{ [E0] e0 = Identity(a) [E1] e1 = Tanh(e0) }}>
        [N] y = Neg(b) }}"""
    return saved(path, text)


def loop(path: Path) -> Path:
    text = """g (float[2,4] x) => (float[2,4] y) <int64 count = {3}, bool start = {1}> {
        [A] a = Relu(x)
        [LOOP] l = Loop(count, start, a) <body = body (int64 at, bool go, float[2,4] v) => (bool on, float[2,4] v2) {
            [R] v1 = Relu(v) [T] v2 = Tanh(v1) [I] on = Identity(go) }>
        [N] y = Neg(l) }"""
    return saved(path, text)


def holding(word: str, other: str = "") -> tuple[str, ...]:
    """A check that fails for every model in whose bytes a word stands, and another one."""
    argv = ["sh", "-c", '! (grep -q "$1" "$0" && grep -q "$2" "$0")', "{model}", word, other]
    return "checker=command", f"checker.command={json.dumps(argv)}"


def never_taken(path: Path, bad: str) -> Path:
    return choice(path, bad, constants="bool taken = {0}")


def wide(path: Path) -> Path:
    """The If itself fails: its condition has eight elements."""
    return choice(path, "Sigmoid", "[GT] taken = Greater(x, zero)", "float zero = {0.0}")


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
    path = choice(tmp_path / "model.onnx", "Sigmoid", constants=f"bool taken = {{{int(taken)}}}")
    check = by_command(written(tmp_path, RUN), "{inputs}", "{references}")
    run = winnow("strategy=reduce", f"model={path}", *check, folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["nested"]) == (0, ["IF"], nested), run.output


CASES = {
    "the If itself": (wide, (), ["IF"], []),
    "a node that fails in a Loop": (loop, holding("Tanh", "Loop"), ["LOOP"], ["LOOP.body/T"]),
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
    shape = "[S] s = Shape(a) [G] first = Gather(s, at) [MORE] taken = Greater(first, at)"
    net = choice(tmp_path / "net.onnx", "Softsign", shape, "int64 at = {0}")
    check = check_script(tmp_path, "sys.exit(int('IF' in nodes and 'S' in nodes))")
    run = winnow(f"model={net}", *by_command(check), "strategy.inside=false", folder=tmp_path / "run")
    assert set(run.result["culprits"]) == {"S", "IF"}, run.output
    assert "a" in [one.name for one in run.model().graph.input]


@pytest.mark.parametrize("case", [*[*CASES][:2], *map(slow, [*CASES][2:])])
def test_a_body_is_named_only_if_the_failure_needs_it(tmp_path: Path, case: str) -> None:
    make, check, culprits, nested = CASES[case]
    run = winnow(*QUICK, f"model={make(tmp_path / 'model.onnx')}", *check, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert (run.result["culprits"], run.result["nested"]) == (culprits, nested), run.output
    assert run.result["minimality"] == "1-minimal"
    inside = f"{', '.join(nested)}, inside {culprits[0]} (" if nested else f"{culprits[0]} ("
    assert run.screen[0].startswith("found: ") and inside in run.screen[0], run.output


def test_a_loop_is_compared_with_that_of_the_original(tmp_path: Path) -> None:
    """Its body's tensors hold what the original's body gives, and its weights are compared with those there."""
    run = winnow(*COMPARE, *related(tmp_path, "Loop"), folder=tmp_path / "run")
    assert (run.code, run.result["nested"], run.result["warnings"]) == (0, ["loop.body/fault"], []), run.output
    assert run.result["cause"]["weights"] == ["fault_w is 1.5; the original's is 1"]
