"""repro.py that stands alone: run where nothing is beside it, with onnx, onnxruntime and numpy only."""

from __future__ import annotations

import ast
import dataclasses
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.model.files.onnx_text import bare, text_of
from runner.report.repro import write
from runner.report.repro.fill_templates import set_together
from runner.report.repro.write import REPRO_NAME
from runner.schema import checker as checkers
from tests.harness import winnow
from tests.model.models import model_of
from tests.report import handed
from tests.report.fresh import Shown, environment, show
from tests.report.handed import CANNOT_TELL, EVALUATOR, GONE, ORT, REFERENCE, SHOWS, Case
from tests.workers.house import soon

NASTY = 'a"""\\\'\u202e")); import os #'


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("python"), ORT)


def written(case: Case, folder: Path) -> Path | None:
    """Write a case's bundle, and copy repro.py to an empty folder if it stands alone."""
    folder.mkdir(parents=True)
    script = case.write(folder, alone=True)
    if "the files beside it" in script.read_text():
        return None
    (folder / "elsewhere").mkdir()
    return Path(shutil.copy(script, folder / "elsewhere"))


def fits(script: Path, lines: int = 100) -> bool:
    """Whether a script has no more than so many lines of 100 columns, and no literal of more than 200 characters."""
    text = script.read_text()
    texts = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    longest = max(len(one) for one in texts if isinstance(one, str))
    return len(text.splitlines()) <= lines and max(map(len, text.splitlines())) <= 100 and longest <= 200


def cases() -> dict[str, Case]:
    found = [*handed.values_cases(), *handed.error_cases(), *handed.command_cases()]
    return {case.name: case for case in found}


def test_settings_share_lines_and_keep_their_values() -> None:
    values = {"A": 600.0, "B": [1], "LONG": ["word " * 4] * 9, "C": "text", "D": float("inf"), "E": None}
    lines = list(set_together(values, 60))
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    assert {name: found[name] for name in values} == values
    assert lines[0] == "A, B = 600.0, [1]"
    assert lines[-1] == "C, D, E = 'text', float(\"inf\"), None"
    assert max(len(line) for text in lines for line in text.splitlines()) <= 60


SHORT = {
    **dict.fromkeys(("auto, NaN", "runs, infer error", "command, exit that is another failure"), 100),
    "command, asks for values": 100,
    "compare, recorded outputs": 120,
}
"""How many lines a script may have, by its case; others: 130."""


@pytest.mark.slow
def test_each_case_is_told_right(tmp_path: Path) -> None:
    """As by the script that has files beside it."""
    fresh, rows = handed.Fresh(tmp_path / "fresh"), list[tuple[Case, Shown]]()
    for number, case in enumerate([*cases().values(), *handed.end_cases(tmp_path), *handed.python_cases()]):
        given = (
            dataclasses.replace(case, spoil=None) if case.name in ("finite, no inputs", "finite, no model") else case
        )
        script = written(given, tmp_path / str(number))
        if script and given is case:
            rows.append((case, show(fresh.python(case.packages or EVALUATOR), script)))
            assert fits(script, SHORT.get(case.name, 130)), case.name
    assert len(rows) > 55
    wrong = [(case, said) for case, said in rows if said.code != case.code and case.packages is not handed.NOTHING]
    assert not wrong, handed.table([(case, said.code) for case, said in rows]) + "".join(said.text for _, said in wrong)


@pytest.mark.slow
def test_an_output_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    """Neither on a full disk, nor with a reader that has gone, nor where there is none."""
    lacking = "-S", cases()["command, values without numpy"]
    for number, (option, case) in enumerate(
        (("", cases()["runs, no longer"]), ("", cases()["command, passes"]), lacking)
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        script = case.write(folder, alone=True)
        for where in ("> /dev/full", "| true; exit ${PIPESTATUS[0]}", ">&-"):
            line = f"'{sys.executable}' {option} '{script}' {where}"
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
            assert done.returncode in (GONE, CANNOT_TELL), line + done.stderr


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: a script that stands alone has no long lines, and a command in it has its paths."""
    with tempfile.TemporaryDirectory(prefix="w") as folder:
        yield Path(folder)


def test_an_interrupt_ends_the_command(place: Path) -> None:
    """Which has a session of its own."""
    began = place / "began"
    waits = handed.command(f"open({str(began)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)")
    script = Case("it", CANNOT_TELL, waits, ("check", "exit 1"), handed.NOTHING).write(place, alone=True)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert soon(lambda: began.exists() and bool(began.read_text()))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert b"KeyboardInterrupt" in said
    check = Path("/proc", began.read_text(), "cmdline")
    assert soon(lambda: not check.exists() or not check.read_bytes())


def test_a_package_that_is_missing(tmp_path: Path) -> None:
    script = written(cases()["auto, NaN"], tmp_path / "run")
    assert script
    shown = show(environment(tmp_path / "python", EVALUATOR), script)
    assert (shown.code, "No module named 'onnxruntime'" in shown.text) == (CANNOT_TELL, True)
    assert "cannot tell: " in shown.text


def test_a_process_that_dies_or_never_ends(tmp_path: Path) -> None:
    """In place of ONNX Runtime a module whose sessions do so."""
    stub = tmp_path / "onnxruntime.py"
    body = "import os, time\n__version__ = '0'\nclass GraphOptimizationLevel: ORT_ENABLE_ALL = 99\n"
    body += "class SessionOptions: pass\ndef InferenceSession(*given): {}\n"
    runs = checkers.RunsChecker(timeout=0.2)
    for kind, does, code in (
        ("death MEMORY", "os.abort()", SHOWS),
        ("death FPE", "os.abort()", CANNOT_TELL),
        ("timeout", "time.sleep(60)", SHOWS),
    ):
        script = written(Case("it", code, runs, ("infer", kind)), tmp_path / f"{kind} {does}")
        stub.write_text(body.format(does))
        assert script
        env = {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr


def test_names_never_become_code_and_all_of_the_model_is_there(tmp_path: Path) -> None:
    """What the script makes is what lies in the file, bit for bit."""
    weight = np.random.default_rng(3).standard_normal((5, 7)) * 0.25
    feeds: dict[str, Any] = {
        NASTY: np.float32([0.1, -0.0, np.inf, 1e-45]),
        "h": np.full((3, 40), 300, np.float16),
        "i": np.array(-(2**63)),
        "empty": np.zeros((0, 3), np.int8),
        "b": np.array([True, False]),
        **{f"/encoder/layer.0/attention/{number}": np.full(2, number, np.float32) for number in range(4)},
    }
    case = Case(
        "it",
        SHOWS,
        checkers.FiniteChecker(),
        ("infer", "inf"),
        EVALUATOR,
        REFERENCE,
        nodes=[helper.make_node("Identity", [name], [f"{name}_"], name=NASTY) for name in feeds],
        inputs=feeds,
        evidence={"output": NASTY},
    )
    script = written(case, tmp_path / "run")
    assert script and ".replace('@', '/encoder/layer.0/attention/')" in script.read_text()
    space: dict[str, Any] = {"onnx": onnx, "np": np, "__name__": "it", "__file__": str(script)}
    exec(compile(script.read_text(), str(script), "exec"), space)
    ((model, inputs, _),) = space["load"]()
    assert bare(model) == bare(onnx.load(str(tmp_path / "run" / "reduced.onnx")))
    assert [(name, value.dtype, value.shape, value.tobytes()) for name, value in inputs.items()] == [
        (name, value.dtype, value.shape, value.tobytes()) for name, value in feeds.items()
    ]
    for array in (weight, weight.astype(np.float16), np.random.default_rng(0).integers(0, 8, (4, 9))):
        made = write._made(numpy_helper.from_array(np.ascontiguousarray(array), "w"))
        assert eval(made, {"np": np}).tobytes() == array.tobytes()


def test_what_does_not_fit_has_files_beside_it(tmp_path: Path) -> None:
    """Also an input with the name of an argument of numpy.savez."""
    many = {"x": np.random.default_rng(99).normal(size=100).astype(np.float32)}
    nan = {"x": -np.float32([np.nan, 1.0])}
    narrow = {"x": helper.make_tensor("x", TensorProto.BFLOAT16, [1], [1.0])}
    finite, asks = cases()["auto, NaN"], cases()["command, asks for values"]
    given = [(finite, one) for one in (many, nan, narrow, {"x" * 200: many["x"][:2]})]
    for number, (case, inputs) in enumerate([*given, (asks, {"file": np.ones(2, np.float32)})]):
        node = helper.make_node("Identity", [*inputs], ["y"])
        assert written(dataclasses.replace(case, nodes=[node], inputs=inputs), tmp_path / str(number)) is None
        assert (tmp_path / str(number) / REPRO_NAME).exists()


def test_a_run_hands_over_one_that_stands_alone(python: Path, tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"], name="neg"), helper.make_node("Log", ["a"], ["b"], name="log")]
    nodes += [helper.make_node("Abs", ["b"], ["y"], name="abs")]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    onnx.save(model_of(nodes, declared[:1], declared[1:]), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([1, 2], np.float32))
    given = ("model=m.onnx", "inputs=files", "inputs.path=x.npz", "checker=finite", "checker.flaky=never")
    run = winnow(*given, folder=tmp_path / "run", cwd=tmp_path)
    assert (run.code, run.result["culprits"]) == (0, ["log"]), run.output
    assert "it holds the model and its inputs" in (run.folder / "REPORT.md").read_text()
    (tmp_path / "elsewhere").mkdir()
    script = Path(shutil.copy(run.folder / REPRO_NAME, tmp_path / "elsewhere"))
    shown = show(python, script)
    assert (shown.code, fits(script)) == (SHOWS, True), shown.text
    assert text_of(run.model()).lines[-2].strip() in script.read_text()


@pytest.mark.parametrize("alone", [True, False])
def test_the_values_are_those_of_the_run(alone: bool, tmp_path: Path) -> None:
    """Of two tensors that numpy.load takes for each other a run hands out one."""
    feeds = {name: np.full(2, at, np.float32) for at, name in enumerate(("x", "x.npy", "a.npy"))}
    asks = "import sys, numpy\nheld = numpy.load(sys.argv[2])\nassert sorted(held) == ['a.npy', 'x']\nsys.exit(1)"
    command = checkers.CommandChecker(command=[sys.executable, "-c", asks, "{model}", "{inputs}"])
    nodes = [helper.make_node("Sum", [*feeds], ["y"])]
    case = Case("it", SHOWS, command, ("check", "exit 1"), nodes=nodes, inputs=feeds)
    script = case.write(tmp_path, alone=alone)
    assert ("the files beside it" in script.read_text()) is not alone
    shown = show(sys.executable, script)
    assert shown.code == SHOWS, shown.text


@pytest.mark.parametrize(("name", "needs"), [("a_b", "onnx (which needs numpy)"), ("/a/b", "onnx >= 1.18 (which")])
def test_names_that_an_older_onnx_does_not_read_are_told(name: str, needs: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Abs", ["x"], [name]), helper.make_node("Neg", [name], ["y"])]
    script = written(dataclasses.replace(cases()["command, asks for values"], nodes=nodes), tmp_path / "run")
    assert script is not None and needs in script.read_text() and fits(script)
