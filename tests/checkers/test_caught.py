"""Sound checks that look as if they were not: they show exceptions that they catch, and write files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.harness import by_command, check_script, winnow
from tests.jobs.reduce.test_hard_failures import X, plain, saved
from tests.model.models import model_of

CATCH = """
import traceback
try:
    if %s: raise RuntimeError('cannot simplify it')
except RuntimeError:
    traceback.print_exc()
"""
WHOLE, CUT = "len(nodes) == 10", "len(nodes) < 10"
TWO = "assert not ('Cos_4' in nodes and 'Sin_5' not in nodes)\nassert 'Cos_4' not in nodes\n"
JUDGE = "if 'Cos_4' in nodes: print('max diff 0.5'); sys.exit(1)\n"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(CATCH % WHOLE + JUDGE, id="caught on the whole model only"),
        pytest.param(CATCH % CUT + JUDGE, id="caught on cuts only", marks=pytest.mark.slow),
        pytest.param(CATCH % CUT + "assert 'Cos_4' not in nodes\n", id="caught on cuts, then asserted"),
        pytest.param(
            "print('WARNING: KeyError: no such key')\n" + JUDGE, id="a warning like an error", marks=pytest.mark.slow
        ),
    ],
)
def test_an_exception_that_the_check_catches_does_not_count(tmp_path: Path, body: str) -> None:
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_4"]), run.output
    assert not run.result["unresolved"]


def test_a_check_that_skips_what_it_cannot_feed_keeps_the_inputs_and_says_so(tmp_path: Path) -> None:
    body = "if 'x' not in inputs:\n    print(\"skip: Required inputs (['x']) are missing\"); sys.exit(0)\n" + JUDGE
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"][-1]) == (0, "Cos_4"), run.output
    assert any("goes on with strategy.reduce_inputs=false" in warning for warning in run.result["warnings"])


@pytest.mark.slow
def test_a_label_of_ones_own_is_judged_in_the_whole_model(tmp_path: Path) -> None:
    """The check is fed, and knows by itself which element of the model's output is the largest."""
    body = (
        "import numpy, onnxruntime\n"
        "session, given = onnxruntime.InferenceSession(sys.argv[1]), numpy.load(sys.argv[2])\n"
        "out = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})[0]\n"
        "sys.exit(int(out.ravel().argmax() != 0))\n"
    )
    nodes = [helper.make_node(op, [a], [b], name=op) for op, a, b in (("Tanh", "x", "a"), ("Neg", "a", "b"))]
    ends = [helper.make_node("Sin", ["b"], ["y"], name="Sin")]
    good = [nodes[0], helper.make_node("Identity", ["a"], ["b"], name="Neg"), *ends]
    given = saved(model_of([*nodes, *ends], ["x"], ["y"]), tmp_path, x=-X)
    onnx.save(model_of(good, ["x"], ["y"]), tmp_path / "good.onnx")
    check = by_command(check_script(tmp_path, body), "{inputs}")
    run = winnow(*given, *check, f"reference.model={tmp_path / 'good.onnx'}", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Neg"]), run.output
    assert any("good values in place of some nodes" in warning for warning in run.result["warnings"])


def test_a_log_of_what_passed_may_grow(tmp_path: Path) -> None:
    log = tmp_path / "passed.csv"
    log.write_text("model\n")
    body = JUDGE + "open(sys.argv[2], 'a').write(sys.argv[1] + '\\n')\n"
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, body), str(log)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_4"]), run.output
    assert "writes this file" in run.output


def test_two_assertions_of_one_bug(tmp_path: Path) -> None:
    """Cut off from the Sin behind it, Cos is caught by an earlier assertion: the experiments say that both are one."""
    run = winnow(*plain(tmp_path), *by_command(check_script(tmp_path, TWO)), folder=tmp_path / "run")
    assert (run.code, run.result["culprits"]) == (0, ["Cos_4"]), run.output
    assert run.result["cause"]["status"] == "proven"
