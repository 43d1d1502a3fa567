"""What is studied is the user's file: models whose failure changes once they are rewritten."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.chain_models import chain
from tests.harness import Run, by_command, check_script, winnow, written
from tests.jobs.models import parsed
from tests.matrix import sample

X = np.array([[0.5, 1, 2], [3, 4, 5]], np.float32)
RUN = """
import sys, numpy as np, onnxruntime
onnxruntime.set_default_logger_severity(4)
try:
    session = onnxruntime.InferenceSession(sys.argv[1])
except Exception as error:
    print(error)
    sys.exit(5)
fed = np.load(sys.argv[2])
outputs = session.run(None, {value.name: fed[value.name] for value in session.get_inputs()})
"""
NEGATIVE = RUN + (
    "was = any((fed[name] < 0).any() for name in fed.files)\n"
    "sys.exit(1 if not was and any((value < 0).any() for value in outputs if value.dtype.kind == 'f') else 0)\n"
)
"""Fails where a negative number comes out and none went in."""


def net(nodes: str, x: str = "float[N,3]", y: str = "float[N,3]", **weights: Any) -> onnx.ModelProto:
    return parsed(f"g ({x} x) => ({y} y) {{ {nodes} }}", **weights)


def reduced(folder: Path, model: onnx.ModelProto, check: Path, *more: str, external: bool = False) -> Run:
    path = folder / "model.onnx"
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location="weights", size_threshold=0)
    else:
        onnx.save(model, str(path))
    np.savez(folder / "inputs.npz", x=X)
    given = (f"model={path}", "inputs=files", f"inputs.path={folder / 'inputs.npz'}")
    return winnow(*given, *by_command(check, "{inputs}"), *more, folder=folder / "run")


def untaken(inner: str, *, before: bool) -> onnx.ModelProto:
    """The branch for tensors of rank 3 is not taken; ONNX Runtime refuses it where it knows that the rank is 2."""
    read, first = ("p", "[before] p = Abs(x)") if before else ("x", "")
    between, last = ("Abs", "Neg") if inner == "Exp" else ("Identity", "Identity")
    text = f"""{first} [shape] shape = Shape({read}) [rank] rank = Size(shape) [equal] is3d = Equal(rank, three)
        [choice] b = If(is3d) <
            then_branch = then () => (float[] t) {{
                [lstm] , state = LSTM<hidden_size = 2>({read}, w, r) [squeeze] t = Squeeze(state, zero) }},
            else_branch = other () => (float[] e) {{ [tanh] e0 = Tanh({read}) [inner] e = {inner}(e0) }}>
        [between] a = {between}(b) [last] y = {last}(a)"""
    held = {"w": np.zeros((1, 8, 3), np.float32), "r": np.zeros((1, 8, 2), np.float32)}
    return net(text, "float[]", "float[]", **held, zero=np.array([0]), three=np.array(3))


@pytest.mark.slow
@pytest.mark.parametrize(("inner", "before"), [("Exp", False), ("Neg", True)])
def test_recorded_shapes_lead_a_runtime_into_a_branch_that_is_not_taken(tmp_path: Path, inner: str, before: bool):
    run = reduced(tmp_path, untaken(inner, before=before), written(tmp_path, NEGATIVE))
    assert run.code == 0, run.output
    assert run.result["culprits"] == (["last"] if inner == "Exp" else ["choice"])
    assert run.result["nested"] == ([] if inner == "Exp" else ["choice.else_branch/inner"])
    (said,) = [warning for warning in run.result["warnings"] if warning.startswith("all candidates keep")]
    assert "all candidates keep the declared types of the inputs and outputs" in said
    assert "another failure" in said
    assert "all candidates keep the declared types of the inputs and outputs" in (run.folder / "REPORT.md").read_text()


CONSTANTS = "[two] two = Constant<value = float {2.0}>() [abs] a = Abs(x) [culprit] m = Mul(a, two) [tanh] y = Tanh(m)"


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_constants_that_a_tool_wants_as_nodes(tmp_path: Path, dynamic: bool):
    """A tool that looks for the value of a scale among the Constant nodes, and maybe for a dimension that is open."""
    body = (
        "constants = {name for node in model.graph.node if node.op_type == 'Constant' for name in node.output}\n"
        "found = any(node.op_type == 'Mul' and constants & set(node.input) for node in model.graph.node)\n"
    )
    if dynamic:
        body += "found &= any(d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim)\n"
    run = reduced(tmp_path, net(CONSTANTS), check_script(tmp_path, body + "sys.exit(1 if found else 0)"))
    assert run.code == 0, run.output
    assert run.result["culprits"] == (["abs", "culprit"] if dynamic else ["culprit"])
    assert run.result["cause"]["status"] == "proven"
    (said,) = [warning for warning in run.result["warnings"] if warning.startswith("all candidates keep")]
    assert "the Constant nodes" in said
    assert ("declared types" in said) == dynamic
    assert [one.op_type for one in run.model().graph.node][-2:] == (["Abs", "Mul"] if dynamic else ["Constant", "Mul"])


@pytest.mark.slow
def test_an_initializer_that_is_an_input_too(tmp_path: Path):
    """Nothing is folded of what can be overridden: a node that should be gone is still there."""
    nodes = "[abs] a = Abs(x) [root] root = Sqrt(w) [mul] y = Mul(a, root)"
    model = net(nodes, "float[3] w, float[N,3]", w=np.ones(3, np.float32))
    text = (
        "import sys, onnx, onnxruntime, os\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.optimized_model_filepath = os.path.dirname(sys.argv[2]) + '/optimized.onnx'\n"
        "onnxruntime.InferenceSession(sys.argv[1], options)\n"
        "left = onnx.load(options.optimized_model_filepath)\n"
        "sys.exit(1 if any(node.op_type == 'Sqrt' for node in left.graph.node) else 0)\n"
    )
    run = reduced(tmp_path, model, written(tmp_path, text))
    assert (run.code, run.result["culprits"]) == (0, ["root"]), run.output
    assert "w" in {one.name for one in run.model().graph.input} & {one.name for one in run.model().graph.initializer}


@pytest.mark.slow
def test_a_function_of_the_model(tmp_path: Path):
    body = "[exp] u = Exp(i) [neg] o = Neg(u)"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17, "mine": 1]>
        g (float[N,3] x) => (float[N,3] y) {{ [abs] a = Abs(x) [call] f = mine.F(a) [last] y = Exp(f) }}
        <opset_import: ["": 17], domain: "mine"> F (i) => (o) {{ {body} }}""")
    # only the last node's own output hides that the call gives negative numbers
    text = NEGATIVE.replace(
        "sys.exit(1 if not was and", "import onnx\nsys.exit(1 if onnx.load(sys.argv[1]).functions or"
    )
    run = reduced(tmp_path, model, written(tmp_path, text), "strategy.inside=false")
    assert (run.code, run.result["culprits"]) == (0, ["call"]), run.output


@pytest.mark.slow
def test_weights_beside_the_model(tmp_path: Path):
    """The check knows the model by its weights, which lie in another file."""
    nodes = "[abs] a = Abs(x) [culprit] m = Mul(a, w) [tanh] y = Tanh(m)"
    run = reduced(tmp_path, net(nodes, w=np.full(3, -2, np.float32)), written(tmp_path, NEGATIVE), external=True)
    assert (run.code, run.result["culprits"]) == (0, ["culprit"]), run.output


@pytest.mark.slow
def test_a_failure_that_only_the_file_has(tmp_path: Path):
    """Weights in a file of their own are what fails: candidates of this size carry theirs, so nothing smaller fails."""
    model = net("[abs] a = Abs(x) [mul] y = Mul(a, w)", w=np.full(3, -2, np.float32))
    check = check_script(tmp_path, "sys.exit(1 if any(t.external_data for t in model.graph.initializer) else 0)")
    run = reduced(tmp_path, model, check, external=True)
    assert run.code == 3, run.output
    assert "no part that is cut out of it does" in run.result["message"]
    assert any("the file itself is checked as the whole model" in warning for warning in run.result["warnings"])
    assert (tmp_path / "weights").stat().st_size


def test_a_failure_of_the_rewritten_model_is_not_the_users(tmp_path: Path):
    """The file passes: what fails for shapes that were written into it is nothing to study."""
    check = check_script(
        tmp_path,
        "sys.exit(1 if all(d.dim_value for i in model.graph.input for d in i.type.tensor_type.shape.dim) else 0)",
    )
    run = reduced(tmp_path, net(CONSTANTS), check)
    assert (run.code, run.result["checks"]["trust"]) == (4, 1), run.output


@pytest.mark.slow
def test_the_file_is_checked_once_and_its_verdict_is_its_own(tmp_path: Path):
    check = check_script(
        tmp_path,
        f"open({str(tmp_path / 'seen')!r}, 'a').write(sys.argv[1] + '\\n')\nsys.exit(1 if 'culprit' in nodes else 0)",
    )
    run = reduced(tmp_path, net(CONSTANTS), check)
    assert run.result["culprits"] == ["culprit"]
    seen = (tmp_path / "seen").read_text().split()
    assert Path(seen[0]) == run.folder / "checks" / "00001" / "model.onnx", "a copy of the user's own"
    assert seen.count(seen[0]) == 1
    again = reduced(tmp_path, net(CONSTANTS), check)
    handed_over = [str(again.folder / name) for name in ("reduced.onnx", "min_good.onnx")]
    assert again.result["checks"] == {**again.result["checks"], "search": 0, "trust": len(handed_over), "refine": 0}
    assert (tmp_path / "seen").read_text().split() == [*seen, *handed_over]


def test_a_strict_rule_does_not_keep_the_whole_file(tmp_path: Path):
    """The message names an initializer that nobody reads, which no candidate has."""
    body = "print('more' if 'unread' in weights else 'less')\n"
    check = check_script(tmp_path, f"{body}sys.exit(1 if 'culprit' in nodes else 0)")
    run = reduced(tmp_path, net(CONSTANTS, unread=X), check, "checker.same_failure=strict")
    assert run.code == 0, run.output
    assert any("is of the same kind" in warning for warning in run.result["warnings"])
    assert run.result["culprits"] == ["culprit"]


@pytest.mark.parametrize(("culprit", "code"), sample([("nowhere", 3), ("b", 0)], 2))
def test_a_file_that_a_strict_check_refuses(tmp_path: Path, culprit: str, code: int) -> None:
    """It has no shape for its output, which candidates have: they can be judged."""
    model = net("[a] t = Abs(x) [b] u = Neg(t) [c] y = Tanh(u)", "float[2,3]", "float[]")
    text = f"onnx.checker.check_model(model)\nsys.exit(7 if {culprit!r} in nodes else 0)"
    lists = ("checker.fail_codes=[7]", "checker.invalid_codes=[1]")
    run = reduced(tmp_path, model, check_script(tmp_path, text), *lists)
    assert run.code == code, run.output
    if code == 0:
        assert run.result["culprits"] == ["b"]
        assert any("the model file cannot be judged" in warning for warning in run.result["warnings"])
    else:
        assert "the check gave no answer about the model file: " in run.result["message"]
        assert not any("cannot be judged" in warning for warning in run.result["warnings"]), "the message says so"


FAILS = "import sys\nsys.exit(1)\n"


@pytest.mark.slow
def test_of_a_file_that_is_no_model_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_text("no model")
    check = check_script(tmp_path, f"open({str(tmp_path / 'asked')!r}, 'w')\n{FAILS}")
    run = winnow(f"model={tmp_path / 'broken.onnx'}", *by_command(check), folder=tmp_path / "run")
    assert run.code == 2 and not (tmp_path / "asked").exists()
    assert not (run.folder / "checks").exists() and not list(run.folder.glob("journal*"))


@pytest.mark.variants
@pytest.mark.parametrize("change", ["open(sys.argv[1], 'ab').write(b'x')", "os.remove(sys.argv[1])"])
def test_a_check_that_changes_its_model_is_found_out(tmp_path: Path, change: str) -> None:
    check = check_script(tmp_path, f"import os, sys\n{change}\nsys.exit(1)\n")
    run = tmp_path / "run"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", *by_command(check), folder=run)
    assert "the check changes the files that it is given" in answer.output
    assert not any('"verdict"' in path.read_text() for path in run.glob("journal*.jsonl"))


@pytest.mark.variants
@pytest.mark.parametrize("what", ["engine", "switches", "python"])
def test_what_a_reduction_does_not_make_is_refused_as_ever(tmp_path: Path, what: str) -> None:
    check, run = check_script(tmp_path, FAILS), tmp_path / "run"
    command = f"checker.command={json.dumps([sys.executable, str(check), '{model}', f'{{{what}}}'])}"
    answer = winnow(f"model={chain(tmp_path / 'model.onnx', 3)}", "checker=command", command, folder=run)
    assert answer.result["status"] == "could_not_judge"
    assert f"the command asks for {{{what}}}, which this strategy does not make" in answer.output
