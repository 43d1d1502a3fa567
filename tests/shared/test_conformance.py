"""The peer's own test models: what its tests expect of `debug reduce` and `repeat`, and where we do better.

The models do not come with this project; the tests skip where they are absent.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.harness import SHARED, by_command, check_script, command, winnow
from tests.matrix import sample

MODELS = SHARED / "conformance"
pytestmark = [pytest.mark.shared, pytest.mark.skipif(not MODELS.is_dir(), reason="the conformance models are not here")]

REDUCABLE = f"model={MODELS / 'reducable.onnx'}"
TENSOR = {
    1: "identity_out_0",
    3: "identity_out_2",
    5: "add_out_4",
    7: "identity_out_6",
    9: "identity_out_8",
}


def needs(folder: Path, *numbers: int) -> tuple[str, ...]:
    """Fails iff the nodes of these numbers are there."""
    tensors = [TENSOR[number] for number in numbers]
    check = check_script(folder, "sys.exit(1 if made.issuperset(sys.argv[2:]) else 0)")
    return by_command(check, *tensors)


def made(model: onnx.ModelProto) -> list[str]:
    return [name for node in model.graph.node for name in node.output]


@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_bisect", "reduce_linear", "reduce_minimal"], 2))
@pytest.mark.parametrize("number", sample([1, 3, 5, 7, 9], 2))
def test_isolates_one_node(tmp_path: Path, strategy: str, number: int) -> None:
    run = winnow(f"strategy={strategy}", REDUCABLE, *needs(tmp_path, number), folder=tmp_path / "run")
    assert run.code in (0, 8), run.output
    assert made(run.model()) == [TENSOR[number]]


def test_keeps_the_inputs(tmp_path: Path) -> None:
    options = ("strategy=reduce_linear", "strategy.reduce_inputs=false", REDUCABLE)
    model = winnow(*options, *needs(tmp_path, 7), folder=tmp_path / "run").model()
    assert len(model.graph.node) == 4
    assert sorted(value.name for value in model.graph.input) == ["X0", "Y0"]
    assert [value.name for value in model.graph.output] == ["identity_out_6"]


def test_keeps_the_outputs(tmp_path: Path) -> None:
    options = ("strategy=reduce_linear", "strategy.reduce_outputs=false", REDUCABLE)
    model = winnow(*options, *needs(tmp_path, 3), folder=tmp_path / "run").model()
    assert len(model.graph.node) == 4
    # the other branch is cut: its recorded value is an input here, a baked-in constant in the peer
    assert sorted(value.name for value in model.graph.input) == ["Y0", "identity_out_0"]
    assert len(model.graph.output) == 2


def test_both_at_once_is_refused(tmp_path: Path) -> None:
    options = ("strategy.reduce_inputs=false", "strategy.reduce_outputs=false", REDUCABLE)
    run = winnow(*options, *needs(tmp_path, 3), folder=tmp_path / "run")
    assert run.code == 2
    assert "nothing is left to reduce" in run.output


@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_bisect", "reduce_linear"], 3))
def test_only_the_listed_code_is_the_failure(tmp_path: Path, strategy: str) -> None:
    check = check_script(tmp_path, "sys.exit(1 if 'add_out_4' in made else 3 if 'identity_out_0' in made else 0)")
    options = (f"strategy={strategy}", REDUCABLE, "checker.fail_codes=[1]")
    run = winnow(*options, *by_command(check), folder=tmp_path / "run")
    assert made(run.model()) == ["add_out_4"]


@pytest.mark.parametrize("codes", [(), ("checker.fail_codes=[0]",)])
@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_bisect", "reduce_linear"], 3))
def test_only_the_matching_message_is_the_failure(tmp_path: Path, strategy: str, codes: tuple[str, ...]) -> None:
    check = check_script(
        tmp_path,
        "print('REAL BUG!' if 'identity_out_8' in made else 'another' if 'add_out_4' in made else 'fine')\n"
        "sys.exit(0 if 'identity_out_8' in made or 'add_out_4' not in made else 1)",
    )
    options = (f"strategy={strategy}", REDUCABLE, "checker.fail_regex=['REAL BUG!']", *codes)
    run = winnow(*options, *by_command(check), folder=tmp_path / "run")
    assert run.code in (0, 8), run.output
    assert made(run.model()) == ["identity_out_8"]


@pytest.mark.parametrize("numbers", [(1, 3), (7, 9), (1, 9)])
@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_linear", "reduce_minimal"], 2))
def test_two_branches_are_both_kept(tmp_path: Path, numbers: tuple[int, int], strategy: str) -> None:
    run = winnow(f"strategy={strategy}", REDUCABLE, *needs(tmp_path, *numbers), folder=tmp_path / "run")
    assert made(run.model()) == [TENSOR[number] for number in numbers]


@pytest.mark.parametrize("inference", ["onnx", "symbolic", "off"])
@pytest.mark.parametrize("record", ["all", "off"])
def test_dynamic_shapes(tmp_path: Path, inference: str, record: str) -> None:
    check = check_script(tmp_path, "sys.exit(1 if 'Y' in made else 0)")
    options = (
        f"model={MODELS / 'dynamic_identity.onnx'}",
        "inputs.shapes={X: [1, 2, 5, 5]}",
        f"cut.shapes={inference}",
        f"cut.record={record}",
    )
    run = winnow(*options, *by_command(check), folder=tmp_path / "run")
    if inference == "off" and record == "off":
        pytest.skip("nothing gives the output a shape: the user asked for that")
    graph = run.model().graph
    for value in (*graph.input, *graph.output):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [1, 2, 5, 5], run.output


@pytest.mark.parametrize("tensor", ["identity_out_2", "identity_out_4"])
def test_a_constant_in_the_graph(tmp_path: Path, tensor: str) -> None:
    check = check_script(tmp_path, f"sys.exit(1 if {tensor!r} in made else 0)")
    run = winnow(f"model={MODELS / 'reducable_with_const.onnx'}", *by_command(check), folder=tmp_path / "run")
    assert made(run.model()) == [tensor]
    assert not run.model().graph.input


def test_random_data_is_warned_of(tmp_path: Path) -> None:
    run = winnow(REDUCABLE, folder=tmp_path / "run")
    assert any("random" in warning for warning in run.result["warnings"])


def test_replay_checks_nothing_again_but_what_it_hands_over(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    check = check_script(
        tmp_path, f"open({str(log)!r}, 'a').write('x')\nsys.exit(1 if 'identity_out_6' in made else 0)"
    )
    first = winnow(REDUCABLE, *by_command(check), folder=tmp_path / "one")
    calls = log.read_text()
    second = winnow(REDUCABLE, *by_command(check), f"journal.reuse=[{tmp_path / 'one'}]", folder=tmp_path / "two")
    assert first.code == second.code and first.code in (0, 8), second.output
    handed = [name for name in ("reduced.onnx", "min_good.onnx") if (second.folder / name).exists()]
    assert len(log.read_text()) - len(calls) == len(handed)
    checks = second.result["checks"]
    assert (checks["trust"], checks["recheck"]) == (len(handed), len(handed))
    assert not any(checks[purpose] for purpose in ("search", "refine", "cause"))
    assert first.model() == second.model()


QUESTION = "ndo? "


def interactive(answer: Callable[[str, int], str], tmp_path: Path) -> tuple[int, str, Path]:
    """Answer each question at a real terminal; ``answer`` gets the candidate's path and the question's number."""
    folder = tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        argv = command("strategy=reduce", REDUCABLE, "checker=interactive", folder=folder)
        os.environ |= {"TERM": "dumb", "COLUMNS": "400"}
        os.chdir(tmp_path)
        os.execv(argv[0], argv)
    output, asked, end = "", 0, time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            output += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            break
        if output.endswith(QUESTION):
            path = re.findall(r"^(/.*\.onnx)", output, re.MULTILINE)[-1]
            os.write(terminal, (answer(path.strip(), asked) + "\n").encode())
            asked += 1
    else:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output, folder


def test_interactive(tmp_path: Path) -> None:
    typed = []

    def answer(path: str, number: int) -> str:
        typed.append("f" if "identity_out_6" in made(onnx.load(path)) else "p")
        return typed[-1]

    code, output, folder = interactive(answer, tmp_path)
    assert code in (0, 8), output
    assert made(onnx.load(str(folder / "reduced.onnx"))) == ["identity_out_6"]
    # the file and the whole; three of the search; what is handed over; two about the cause; two about what fails beside
    # it, since the tensor that is looked for is an output of the whole model, whatever makes it; the one that passes
    assert "".join(typed) == "fffpffffffp"


def test_interactive_asks_nonsense_again_and_takes_answers_back(tmp_path: Path) -> None:
    # nonsense; the whole fails; 0..1 wrongly fails, taken back at the next question, and passes; the rest is right
    script = ["z", "y", "f", "f", "u", "p"]

    def answer(path: str, number: int) -> str:
        return script[number] if number < len(script) else "f" if "identity_out_6" in made(onnx.load(path)) else "p"

    code, output, folder = interactive(answer, tmp_path)
    assert code in (0, 8), output
    assert made(onnx.load(str(folder / "reduced.onnx"))) == ["identity_out_6"]


def test_interactive_refuses_to_start_without_a_terminal(tmp_path: Path) -> None:
    run = winnow(REDUCABLE, "checker=interactive", folder=tmp_path / "run")
    assert run.code == 2
    assert "terminal" in run.output


@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_bisect", "reduce_linear"], 3))
@pytest.mark.parametrize("tensor", ["identity_out_0", "split_out_0_2", "identity_out_5"])
def test_every_candidate_of_a_multi_output_node_is_valid(tmp_path: Path, strategy: str, tensor: str) -> None:
    check = check_script(tmp_path, f"onnx.checker.check_model(model)\nsys.exit(7 if {tensor!r} in made else 0)")
    options = (f"strategy={strategy}", f"model={MODELS / 'multi_output.onnx'}", "checker.fail_codes=[7]")
    run = winnow(*options, "checker.invalid_codes=[1]", *by_command(check), folder=tmp_path / "run")
    assert run.code in (0, 8), run.output
    assert len(run.model().graph.node) == 1
    # the file itself has no shapes, which a strict check refuses; every candidate has
    assert run.result["outcomes"]["unresolved"] == 1


@pytest.mark.parametrize(("until", "code", "iterations"), [("good", 0, 1), ("bad", 1, 1), ("5", 0, 5), ("5", 1, 5)])
def test_repeat(tmp_path: Path, until: str, code: int, iterations: int) -> None:
    info = tmp_path / "info.json"
    check = tmp_path / "check.py"
    check.write_text(f"import json, sys\nassert json.load(open({str(info)!r}))['iteration']\nsys.exit({code})\n")
    options = ("strategy=repeat", f"strategy.until={until}", f"checker.iteration_info={info}")
    run = winnow(*options, "checker=command", f"checker.command={sys.executable} {check}", folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["statistics"]["iterations"] == iterations
    assert run.result["outcomes"] == {"fail" if code else "pass": iterations}


def test_repeat_with_ignored_codes(tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text("import sys\nsys.exit(2)\n")
    options = ("strategy=repeat", "strategy.until=good", "checker.pass_codes=[2]", "checker=command")
    run = winnow(*options, f"checker.command={sys.executable} {check}", folder=tmp_path / "run")
    assert run.result["outcomes"] == {"pass": 1}


@pytest.mark.parametrize("strategy", sample(["reduce", "reduce_bisect", "reduce_linear"], 3))
def test_the_guides_example(tmp_path: Path, strategy: str) -> None:
    check = check_script(tmp_path, "sys.exit(1 if 'Mul' in kinds else 0)")
    options = (f"strategy={strategy}", f"model={MODELS / 'example02_model.onnx'}")
    run = winnow(*options, *by_command(check), folder=tmp_path / "run")
    assert [node.op_type for node in run.model().graph.node] == ["Mul"]
    assert run.result["culprits"] == ["mul_out"]


ROBUST = sorted(path.stem for path in MODELS.glob("*.onnx")) if MODELS.is_dir() else []


@pytest.mark.parametrize("outcome", sample(["fail", "pass", "odd"], 3))
@pytest.mark.parametrize("name", sample(ROBUST, 2))
def test_no_model_ends_in_a_traceback(tmp_path: Path, name: str, outcome: str) -> None:
    body = {
        "pass": "sys.exit(0)",
        "fail": "sys.exit(0 if kinds == ['Identity'] else 1)",
        "odd": "sys.exit(len(kinds) % 2)",
    }[outcome]
    check = check_script(tmp_path, body)
    run = winnow("strategy=reduce", f"model={MODELS / name}.onnx", *by_command(check), folder=tmp_path / "run")
    assert "Traceback" not in run.output
    assert run.code in (0, 2, 3, 4, 8), run.output
    assert run.result["status"] != "internal_error"
