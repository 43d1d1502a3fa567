"""Checks as people write them: those that cannot judge cuts are found out before anything is searched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.harness import Run, by_command, winnow, written
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import X, saved

START = """
import sys, numpy as np, onnxruntime
onnxruntime.set_default_logger_severity(4)
session = onnxruntime.InferenceSession(sys.argv[1])
"""
OWN = "fed = {'x': np.full(%s, 0.5, np.float32), 'ids': np.zeros((2, 3), np.int64)}\n"
OWN_FEED = START + OWN % "(2, 3)"
GIVEN = START + "data = np.load(sys.argv[2])\nfed = {one.name: data[one.name] for one in session.get_inputs()}\n"
VALUES = "out = session.run(None, fed)[0]\n"
NEGATIVE = (
    "there = b'Neg' in open(sys.argv[1], 'rb').read()\n"
    "sys.exit(1 if there and out.dtype.kind == 'f' and (out < 0).any() else 0)\n"
)
"""Fails where a Neg gives negative numbers."""


def model(rows: str = "N"):
    """Two inputs, the second of which is read late; Neg is the culprit."""
    return parsed(f"""g (float[{rows},3] x, int64[{rows},3] ids) => (float[{rows},3] y) {{ [Abs] a = Abs(x)
        [Exp] e = Exp(a) [Neg] n = Neg(e) [Cast] c = Cast<to = 1>(ids) [Add] s = Add(n, c) [Tanh] y = Tanh(s) }}""")


def run(folder: Path, text: str, *more: str, words: tuple[str, ...] = ("{inputs}",), rows: str = "N") -> Run:
    given = saved(model(rows), folder, x=X, ids=np.zeros((2, 3), np.int64))
    return winnow(*given, *by_command(written(folder, text), *words), *more, folder=folder / "run")


def warned(found: Run) -> str:
    return " ".join(warning for warning in found.result["warnings"] if "cannot judge every part" in warning)


@pytest.mark.slow
def test_a_tool_that_takes_out_identities_can_judge_cuts(tmp_path: Path) -> None:
    """It leaves a lone Identity without the node that gives its output, as some simplifiers do."""
    tool = (
        "import sys, onnx\n"
        "model = onnx.load(sys.argv[1])\n"
        "kept = [node for node in model.graph.node if node.op_type != 'Identity']\n"
        "made = {name for node in kept for name in node.output}\n"
        "if {one.name for one in model.graph.output} - made: sys.exit('the tool broke the model')\n"
        "sys.exit(1 if any(node.op_type == 'Neg' for node in kept) else 0)\n"
    )
    found = run(tmp_path, tool)
    assert (found.code, found.result["culprits"]) == (0, ["Neg"]), found.output
    assert not warned(found)


@pytest.mark.slow
def test_a_check_with_a_feed_of_its_own_keeps_the_inputs(tmp_path: Path) -> None:
    """Here it is of another size than what is recorded, which the file leaves open."""
    text = START + OWN.replace("(2, 3), np.int64", "(4, 3), np.int64") % "(4, 3)" + VALUES + NEGATIVE
    found = run(tmp_path, text, words=())
    assert (found.code, found.result["culprits"]) == (0, ["Abs", "Exp", "Neg"]), found.output
    assert "strategy.reduce_inputs=false" in warned(found)
    assert [one.name for one in found.model().graph.input] == ["x", "ids"]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["strategy.reduce_inputs=true", "strategy.find=all"])
def test_what_the_user_rules_out_is_advised(tmp_path: Path, option: str) -> None:
    found = run(tmp_path, OWN_FEED + VALUES + NEGATIVE, option, words=())
    assert found.code == 3, found.output
    for word in ("{inputs}", "{references}", "strategy.reduce_inputs=false", "Required inputs"):
        assert word in found.result["message"]
    assert found.result["checks"]["search"] == 0


EXPECTED = "assert out.shape == (2, 3) and np.abs(out - np.load(sys.argv[3])).max() < 0.5\n"


@pytest.mark.slow
def test_a_check_with_expected_values_of_its_own_is_asked_about_the_whole_model(tmp_path: Path) -> None:
    """The operator that is wrong is a Neg in the place of an Abs; the reference of the check knows better."""
    np.save(tmp_path / "expected.npy", np.tanh(np.exp(X)))
    words = ("{inputs}", str(tmp_path / "expected.npy"))
    # the reference of the run is as wrong as the model, so it passes neither with its values nor as an Identity
    found = run(tmp_path, GIVEN + VALUES + EXPECTED, words=words)
    assert found.code == 3, found.output
    np.save(tmp_path / "expected.npy", np.tanh(-np.exp(X)))
    bad = "out = out + 9 * (b'Neg' in open(sys.argv[1], 'rb').read())\n"
    (tmp_path / "more").mkdir()
    found = run(tmp_path / "more", GIVEN + VALUES + bad + EXPECTED, words=words)
    assert (found.code, found.result["culprits"]) == (0, ["Neg"]), found.output
    assert "good values in place of some nodes" in found.output
    # as the user says, all that follows is kept
    (tmp_path / "kept").mkdir()
    found = run(tmp_path / "kept", GIVEN + VALUES + bad + EXPECTED, "strategy.reduce_outputs=false", words=words)
    assert (found.code, found.result["culprits"]) == (0, ["Neg", "Add", "Tanh"]), found.output


@pytest.mark.slow
def test_a_check_that_asks_for_an_output_by_name_finds_a_nan_that_the_reference_has_too(tmp_path: Path) -> None:
    """No control holds that NaN: a model with it is not harmless."""
    one = parsed("""g (float[2,3] x) => (float[2,3] y) <float two = {2.0}> {
        [Sub] s = Sub(x, two) [Sqrt] r = Sqrt(s) [Neg] y = Neg(r) }""")
    text = START + "y = session.run(['y'], dict(np.load(sys.argv[2])))[0]\nsys.exit(int(np.isnan(y).any()))\n"
    check = by_command(written(tmp_path, text), "{inputs}")
    found = winnow(*saved(one, tmp_path, x=X), *check, folder=tmp_path / "run")
    assert (found.code, found.result["status"]) == (0, "found"), found.output
    assert found.result["culprits"][0] == "Sqrt" and "strategy.reduce_outputs=false" in warned(found), found.output


@pytest.mark.slow
@pytest.mark.parametrize(("near", "code"), [(0.5, 0), (0.001, 3)])
def test_a_check_that_needs_both_is_answered_where_the_recorded_values_pass_it(
    tmp_path: Path, near: float, code: int
) -> None:
    """What is recorded is for another input than the check feeds, and differs from what that expects by 0.4."""
    np.save(tmp_path / "expected.npy", np.tanh(-np.exp(np.full((2, 3), 0.5))))
    bad = "out = out + 9 * (b'Neg' in open(sys.argv[1], 'rb').read())\n"
    text = OWN_FEED + VALUES + bad + EXPECTED.replace("argv[3]", "argv[2]").replace("0.5", str(near))
    words = (str(tmp_path / "expected.npy"),)
    found = run(tmp_path, text, words=words, rows="2")
    assert found.code == code, found.output
    if code == 0:
        assert (found.result["culprits"], found.result["cause"]["status"]) == (["Neg"], "proven"), found.output
    else:
        assert (
            "your check also fails with the values that ONNX Runtime without optimizations computes"
            in found.result["message"]
        )
        assert found.result["lacks"] == ["--original good.onnx"]
        assert found.result["checks"]["search"] == 0


@pytest.mark.variants
@pytest.mark.parametrize(
    ("command", "advice"), [("false", "does not name {model}"), ("test ! -s {model} && true", "No shell is started")]
)
def test_an_obvious_mistake_costs_two_checks(tmp_path: Path, command: str, advice: str) -> None:
    given = saved(model(), tmp_path, x=X, ids=np.zeros((2, 3), np.int64))
    found = winnow(*given, "checker=command", f"checker.command={json.dumps(command)}", folder=tmp_path / "run")
    assert found.code == 3, found.output
    assert advice in found.result["message"]
    assert found.result["checks"] == {**found.result["checks"], "search": 0, "trust": 2}


def test_a_function_with_a_feed_of_its_own(tmp_path: Path) -> None:
    body = (OWN_FEED + VALUES).replace("sys.argv[1]", "model").strip().splitlines()
    body += ["return not (out.dtype.kind == 'f' and (out < 0).any())"]
    (tmp_path / "mine.py").write_text("def check(model, inputs, expected):\n" + "\n".join(f"    {one}" for one in body))
    given = saved(model(), tmp_path, x=X, ids=np.zeros((2, 3), np.int64))
    options = ("checker=python", f"checker.file={tmp_path / 'mine.py'}", "checker.flaky=never")
    found = winnow(*given, *options, folder=tmp_path / "run")
    assert (found.code, found.result["culprits"]) == (0, ["Abs", "Exp", "Neg"]), found.output
    assert "strategy.reduce_inputs=false" in warned(found)


def test_a_value_that_is_none(tmp_path: Path) -> None:
    given = saved(model(), tmp_path, x=X, ids=np.zeros((2, 3), np.int64))
    found = winnow(*given, "strategy.reduce_inputs=maybe", folder=tmp_path / "run")
    assert found.code == 2
    assert "strategy.reduce_inputs=maybe: choose one of true, false, auto" in found.output


@pytest.mark.slow
def test_a_check_that_has_no_answer_on_a_harmless_model_is_asked_all_the_same(tmp_path: Path) -> None:
    """It looks the model's own operators up; what it says of others is no failure, so that no answer is a wrong one."""
    text = (
        "import sys, onnx\n"
        "known = {'Abs': 0, 'Exp': 0, 'Neg': 1, 'Cast': 0, 'Add': 0, 'Tanh': 0}\n"
        "found = [node.op_type for node in onnx.load(sys.argv[1]).graph.node]\n"
        "sys.exit(9 if set(found) - set(known) or found == ['Abs'] else max(known[one] for one in found))\n"
    )
    found = run(tmp_path, text)
    assert (found.code, found.result["culprits"]) == (0, ["Neg"]), found.output
    assert any("gives no answer on a lone Identity" in warning for warning in found.result["warnings"])
    assert not any("another failure was seen" in warning for warning in found.result["warnings"])
