"""Which optimizations a failure needs, and which heal it: run as a user does."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.optimizer_defect import defective, loads

SWITCHES = "strategy.switches=[--a,--b,--c,--d,--e,--f,--g]"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A division and a multiplication behind a cast, of which ONNX Runtime's optimizers make an invalid graph."""
    return defective(tmp_path / "net.onnx")


def switched(tmp_path: Path, model: Path, fails: str, *more: str) -> Run:
    """Search the switches of a command that fails where the expression over the set ``on`` holds."""
    check = check_script(tmp_path, f"import sys\non = set(sys.argv[2:])\nsys.exit(1 if {fails} else 0)\n")
    words = ("strategy=passes", f"model={model}", SWITCHES, *by_command(check, "{switches}"), *more)
    return winnow(*words, folder=tmp_path / "run")


@pytest.mark.slow
def test_two_optimizers_that_are_needed_together(tmp_path: Path, model: Path) -> None:
    if loads(model):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} no longer has this defect")
    run = winnow("strategy=passes", f"model={model}", "checker=runs", folder=tmp_path / "run")
    passes = run.result["passes"]
    assert run.code == 0 and passes["needed"] == ["CastElimination", "DivMulFusion"], run.output
    assert passes["heals"] == [["CastElimination"], ["DivMulFusion"]]
    assert passes["overrides"] == ["target.disabled_optimizers=[CastElimination]"]
    report = (run.folder / "REPORT.md").read_text()
    assert "InferenceSession(path, options, disabled_optimizers=['CastElimination'])" in report
    healed = winnow(f"model={model}", "checker=runs", *passes["overrides"], folder=tmp_path / "healed")
    assert healed.code == 4, healed.output  # it passes


@pytest.mark.slow
def test_where_several_fail_independently_of_each_other_the_smallest_set_to_turn_off(
    tmp_path: Path, model: Path
) -> None:
    run = switched(tmp_path, model, "{'--b', '--d'} <= on or {'--a', '--f'} <= on")
    (off,) = run.result["passes"]["heals"]
    assert run.code == 0 and len(off) == 2 and {"--b", "--d"} & {*off} and {"--a", "--f"} & {*off}, run.output


def test_what_is_needed_with_all_others_off_need_not_be_with_them_on(tmp_path: Path, model: Path) -> None:
    """``--d`` and ``--e`` do the same: one is needed where the other is off, and neither where both are on."""
    run = switched(tmp_path, model, "{'--b', '--d'} <= on or {'--b', '--e'} <= on")
    passes, (_, other) = run.result["passes"], run.result["culprits"]
    assert run.code == 0 and other in {"--d", "--e"} and passes["heals"] == [["--b"]], run.output
    assert passes["alone_off"] == {"--b": "pass", other: "fail"}
    said = f"the failure needs --b, {other}; all others of 7 switches may be off; net.onnx passes without"
    assert f"{said} --b; without {other} alone it still fails: another one does its part" in run.result["message"]
    assert f"With only `{other}` off: the model still fails" in (run.folder / "REPORT.md").read_text()


def test_under_a_budget_nothing_is_claimed_that_was_not_shown(tmp_path: Path, model: Path) -> None:
    """Nor is anything checked beyond it: what heals the failure is not asked."""
    run = switched(tmp_path, model, "{'--b', '--d'} <= on", "budget.checks=3")
    message = run.result["message"]
    assert run.code == 0 and {"--b", "--d"} < {*run.result["culprits"]}, run.output
    assert "that each is needed was not shown" in message and "it is not known what to turn off" in message
    assert "the budget was reached before the search ended" in message and " and 1 more on, of 7 switches" in message
    assert run.result["checks"]["search"] == 3 and run.result["passes"]["heals"] == []
    assert "not all may be needed" in (run.folder / "REPORT.md").read_text()
    assert "the answer again" in run.log and "handed over" not in run.log


@pytest.mark.slow
def test_that_a_check_is_flaky_is_told_with_the_answer(tmp_path: Path, model: Path) -> None:
    run = switched(tmp_path, model, "{'--b'} <= on", "checker.flaky=always", "strategy.switches=[--a,--b]")
    assert run.code == 0 and run.result["culprits"] == ["--b"], run.output
    assert "net.onnx passes without --b; the check is flaky: " in run.result["message"]


def test_what_fails_with_everything_off_needs_none_of_them(tmp_path: Path, model: Path) -> None:
    run = switched(tmp_path, model, "True")
    assert (
        run.code == 4 and "with 7 switches off the model still fails, so the failure needs none of them" in run.output
    )


@pytest.mark.slow
def test_where_no_optimization_with_a_name_is_needed_all_of_them_are_asked_about(tmp_path: Path) -> None:
    """The transposes are looked at a second time, under no name."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 3, 1, 2]),
        helper.make_node("Resize", ["turned", "", "twice"], ["large"], axes=[2, 3]),
        helper.make_node("Transpose", ["large"], ["y"], perm=[0, 2, 3, 1]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [1, 4, 6, 2]), ("y", [1, 8, 12, 2]))
    ]
    twice = [helper.make_tensor("twice", TensorProto.FLOAT, [2], [2.0, 2.0])]
    made = helper.make_model(helper.make_graph(nodes, "g", *ends, twice), ir_version=8)
    made.opset_import[0].version = 18
    onnx.save(made, tmp_path / "net.onnx")
    run = winnow("strategy=passes", f"model={tmp_path / 'net.onnx'}", folder=tmp_path / "run")
    if "passes the check" in run.output:
        pytest.skip("this ONNX Runtime has no such defect")
    assert (run.code, run.result["passes"]["heals"]) == (0, [["graph optimizations"]]), run.output
    assert run.result["passes"]["overrides"] == ["target.optimization=none"]
    assert "switches off the model still fails; the failure needs graph optimizations" in run.output
    assert "ORT_DISABLE_ALL" in (run.folder / "REPORT.md").read_text()


@pytest.mark.slow
def test_what_fails_otherwise_with_everything_off_says_what_is_known(tmp_path: Path, model: Path) -> None:
    body = "import sys\non = set(sys.argv[2:])\nsys.exit(1 if '--b' in on else 0 if on else 5)\n"
    check = check_script(tmp_path, body)
    given = ("strategy=passes", f"model={model}")
    run = winnow(*given, SWITCHES, *by_command(check, "{switches}"), folder=tmp_path / "run")
    assert run.code == 3 and "Put those that the model cannot do without into checker.command" in run.output
    said = "with all of 7 switches off the model fails in another way (check: exit 5) than with them on (check: exi"
    assert said in run.result["message"] and "it is not known whether any of them is needed" in run.result["message"]
    assert "once the check is mended" not in run.output  # it judges well
    # what it says is so
    kept = by_command(check, "--a", "{switches}")
    again = winnow(*given, "strategy.switches=[--b,--c]", *kept, folder=tmp_path / "again")
    assert again.code == 0 and again.result["culprits"] == ["--b"], again.output


@pytest.mark.variants
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("checker=command", "checker.command=true {model}"), "nothing is turned off from here"),
        (("checker=command", "checker.command=true {model}", SWITCHES), "does not name {switches}"),
        (("target=onnx_reference",), "nothing can be switched off there"),
        ((SWITCHES,), "starts no command"),
        (("sanitize.fold=true",), "sanitize: strategy=passes checks your own file"),
    ],
)
def test_refusals(tmp_path: Path, model: Path, given: tuple[str, ...], said: str) -> None:
    run = winnow("strategy=passes", f"model={model}", *given, folder=tmp_path / "run")
    assert run.code == 2 and said in run.output


@pytest.mark.slow
def test_an_optimizer_that_is_none_is_refused(tmp_path: Path, model: Path) -> None:
    run = winnow(
        f"model={model}", "checker=runs", "target.disabled_optimizers=[CastEliminaton]", folder=tmp_path / "run"
    )
    assert run.code == 2 and "disabled_optimizers=CastEliminaton is not known here; valid: " in run.output
    assert "CastElimination" in run.output
