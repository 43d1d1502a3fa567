"""A command that names {references} is handed the right values in every kind of run that keeps the model whole."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.harness import winnow
from tests.jobs.models import saved

CHECK = """
import sys
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(sys.argv[1])
outputs = session.run(None, dict(np.load(sys.argv[2])))
right = np.load(sys.argv[3])
for output, value in zip(session.get_outputs(), outputs):
    if not np.allclose(value, right[output.name]):
        print("wrong:", output.name)
        sys.exit(1)
"""
COMMAND = f"checker.command=['{sys.executable}',check.py,'{{model}}','{{inputs}}','{{references}}']"

NET = "g (float[4] x) => (float[4] y) { [relu] h = Relu(x) [exp] y = Exp(h) }"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A model that passes, beside the check of it."""
    (tmp_path / "check.py").write_text(CHECK)
    return saved(tmp_path / "net.onnx", NET)


def test_a_python_check_gets_what_is_right(good: Path, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(
        "def check(model, inputs, expected):\n    return [*expected[0]] == ['y'] and expected[0]['y'].shape == (4,)\n"
    )
    given = ("checker=python", "checker.file=check.py", "strategy.until=1")
    run = winnow("strategy=repeat", f"model={good}", *given, folder=tmp_path / "run")
    assert run.result["outcomes"] == {"pass": 1}, run.output


@pytest.mark.slow
def test_passes_hand_out_the_references(good: Path, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(
        CHECK.replace("outputs = session", "outputs = [v + ('--bad' in sys.argv) for v in session").replace(
            "dict(np.load(sys.argv[2])))", "dict(np.load(sys.argv[2])))]"
        )
    )
    command = f"{COMMAND[:-1]},'{{switches}}']"
    given = ("checker=command", command, "strategy.switches=[--bad, --other]")
    run = winnow("strategy=passes", f"model={good}", *given, folder=tmp_path / "run")
    assert run.result["culprits"] == ["--bad"], run.output


def test_a_reference_that_cannot_run_refuses_before_the_first_check(tmp_path: Path, good: Path) -> None:
    head = '<ir_version: 8, opset_import: ["": 17, "nobody": 1]> '
    saved(good, head + NET.replace("Relu", "nobody.Unknown"))
    np.savez(tmp_path / "in.npz", x=np.zeros(4, np.float32))
    given = ("checker=command", COMMAND, "inputs=files", "inputs.path=in.npz")
    run = winnow("strategy=repeat", f"model={good}", *given, folder=tmp_path / "run")
    assert run.code == 2, run.output
    assert "no values for {references}: the reference cannot run it" in run.output


PYTHON = ("checker=python", "checker.file=function.py", "strategy.until=1")
FUNCTION = """import numpy as np
def check(model, inputs, expected):
    return bool({})
"""


@pytest.mark.variants
@pytest.mark.parametrize(
    ("strategy", "check", "told"),
    [
        ("repeat", ("checker=command", COMMAND), "{references}"),
        ("reduce", ("checker=command", COMMAND), "{references}"),
        ("repeat", (*PYTHON, "np.allclose(1.0, expected[0]['y'])"), "expected"),
        ("repeat", (*PYTHON, "False"), ""),
    ],
)
def test_references_that_are_not_finite_are_told_where_they_are_read(
    good: Path, tmp_path: Path, strategy: str, check: tuple[str, ...], told: str
) -> None:
    saved(good, NET.replace("Relu", "Neg").replace("Exp", "Log"))
    np.savez(tmp_path / "in.npz", x=np.ones(4, np.float32))
    *words, last = check
    (tmp_path / "function.py").write_text(FUNCTION.format(last))
    given = (*words, *((last,) if last == COMMAND else ()), "inputs=files", "inputs.path=in.npz")
    run = winnow(f"strategy={strategy}", f"model={good}", *given, folder=tmp_path / "run")
    said = f"the reference itself gives NaN or Inf at y, so {told} holds no right value there"
    assert sum(one.startswith(said) for one in run.result["warnings"]) == bool(told), run.output
    assert ("reference.model=PATH" in " ".join(run.result["warnings"])) == bool(told)


def test_references_of_a_run_that_records_nothing_are_refused(good: Path, tmp_path: Path) -> None:
    given = ("checker=command", COMMAND, "cut.record=off")
    run = winnow("strategy=reduce", f"model={good}", *given, folder=tmp_path / "run")
    assert run.code == 2, run.output
    assert "{references} would hold nothing. Set cut.record=auto" in run.output


def test_a_repeat_is_of_the_whole_model(good: Path, tmp_path: Path) -> None:
    given = ("strategy=repeat", f"model={good}", "checker=command", COMMAND, "strategy.until=1")
    run = winnow(*given, folder=tmp_path / "run")
    assert "(2 nodes): PASS" in run.log, run.output


@pytest.mark.slow
def test_a_repeat_whose_check_never_answers_could_not_judge(good: Path, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("import a_module_that_is_not_there\n")
    run = winnow("strategy=repeat", f"model={good}", "checker=command", COMMAND, folder=tmp_path / "run")
    assert (run.code, run.result["outcomes"]) == (3, {"unresolved": 20}), run.output
