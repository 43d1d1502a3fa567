"""What real failures are like: rare inputs, second bugs, messages that change, nested graphs, values at the cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.candidate_audit import AUDITED, KEEP_ALL, audited
from tests.harness import by_command, check_script, winnow
from tests.jobs.models import parsed
from tests.model import nested

NESTED_CHECK = """
import sys
import onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model)
def below(graph):
    for node in graph.node:
        yield graph, node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from below(attribute.g)
kinds = {(graph.name, node.op_type) for graph, node in below(model.graph)}
ops = {op for _, op in kinds}
"""


def saved(model: onnx.ModelProto, folder: Path, **inputs: np.ndarray) -> tuple[str, ...]:
    onnx.save(model, str(folder / "model.onnx"))
    np.savez(folder / "inputs.npz", **inputs)
    return f"model={folder / 'model.onnx'}", "inputs=files", f"inputs.path={folder / 'inputs.npz'}"


OPS = ("Neg", "Abs", "Sigmoid", "Tanh", "Cos", "Sin", "Relu", "Exp", "Softplus", "Atan")
X = np.array([[0.5, 1, 2], [3, 4, 5]], np.float32)


def plain(tmp_path: Path) -> tuple[str, ...]:
    """Unary nodes in a row; each is called after its operator and its place."""
    nodes = " ".join(f"[{op}_{at}] t{at} = {op}({f't{at - 1}' if at else 'x'})" for at, op in enumerate(OPS))
    return saved(parsed(f"g (float[2,3] x) => (float[2,3] t9) {{ {nodes} }}"), tmp_path, x=X)


def nested_check(tmp_path: Path, condition: str) -> tuple[str, ...]:
    path = tmp_path / "check.py"
    path.write_text(f"{NESTED_CHECK}\nsys.exit(1 if {condition} else 0)\n")
    return "checker=command", f"checker.command={json.dumps([sys.executable, str(path), '{model}', *AUDITED])}", QUICK


QUICK = "checker.flaky=never"
"""These checks are reliable; the repeats that find that out are tested elsewhere."""


def test_three_samples_of_which_only_the_third_fails(tmp_path: Path) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) {
        a = Neg(x) b = Neg(a) [log] c = Log(b) [after] y = Abs(c) }"""
    model, *_ = saved(parsed(text), tmp_path)
    paths = []
    for number, sample in enumerate((X, X + 1, X - 2)):
        paths.append(str(tmp_path / f"{number}.npz"))
        np.savez(paths[-1], x=sample)
    given = (model, "inputs=files", f"inputs.path={json.dumps(paths)}", "checker=finite", QUICK)
    run = winnow(*given, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["log"]
    assert run.result["signature"]["kind"] == "nan"
    assert sum(path.name.startswith("test_data_set_") for path in run.folder.iterdir()) == 3


@pytest.mark.variants
@pytest.mark.parametrize("other", ["Abs_1", "Exp_7"])
def test_a_second_bug_before_or_after_is_not_followed_but_kept(tmp_path: Path, other: str) -> None:
    body = f"sys.exit(1 if 'Cos_4' in nodes else 3 if {other!r} in nodes else 0)"
    check = by_command(check_script(tmp_path, body))
    run = winnow(*plain(tmp_path), *check, "strategy.find=one", folder=tmp_path / "run")
    assert run.result["culprits"] == ["Cos_4"], run.output
    said = [warning for warning in run.result["warnings"] if "another failure" in warning]
    # one that comes before is not even met: nothing before the latest failing start is looked at
    assert len(said) == (other == "Exp_7")
    for warning in said:
        assert "check: exit 3" in warning
        kept = run.folder / warning.rpartition("smallest model is ")[2]
        assert other in {node.name for node in onnx.load(str(kept)).graph.node}


@pytest.mark.slow
def test_an_omitted_optional_input_stays_omitted(tmp_path: Path) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) <float most = {2.0}> {
        t0 = Neg(x) t1 = Abs(t0) [clip] c = Clip(t1, , most) [after] y = Sin(c) }"""
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'clip' in nodes else 0)"), *AUDITED)
    run = winnow(*saved(parsed(text), tmp_path, x=X), *check, KEEP_ALL, folder=tmp_path / "run")
    assert run.result["culprits"] == ["clip"], run.output
    assert list(run.model().graph.node[0].input) == ["t1", "", "most"]
    audited(run)


BODIES = {
    "an If within an If within an If": (
        nested.DEEP, nested.FEEDS, "'Div' in ops", ["If_0.then_branch/If_1.else_branch/If_2.then_branch/Div"], "Div",
    ),
    "a node of a Loop": (nested.LOOP, nested.LOOP_FEEDS, "'Sqrt' in ops", ["loop.body/scanned"], "Sqrt"),
    "a failure that needs its Loop": (
        nested.LOOP, nested.LOOP_FEEDS, "{('step', 'Cast'), ('step', 'Mul')} <= kinds",
        ["loop.body/f", "loop.body/grow"], "Loop",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", BODIES)
def test_what_fails_inside_bodies_is_found_there(tmp_path: Path, case: str) -> None:
    text, feeds, condition, inside, kept = BODIES[case]
    given = saved(nested.model_of(text), tmp_path, **feeds)
    run = winnow(*given, *nested_check(tmp_path, condition), KEEP_ALL, folder=tmp_path / "run")
    assert (run.code, run.result["nested"]) == (0, inside), run.output
    owner = inside[0].partition(".")[0]
    assert run.result["culprits"] == [owner] and f"{', '.join(inside)}, inside {owner} (" in run.screen[0]
    assert [node.op_type for node in run.model().graph.node] == [kept]
    if kept != "Loop":  # of one without some of its nodes nobody has recorded what it gives
        audited(run)


def test_a_recorded_nan_is_no_failure_of_what_reads_it(tmp_path: Path) -> None:
    """The square root of a negative number is replaced further on; the overflow comes after that."""
    text = """g (float[2,3] x) => (float[2,3] y) <float zero = {0.0}, float huge = {1e25}> {
        [root] root = Sqrt(x) [bad] bad = IsNaN(root) [clean] clean = Where(bad, zero, root) a = Abs(clean) b = Exp(a)
        [grow] grown = Mul(b, huge) [overflow] over = Mul(grown, huge) [after] y = Neg(over) }"""
    model = parsed(text)
    run = winnow(*saved(model, tmp_path, x=X - 2), "checker=finite", QUICK, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["overflow"]


@pytest.mark.slow
def test_shapes_and_scales_at_a_cut_are_constants(tmp_path: Path) -> None:
    """What does not depend on the data, here computed by nodes, is what runtimes want constant."""
    text = """g (float[2,3] x) => (float[3,1,4,3] z)
        <int64[1] two = {1}, int64[3] rest = {1, 2, 1}, int64[4] factors = {1, 1, 2, 3}> {
        [s] s = Shape(x) [channels] channels = Gather(s, two) [shape] shape = Concat<axis = 0>(channels, rest)
        [a] a = Abs(x) [reshape] r = Reshape(a, shape) [scales] scales = Cast<to = 1>(factors)
        [resize] y = Resize<mode = "nearest">(r, , scales) [after] z = Neg(y) }"""
    given = saved(parsed(text), tmp_path, x=X)
    for name, constant, value in (("reshape", "shape", [3, 1, 2, 1]), ("resize", "scales", [1, 1, 2, 3])):
        check = by_command(check_script(tmp_path, f"sys.exit(1 if {name!r} in nodes else 0)", f"{name}.py"), *AUDITED)
        run = winnow(*given, *check, KEEP_ALL, folder=tmp_path / name)
        assert run.result["culprits"] == [name], run.output
        held = {one.name: numpy_helper.to_array(one).tolist() for one in run.model().graph.initializer}
        assert held == {constant: value}
        audited(run)


@pytest.mark.slow
def test_outputs_that_the_failure_does_not_need_are_left_out(tmp_path: Path) -> None:
    text = """g (float[2,3] x) => (float[1,3] y) {
        [a] a = Neg(x) [split] left, right = Split<axis = 0>(a) [b] b = Add(left, right) [c] c = Mul(b, left)
        [y] y = Sub(c, right) }"""
    given = saved(parsed(text), tmp_path, x=X)
    check = by_command(check_script(tmp_path, "sys.exit(1 if {'split', 'b'} <= nodes else 0)"), *AUDITED)
    run = winnow(*given, *check, KEEP_ALL, folder=tmp_path / "run")
    assert run.result["culprits"] == ["split", "b"], run.output
    assert [output.name for output in run.model().graph.output] == ["b"]
    assert run.result["checks"]["refine"] > 0
    whole = winnow(*given, *check, "strategy.trim=false", folder=tmp_path / "whole")
    assert {output.name for output in whole.model().graph.output} == {"left", "right", "b"}
    audited(run)


def test_a_model_that_is_itself_random_is_recognized(tmp_path: Path) -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { [noise] noise = RandomNormalLike(x) [sum] y = Add(x, noise) }"
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'sum' in nodes else 0)"))
    run = winnow(*saved(parsed(text), tmp_path, x=X), *check, folder=tmp_path / "run")
    assert run.result["culprits"] == ["sum"]
    assert any("draws random numbers (noise)" in warning for warning in run.result["warnings"])


def test_all_culprits_and_kept_outputs_exclude_each_other(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'Cos_4' in nodes else 0)"))
    given = (*plain(tmp_path), *check, "strategy.find=all", "strategy.reduce_outputs=false")
    run = winnow(*given, folder=tmp_path / "run")
    assert run.code == 2
    assert "strategy.find=all" in run.output


@pytest.mark.slow
def test_an_output_that_a_kept_node_shares_its_producer_with_is_left_out(tmp_path: Path) -> None:
    """Nobody kept reads the second part of what is split; the first keeps the node alive."""
    text = """g (float[2,3] x) => (float[1,3] y) {
        [a] a = Neg(x) [split] left, right = Split<axis = 0>(a) [b] b = Sinh(left) [c] c = Tanh(right)
        [y] y = Mul(b, c) }"""
    given = saved(parsed(text), tmp_path, x=X)
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'b' in nodes else 0)"))
    run = winnow(*given, *check, "strategy.reduce_inputs=false", folder=tmp_path / "run")
    assert run.result["culprits"] == ["a", "split", "b"], run.output
    assert [output.name for output in run.model().graph.output] == ["b"]


@pytest.mark.slow
def test_a_draw_is_another_one_in_each_check(tmp_path: Path) -> None:
    """ONNX Runtime draws the same in every session of a process."""
    text = """g (float[2,3] x) => (float[2,3] y) {
        [drawn] drawn = RandomNormal<shape = [1]>() [log] log = Log(drawn) [sum] y = Add(x, log) }"""
    given = saved(parsed(text), tmp_path, x=X)
    run = winnow(*given, "checker=finite", "checker.flaky=always", "plan=true", folder=tmp_path / "run")
    assert 0 < run.result["reliability"]["whole_model"]["failed"] < 20, run.output


@pytest.mark.slow
def test_an_infinite_reference_fails_and_is_paid_for_once(tmp_path: Path) -> None:
    made = parsed("g (float[2,3] x) => (float[2,3] y) { [zero] zero = Sub(x, x) [y] y = Div(x, zero) }")
    given = (*saved(made, tmp_path, x=X), f"journal.reuse=[{tmp_path / 'one'}]")
    run = winnow(*given[:-1], folder=tmp_path / "one")
    assert (run.code, run.result["culprits"], run.result["whose"]) == (0, ["y"], "model"), run.output
    again = winnow(*given, folder=tmp_path / "two")
    # the file as it is was checked as well: that is not paid for twice
    assert again.result["culprits"] == ["y"]
    made = again.result["checks"]
    assert not (made["search"] or made["preflight"] or made["control"]) and made["reused"] == 7


def test_a_map_to_a_parent_that_is_not_there(tmp_path: Path) -> None:
    run = winnow(*plain(tmp_path), "reference.map={t1: other}", folder=tmp_path / "run")
    assert run.code == 2
    assert "reference.model=PATH" in run.output
