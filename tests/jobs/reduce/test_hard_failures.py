"""What real failures are like: rare inputs, second bugs, messages that change, nested graphs, values at the cut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.candidate_audit import AUDITED, KEEP_ALL, audited
from tests.harness import by_command, check_script, winnow
from tests.model import nested
from tests.model.models import model_of, tensor

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


def chain(*ops: str, first: str = "x") -> list[onnx.NodeProto]:
    """Unary nodes in a row; each is called after its operator and its place."""
    nodes = []
    for place, op in enumerate(ops):
        nodes.append(helper.make_node(op, [first], [f"t{place}"], name=f"{op}_{place}"))
        first = f"t{place}"
    return nodes


OPS = ("Neg", "Abs", "Sigmoid", "Tanh", "Cos", "Sin", "Relu", "Exp", "Softplus", "Atan")
X = np.array([[0.5, 1, 2], [3, 4, 5]], np.float32)


def plain(tmp_path: Path) -> tuple[str, ...]:
    return saved(model_of(chain(*OPS), ["x"], ["t9"]), tmp_path, x=X)


def nested_check(tmp_path: Path, condition: str) -> tuple[str, ...]:
    path = tmp_path / "check.py"
    path.write_text(f"{NESTED_CHECK}\nsys.exit(1 if {condition} else 0)\n")
    return "checker=command", f"checker.command={json.dumps([sys.executable, str(path), '{model}', *AUDITED])}", QUICK


QUICK = "checker.flaky=never"
"""These checks are reliable; the repeats that find that out are tested elsewhere."""


def test_three_samples_of_which_only_the_third_fails(tmp_path: Path) -> None:
    nodes = [
        *chain("Neg", "Neg"),
        helper.make_node("Log", ["t1"], ["t2"], name="log"),
        helper.make_node("Abs", ["t2"], ["t3"], name="after"),
    ]
    model, *_ = saved(model_of(nodes, ["x"], ["t3"]), tmp_path)
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


def changing(tmp_path: Path) -> tuple[str, ...]:
    """A check that blames the last node, whichever that is."""
    body = (
        "last = names[-1]\n"
        "if 'Cos_4' in nodes: print(f'error: cannot build {last}')\n"
        "sys.exit(1 if 'Cos_4' in nodes else 0)"
    )
    return (
        *plain(tmp_path),
        *by_command(check_script(tmp_path, body)),
        "checker.fail_regex=['cannot build [A-Za-z]+']",
    )


@pytest.mark.slow
def test_a_message_that_changes_on_the_way(tmp_path: Path) -> None:
    run = winnow(*changing(tmp_path), folder=tmp_path / "run")
    assert run.result["culprits"] == ["Cos_4"], run.output
    said = "another message than the whole model: error: cannot build Atan_9, now error: cannot build Cos_4"
    assert any(said in warning for warning in run.result["warnings"])
    assert "the same way" not in " ".join(run.screen)
    assert any(
        line.startswith("  warning  ") and "another message than the whole model: " in line for line in run.screen
    ), run.output
    assert said.replace("_", "") in (run.folder / "REPORT.md").read_text().replace("_", "").replace("&#95;", "")


@pytest.mark.slow
def test_a_strict_signature_follows_the_message(tmp_path: Path) -> None:
    run = winnow(*changing(tmp_path), "checker.same_failure=strict", folder=tmp_path / "run")
    assert set(run.result["culprits"]) > {"Cos_4"}
    assert "Atan_9" in run.result["culprits"]


@pytest.mark.slow
def test_any_failure_counts_where_the_user_says_so(tmp_path: Path) -> None:
    body = "sys.exit(1 if 'Cos_4' in nodes else 3 if 'Exp_7' in nodes else 0)"
    given = (*plain(tmp_path), *by_command(check_script(tmp_path, body)))
    run = winnow(*given, "checker.same_failure=any", folder=tmp_path / "run")
    assert run.code in (0, 8), run.output
    assert run.result["nodes"]["after"] == 1


@pytest.mark.slow
def test_an_omitted_optional_input_stays_omitted(tmp_path: Path) -> None:
    nodes = [
        *chain("Neg", "Abs"),
        helper.make_node("Clip", ["t1", "", "most"], ["c"], name="clip"),
        helper.make_node("Sin", ["c"], ["y"], name="after"),
    ]
    model = model_of(nodes, ["x"], ["y"], [tensor("most", np.float32(2))])
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'clip' in nodes else 0)"), *AUDITED)
    run = winnow(*saved(model, tmp_path, x=X), *check, KEEP_ALL, folder=tmp_path / "run")
    assert run.result["culprits"] == ["clip"], run.output
    assert list(run.model().graph.node[0].input) == ["t1", "", "most"]
    audited(run)


@pytest.mark.slow
def test_an_if_within_an_if_within_an_if(tmp_path: Path) -> None:
    given = saved(nested.model_of(nested.DEEP), tmp_path, **nested.FEEDS)
    run = winnow(*given, *nested_check(tmp_path, "'Div' in ops"), KEEP_ALL, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["If_0"]
    inner = "If_0.then_branch/If_1.else_branch/If_2.then_branch/Div"
    assert run.result["nested"] == [inner]
    assert f"{run.result['culprits'][0]}, inside it {inner} (" in run.screen[0], run.screen[0]
    assert [node.op_type for node in run.model().graph.node] == ["Div"]
    audited(run)


@pytest.mark.slow
def test_a_loop_whose_body_holds_the_culprit(tmp_path: Path) -> None:
    given = saved(nested.model_of(nested.LOOP), tmp_path, **nested.LOOP_FEEDS)
    run = winnow(*given, *nested_check(tmp_path, "'Sqrt' in ops"), KEEP_ALL, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert (run.result["culprits"], run.result["nested"]) == (["loop"], ["loop.body/scanned"])
    assert [node.op_type for node in run.model().graph.node] == ["Sqrt"]
    audited(run)


@pytest.mark.slow
def test_a_failure_that_needs_its_loop(tmp_path: Path) -> None:
    given = saved(nested.model_of(nested.LOOP), tmp_path, **nested.LOOP_FEEDS)
    check = nested_check(tmp_path, "{('step', 'Cast'), ('step', 'Mul')} <= kinds")
    run = winnow(*given, *check, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert (run.result["culprits"], run.result["nested"]) == (["loop"], ["loop.body/f", "loop.body/grow"])
    assert [node.op_type for node in run.model().graph.node] == ["Loop"]


def test_a_recorded_nan_is_no_failure_of_what_reads_it(tmp_path: Path) -> None:
    """The square root of a negative number is replaced further on; the overflow comes after that."""
    nodes = [
        helper.make_node("Sqrt", ["x"], ["root"], name="root"),
        helper.make_node("IsNaN", ["root"], ["bad"], name="bad"),
        helper.make_node("Where", ["bad", "zero", "root"], ["clean"], name="clean"),
        *chain("Abs", "Exp", first="clean"),
        helper.make_node("Mul", ["t1", "huge"], ["grown"], name="grow"),
        helper.make_node("Mul", ["grown", "huge"], ["over"], name="overflow"),
        helper.make_node("Neg", ["over"], ["y"], name="after"),
    ]
    model = model_of(
        nodes, ["x"], ["y"], [tensor("zero", np.zeros((2, 3), np.float32)), tensor("huge", np.float32(1e25))]
    )
    run = winnow(*saved(model, tmp_path, x=X - 2), "checker=finite", QUICK, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["overflow"]


@pytest.mark.slow
def test_shapes_and_scales_at_a_cut_are_constants(tmp_path: Path) -> None:
    """What does not depend on the data, here computed by nodes, is what runtimes want constant."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="s"),
        helper.make_node("Gather", ["s", "two"], ["channels"], name="channels"),
        helper.make_node("Concat", ["channels", "rest"], ["shape"], name="shape", axis=0),
        helper.make_node("Abs", ["x"], ["a"], name="a"),
        helper.make_node("Reshape", ["a", "shape"], ["r"], name="reshape"),
        helper.make_node("Cast", ["factors"], ["scales"], name="scales", to=1),
        helper.make_node("Resize", ["r", "", "scales"], ["y"], name="resize", mode="nearest"),
        helper.make_node("Neg", ["y"], ["z"], name="after"),
    ]
    constants = [
        tensor("two", np.array([1])),
        tensor("rest", np.array([1, 2, 1])),
        tensor("factors", np.array([1, 1, 2, 3])),
    ]
    model = model_of(nodes, ["x"], [helper.make_tensor_value_info("z", 1, [3, 1, 4, 3])], constants)
    given = saved(model, tmp_path, x=X)
    for name, constant, value in (("reshape", "shape", [3, 1, 2, 1]), ("resize", "scales", [1, 1, 2, 3])):
        check = by_command(check_script(tmp_path, f"sys.exit(1 if {name!r} in nodes else 0)", f"{name}.py"), *AUDITED)
        run = winnow(*given, *check, KEEP_ALL, folder=tmp_path / name)
        assert run.result["culprits"] == [name], run.output
        held = {one.name: numpy_helper.to_array(one).tolist() for one in run.model().graph.initializer}
        assert held == {constant: value}
        audited(run)


@pytest.mark.slow
def test_outputs_that_the_failure_does_not_need_are_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="a"),
        helper.make_node("Split", ["a"], ["left", "right"], name="split", axis=0),
        helper.make_node("Add", ["left", "right"], ["b"], name="b"),
        helper.make_node("Mul", ["b", "left"], ["c"], name="c"),
        helper.make_node("Sub", ["c", "right"], ["y"], name="y"),
    ]
    model = model_of(nodes, ["x"], [helper.make_tensor_value_info("y", 1, [1, 3])])
    given = saved(model, tmp_path, x=X)
    check = by_command(check_script(tmp_path, "sys.exit(1 if {'split', 'b'} <= nodes else 0)"), *AUDITED)
    run = winnow(*given, *check, KEEP_ALL, folder=tmp_path / "run")
    assert run.result["culprits"] == ["split", "b"], run.output
    assert [output.name for output in run.model().graph.output] == ["b"]
    assert run.result["checks"]["refine"] > 0
    whole = winnow(*given, *check, "strategy.trim=false", folder=tmp_path / "whole")
    assert {output.name for output in whole.model().graph.output} == {"left", "right", "b"}
    audited(run)


def test_a_model_that_is_itself_random_is_recognized(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise"),
        helper.make_node("Add", ["x", "noise"], ["y"], name="sum"),
    ]
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'sum' in nodes else 0)"))
    run = winnow(*saved(model_of(nodes, ["x"], ["y"]), tmp_path, x=X), *check, folder=tmp_path / "run")
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
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="a"),
        helper.make_node("Split", ["a"], ["left", "right"], name="split", axis=0),
        helper.make_node("Sinh", ["left"], ["b"], name="b"),
        helper.make_node("Tanh", ["right"], ["c"], name="c"),
        helper.make_node("Mul", ["b", "c"], ["y"], name="y"),
    ]
    given = saved(model_of(nodes, ["x"], [helper.make_tensor_value_info("y", 1, [1, 3])]), tmp_path, x=X)
    check = by_command(check_script(tmp_path, "sys.exit(1 if 'b' in nodes else 0)"))
    run = winnow(*given, *check, "strategy.reduce_inputs=false", folder=tmp_path / "run")
    assert run.result["culprits"] == ["a", "split", "b"], run.output
    assert [output.name for output in run.model().graph.output] == ["b"]


@pytest.mark.slow
def test_a_draw_is_another_one_in_each_check(tmp_path: Path) -> None:
    """ONNX Runtime draws the same in every session of a process."""
    nodes = [
        helper.make_node("RandomNormal", [], ["drawn"], name="drawn", shape=[1]),
        helper.make_node("Log", ["drawn"], ["log"], name="log"),
        helper.make_node("Add", ["x", "log"], ["y"], name="sum"),
    ]
    given = saved(model_of(nodes, ["x"], ["y"]), tmp_path, x=X)
    run = winnow(*given, "checker=finite", "checker.flaky=always", "plan=true", folder=tmp_path / "run")
    assert 0 < run.result["reliability"]["whole_model"]["failed"] < 20, run.output


@pytest.mark.slow
def test_an_infinite_reference_fails_and_is_paid_for_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sub", ["x", "x"], ["zero"], name="zero"),
        helper.make_node("Div", ["x", "zero"], ["y"], name="y"),
    ]
    given = (*saved(model_of(nodes, ["x"], ["y"]), tmp_path, x=X), f"journal.reuse=[{tmp_path / 'one'}]")
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
