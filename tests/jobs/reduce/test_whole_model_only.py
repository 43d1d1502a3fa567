"""Checks that take the whole model only: they feed an input of their own, or compare with their own golden file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from tests.harness import Run, winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import saved

pytestmark = pytest.mark.slow

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
OPERATORS = ("Tanh", "Abs", "HardSwish", "Sqrt", "Exp", "Sigmoid", "Neg", "Softsign")
RUNTIME = """
import os, sys
import numpy as np, onnx, onnxruntime
from onnx import helper
def session(wrong=(), fused=()):
    model = onnx.load(sys.argv[1])
    nodes = []
    for node in model.graph.node:
        pair = fused and node.op_type == fused[1] and nodes and nodes[-1].op_type == fused[0]
        bad = node.op_type in wrong or (pair and nodes[-1].output[0] == node.input[0])
        nodes.append(node)
        if bad:
            given, node.output[0] = node.output[0], node.output[0] + '_right'
            nodes.append(helper.make_node('Sum', [node.output[0]] * 9, [given]))
    kept = [helper.make_node(one.op_type, one.input, one.output) if not one.attribute else one for one in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=['CPUExecutionProvider'])
good = np.load('golden.npz')
"""
"""A runtime in which some operators, or some that follow each other, give nine times what they should."""
OWN = "fed = {'x': np.load('own.npz')['x']}\n"
GIVEN = "data = np.load(sys.argv[2])\nfed = {one.name: data[one.name] for one in ran.get_inputs()}\n"
COMPARE = "sys.exit(int(not np.allclose(ran.run(['y'], fed)[0], good['y'], rtol=1e-2, atol=1e-4)))\n"


def chain() -> ModelProto:
    """Operators in a row, and one beside them."""
    names = ["x", *(f"t{place}" for place in range(len(OPERATORS)))]
    nodes = [f"[{op}] {names[at + 1]} = {op}({names[at]})" for at, op in enumerate(OPERATORS)]
    ends = f"[Cos] c = Cos(x) [Add] y = Add({names[-1]}, c)"
    return parsed(f"g (float[N,8] x) => (float[N,8] y) {{ {' '.join(nodes)} {ends} }}")


def two_paths() -> ModelProto:
    """Four times what a fusion gives, and once what comes of it."""
    return parsed("""g (float[N,8] x) => (float[N,8] y) {
        [Exp] e = Exp(x) [Sigmoid] s = Sigmoid(e) [Softsign] t = Softsign(s) [Sum] y = Sum(s, s, s, s, t) }""")


def run(
    folder: Path,
    wrong: str,
    *more: str,
    feeds: str = OWN,
    recorded: np.ndarray = X,
    judge: str = COMPARE,
    model: ModelProto | None = None,
) -> Run:
    """Reduce a model (the chain) by a script with a golden file beside it; ``wrong``: what its runtime gets wrong."""
    (folder / "check.py").write_text(f"{RUNTIME}ran = session({wrong})\n{feeds}{judge}")
    np.savez(folder / "own.npz", x=X)
    np.savez(folder / "golden.npz", y=ReferenceEvaluator(model or chain()).run(None, {"x": X})[0])
    words = ["{model}", "{inputs}"] if feeds == GIVEN else ["{model}"]
    argv = f"checker.command={json.dumps([sys.executable, 'check.py', *words])}"
    given = saved(model or chain(), folder, x=recorded)
    return winnow(*given, "checker=command", argv, "checker.flaky=never", *more, folder=folder / "run", cwd=folder)


@pytest.mark.parametrize("feeds", [OWN, GIVEN])
def test_one_wrong_kernel_is_named_alone(tmp_path: Path, feeds: str) -> None:
    found = run(tmp_path, "{'HardSwish'}", feeds=feeds)
    assert (found.code, found.result["culprits"]) == (0, ["HardSwish"]), found.output
    assert found.result["cause"]["status"] == "proven"
    # the first control that knows the outputs passes: none is made beside it
    assert found.result["checks"]["control"] == (8 if feeds == OWN else 5)
    made, own = found.model(), chain()
    assert [*made.graph.input] == [*own.graph.input]
    assert [*made.graph.output] == [*own.graph.output]
    # of the user's nodes the fault is there, and what carries it to the output
    assert [one.op_type for one in made.graph.node if one.op_type in OPERATORS] == [*OPERATORS[2:]]
    report = (tmp_path / "run" / "REPORT.md").read_text().splitlines()
    assert report[0] == "# a check fails (exit 1): `HardSwish` (`HardSwish`)"
    assert report[2].startswith("`HardSwish` (`HardSwish`), in the whole model with good values in place of what comes")
    size = next(line for line in report if line.startswith("The answer is 1 of 10 nodes. "))
    assert size.endswith(
        "6 hold good values in place of what is left out, and 6 carry the answer's result to the outputs."
    )
    # that the check does not fit harmless models limits nothing
    assert not any(line.startswith("  unknown") for line in found.screen)
    argv = [sys.executable, "check.py", "run/reduced.onnx", "own.npz" if feeds == OWN else "inputs.npz"]
    np.savez(tmp_path / "inputs.npz", x=X)
    assert subprocess.run(argv, cwd=tmp_path, check=False).returncode == 1


def test_a_number_over_several_inputs_is_judged_with_the_good_values_of_each(tmp_path: Path) -> None:
    """Each file alone would pass: only the sum tells."""
    (tmp_path / "given").mkdir()
    files = [X, X[::-1] + 1, X * 2 - 1]
    for at, array in enumerate(files):
        np.savez(tmp_path / "given" / f"{at}.npz", x=array)
    good = [ReferenceEvaluator(chain()).run(None, {"x": one})[0] for one in files]
    np.savez(tmp_path / "good.npz", *good)
    judge = """
import glob
good, off = np.load('good.npz'), 0
for at, path in enumerate(sorted(glob.glob('given/*.npz'))):
    off += not np.allclose(ran.run(['y'], {'x': np.load(path)['x']})[0], good[f'arr_{at}'], rtol=1e-2, atol=1e-4)
sys.exit(int(off > 2))
"""
    found = run(tmp_path, "{'HardSwish'}", f"inputs.path={tmp_path / 'given'}", feeds="", judge=judge)
    assert (found.code, found.result["culprits"]) == (0, ["HardSwish"]), found.output
    assert found.result["cause"]["status"] == "proven"


def test_a_wrong_fusion_is_named_with_all_of_it(tmp_path: Path) -> None:
    """Good values for its first node heal the model, and with these for what that reads it fails: a fence tells."""
    found = run(tmp_path, "(), ('Exp', 'Sigmoid')")
    assert (found.code, found.result["culprits"]) == (0, ["Exp", "Sigmoid"]), found.output
    assert found.result["cause"]["status"] == "proven"


@pytest.mark.parametrize("measured", [True, False])
def test_a_fault_that_depends_on_a_part_is_none_of_its_own(tmp_path: Path, measured: bool) -> None:
    """The Softsign is wrong too, so that each part before it fails in its place."""
    judge = "print('error', np.abs(ran.run(['y'], fed)[0] - good['y']).max())\n" + COMPARE
    more = ("checker.measure='error ([0-9.e+-]+)'",) if measured else ("strategy.cause_checks=40",)
    found = run(tmp_path, "{'Softsign'}, ('Exp', 'Sigmoid')", *more, judge=judge, model=two_paths())
    causes = [one["culprits"] for one in found.result["cause"]["answers"] if one["is_cause"]]
    assert ["Exp", "Sigmoid"] in causes and ["Exp"] not in causes, found.output
    assert found.result["culprits"] == (causes[-1] if measured else causes[0]), found.output


def test_of_two_wrong_kernels_both_are_found(tmp_path: Path) -> None:
    found = run(tmp_path, "{'HardSwish', 'Cos'}", "strategy.cause_checks=40")
    assert found.code == 0, found.output
    named = {name for one in found.result["cause"]["answers"] if one["is_cause"] for name in one["culprits"]}
    assert named == {"HardSwish", "Cos"}, found.output
    assert found.result["cause"]["status"] == "joint"


def test_a_crash_is_named_too(tmp_path: Path) -> None:
    crash = "if b'HardSwish' in open(sys.argv[1], 'rb').read(): os.kill(os.getpid(), 6)\n"
    found = run(tmp_path, "()", judge=crash + COMPARE)
    assert (found.code, found.result["culprits"]) == (0, ["HardSwish"]), found.output


def test_another_sample_than_the_check_feeds_is_asked_for(tmp_path: Path) -> None:
    """With its own values nothing is known of the golden ones; without these the failure does not show."""
    found = run(tmp_path, "{'HardSwish'}", recorded=X / 2)
    assert found.code == 3, found.output
    assert found.result["message"].startswith(
        "your check also fails with the values that ONNX Runtime without optimizations computes"
    )
    assert "or your check feeds another input than the one that you gave" in found.result["message"]
    (tmp_path / "large").mkdir()
    too_low = "sys.exit(int((ran.run(['y'], fed)[0] < good['y'].min() - 0.01).any()))\n"
    found = run(tmp_path / "large", "{'HardSwish'}", recorded=X * 0, judge=too_low)
    assert found.code == 3, found.output
    assert "or your check feeds another input than the one that you gave" in found.result["message"]
    assert found.result["checks"]["search"] == 0


def test_what_cannot_be_put_into_the_model_is_said(tmp_path: Path) -> None:
    found = run(tmp_path, "{'HardSwish'}", "cut.policy=seeded")
    assert found.code == 3, found.output
    assert "the good values recorded for your input did not fit there (cut.policy=seeded" in found.result["message"]


def test_what_has_no_right_value_is_not_held_where_no_data_reaches_it(tmp_path: Path) -> None:
    """A Range in place of the positions: with its own values for its readers, each of them seemed wrong by itself."""
    table, p = np.linspace(-3, 3, 64, dtype=np.float32).reshape(16, 4), np.array([5, 6], np.int64)
    graph = "g (float[2,4] x, int64[2] p) => (float[2,4] y) {{ {} {} [mul] m = Mul(x, c) [add] y = Add(m, s) }}"
    reads = "[cos] c = Gather(T, {0}) [sin] s = Gather(U, {0})"
    made = "[shape] h = Shape <start = 0, end = 1> (x) [one] l = Squeeze(h) [range] r = Range(from, l, step)"
    weights = {"T": table, "U": table[::-1].copy()}
    steps = {"from": np.int64(0), "step": np.int64(1)}
    original = parsed(graph.format("", reads.format("p")), **weights)
    onnx.save(original, str(tmp_path / "original.onnx"))
    argument = f"reference.model={tmp_path / 'original.onnx'}"
    fed = {"x": table[:2] + 9, "p": p}
    np.savez(tmp_path / "fed.npz", **fed)
    feeds = "fed = dict(np.load('fed.npz'))\n"
    (tmp_path / "check.py").write_text(f"{RUNTIME}ran = session()\n{feeds}{COMPARE}")
    np.savez(tmp_path / "golden.npz", y=ReferenceEvaluator(original).run(None, fed)[0])
    given = saved(parsed(graph.format(made, reads.format("r")), **weights, **steps), tmp_path, **fed)
    check = "checker=command", f"checker.command={json.dumps([sys.executable, 'check.py', '{model}'])}"
    found = winnow(*given, argument, *check, "checker.flaky=never", folder=tmp_path / "run", cwd=tmp_path)
    assert {"range", "cos", "sin"} <= {*found.result["culprits"]}, found.output
    assert not {"mul", "add"} & {*found.result["culprits"]}
