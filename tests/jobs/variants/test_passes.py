"""Which optimizations a failure needs, and which heal it: run as a user does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.jobs.variants.passes import builder_switches, changes, overrides, session_switches
from runner.report.diagnosis_sections import session_code
from runner.schema.backend import OnnxRuntimeBackend, TensorRtBackend
from tests.harness import Run, by_command, check_script, winnow
from tests.jobs.models import saved
from tests.jobs.optimizer_defect import defective

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
    said = f"the failure needs --b, {other}; net.onnx passes without --b; the other 5 switches may be off"
    assert f"{said}; without {other} alone it still fails: another one does its part" in run.result["message"]
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
    assert "net.onnx passes without --b; the other switch may be off; the check is flaky: " in run.result["message"]


def test_what_fails_with_everything_off_needs_none_of_them(tmp_path: Path, model: Path) -> None:
    run = switched(tmp_path, model, "True")
    assert (
        run.code == 4 and "with 7 switches off the model still fails, so the failure needs none of them" in run.output
    )


@pytest.mark.slow
def test_where_no_optimization_with_a_name_is_needed_all_of_them_are_asked_about(tmp_path: Path) -> None:
    """The transposes are looked at a second time, under no name."""
    text = """g (float[1,4,6,2] x) => (float[1,8,12,2] y) <float[2] twice = {2.0, 2.0}> {
        turned = Transpose<perm = [0, 3, 1, 2]>(x) large = Resize<axes = [2, 3]>(turned, , twice)
        y = Transpose<perm = [0, 2, 3, 1]>(large) }"""
    saved(tmp_path / "net.onnx", text, opset=18)
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


def test_switches_that_are_off_add_to_what_is_set() -> None:
    given = OnnxRuntimeBackend(disabled_optimizers=["A"], session_options={"enable_mem_pattern": "False"})
    names = [{one.name for one in session_switches(one, ["A", "B"])} for one in (OnnxRuntimeBackend(), given)]
    assert names[0] - names[1] == {"A", "memory pattern"}, "what the user has set is no switch"
    target = OnnxRuntimeBackend(disabled_optimizers=["A"], config_entries={"x": "1"})
    off = [
        one for one in session_switches(target, ["B", "C"]) if one.name in ("C", "memory reuse", "prepacked weights")
    ]
    changed = changes(target, off)
    assert changed == {
        "disabled_optimizers": ["A", "C"],
        "session_options": {"enable_mem_reuse": "False"},
        "config_entries": {"x": "1", "session.disable_prepacking": "1"},
    }
    assert replace(target, **changed).to_json()["disabled_optimizers"] == ["A", "C"]
    assert "target.disabled_optimizers=[A, C]" in overrides(changed)
    assert session_code(changed).splitlines() == [
        "options = onnxruntime.SessionOptions()",
        "options.enable_mem_reuse = False",
        "options.add_session_config_entry('x', '1')",
        "options.add_session_config_entry('session.disable_prepacking', '1')",
        "session = onnxruntime.InferenceSession(path, options, disabled_optimizers=['A', 'C'])",
    ]


def test_builder_options() -> None:
    target = TensorRtBackend(
        flags=["FP16", "TF32"], tactic_sources=["CUBLAS"], preview_features={"P": True, "Q": False}
    )
    switches = {one.name: one for one in builder_switches(target)}
    assert [*switches] == ["flag FP16", "flag TF32", "source CUBLAS", "preview feature P", "builder_optimization_level"]
    assert changes(target, switches.values()) == {
        "flags": [],
        "tactic_sources": [],
        "preview_features": {"P": False, "Q": False},
        "config": {"builder_optimization_level": 0},
    }
    assert session_code(changes(target, switches.values())) == ""
