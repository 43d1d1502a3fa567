"""Runs with a check of the user's own: what counts as evidence, what is said and typed next where it cannot judge."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests import matrix
from tests.harness import Run, winnow
from tests.jobs.models import parsed
from tests.jobs.reduce.test_hard_failures import saved
from tests.jobs.reduce.test_whole_model_only import RUNTIME, X, two_paths

ALWAYS = "import sys\nsys.exit(1)\n"
ACCURACY = """
import sys, numpy as np, onnxruntime as ort
data = np.load({data!r})
found = ort.InferenceSession(sys.argv[1]).run(None, {{"x": data["x"]}})[0].argmax(1)
accuracy = (found == data["y"]).mean()
print(f"accuracy {{accuracy:.3f}}")
sys.exit({code})
"""
FUNCTION = """
import numpy as np, onnxruntime as ort
labels = np.load({data!r})["y"]
def check(model, inputs, expected):
    session = ort.InferenceSession(model)
    return float(np.mean([session.run(None, one)[0].argmax(1) == labels for one in inputs]))
"""


def network(*, quantized: bool) -> onnx.ModelProto:
    """Three layers; quantized, the input of the second has a scale that is twenty times too large."""
    random, nodes, held, x = np.random.default_rng(2), "", {}, "x"
    for at in range(3):
        held[f"w{at}"] = random.standard_normal((16, 16)).astype(np.float32) / 4
        if quantized:
            held |= {f"s{at}": np.float32(0.6 if at == 1 else 0.03), f"z{at}": np.int8(0)}
            nodes += f"[Q{at}] q{at} = QuantizeLinear({x}, s{at}, z{at}) "
            nodes += f"[D{at}] d{at} = DequantizeLinear(q{at}, s{at}, z{at}) "
            x = f"d{at}"
        nodes += f"[M{at}] m{at} = MatMul({x}, w{at}) [T{at}] t{at} = Tanh(m{at}) "
        x = f"t{at}"
    return parsed(f"g (float[n,16] x) => (float[n,16] {x}) {{ {nodes} }}", opset=13, **held)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with net.onnx, the good.onnx that it was made of, and data on which the good one is right."""
    onnx.save(network(quantized=True), str(tmp_path / "net.onnx"))
    onnx.save(network(quantized=False), str(tmp_path / "good.onnx"))
    x = np.random.default_rng(3).standard_normal((200, 16)).astype(np.float32)
    y = onnxruntime.InferenceSession(str(tmp_path / "good.onnx")).run(None, {"x": x})[0].argmax(1)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    return tmp_path


def asked(home: Path, strategy: str, text: str, *more: str, model: str = "net.onnx", folder: Path | None = None) -> Run:
    (home / "check.py").write_text(text)
    words = [sys.executable, str(home / "check.py"), "{model}"]
    given = (f"model={home / model}", "checker=command", f"checker.command={json.dumps(words)}")
    return winnow(f"strategy={strategy}", *given, *more, folder=folder or home / "run")


def accuracy(home: Path, code: str = "bool(accuracy < 0.95)") -> str:
    return ACCURACY.format(data=str(home / "data.npz"), code=code)


def following(run: Run) -> list[str]:
    """Return the words of the command that the screen names last."""
    (line,) = [line for line in run.output.splitlines() if line.startswith("  next ")]
    words = shlex.split(line.removeprefix("  next "))
    return words[words.index("runner") + 1 :]


def test_controls_are_no_evidence_that_the_model_fails(home: Path) -> None:
    (home / "check.py").write_text(FUNCTION.format(data=str(home / "data.npz")))
    given = ("checker=python", f"checker.file={home / 'check.py'}", "checker.max_drop=2%", "inputs=files")
    files = (f"inputs.path={home / 'data.npz'}", f"reference.model={home / 'good.onnx'}", "strategy.steps=[]")
    run = winnow("strategy=triage", f"model={home / 'net.onnx'}", *given, *files, folder=home / "run")
    told = run.result["triage"]["reproduced"]
    assert sum(run.result["controls"].values()) >= 4, "the function fails each control"
    # the file, and the whole model as it is cut
    assert told["failed"] == told["of"] <= 4 and told["how_often"] == f"in {told['of']} of {told['of']} runs"


SAYS_FALSE = "(False). The check printed False and exited with 1: sys.exit(value) does so"


@pytest.mark.parametrize(
    ("text", "said"),
    [(ALWAYS, "the check fails even on the original (exit 1)"), matrix.slow(("accuracy < 0.95", SAYS_FALSE))],
)
def test_precision_does_not_blame_precision_for_a_check_that_always_fails(home: Path, text: str, said: str) -> None:
    low = ("strategy.low=quantized", f"reference.model={home / 'good.onnx'}")
    run = asked(home, "precision", text if text == ALWAYS else accuracy(home, text), *low)
    assert run.code == 3 and said in run.result["message"], run.output
    assert following(run)[0] == "resume"


def test_precision_asks_for_a_good_model_where_none_is_known(home: Path) -> None:
    model = network(quantized=False)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, str(home / "half.onnx"))
    run = asked(home, "precision", ALWAYS, model="half.onnx")
    assert run.code == 3 and "Nothing passed the check" in run.result["message"], run.output
    assert following(run)[-2:] == ["--original", "good.onnx"]


@pytest.mark.slow
def test_precision_ends_with_5_where_the_check_passes_the_original(home: Path) -> None:
    original = network(quantized=False)
    original.producer_name = "original"
    onnx.save(original, str(home / "original.onnx"))
    text = "import sys, onnx\nsys.exit(onnx.load(sys.argv[1]).producer_name != 'original')\n"
    run = asked(home, "precision", text, f"reference.model={home / 'original.onnx'}", model="good.onnx")
    assert run.code == 5, run.output


@pytest.mark.slow
def test_what_to_type_next_is_what_the_run_lacks_and_it_leads_to_an_answer(home: Path) -> None:
    run = asked(home, "reduce", accuracy(home))
    assert run.code == 3, run.output
    assert "your check feeds an input of its own" in run.result["message"]
    assert run.result["lacks"] == ["--inputs x.npz", "--original good.onnx"], "a quantized model is its own reference"
    files = {"x.npz": str(home / "data.npz"), "good.onnx": str(home / "good.onnx")}
    onward = [sys.executable, "-m", "runner", *(files.get(one, one) for one in following(run))]
    done = subprocess.run(onward, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Q1, D1 (2 of " in done.stdout, done.stdout + done.stderr
    # with the inputs alone it is not asked for them again
    (home / "half").mkdir()
    given = ("inputs=files", f"inputs.path={home / 'data.npz'}")
    half = asked(home, "reduce", accuracy(home), *given, folder=home / "half")
    assert half.code == 3 and half.result["lacks"] == ["--original good.onnx"], half.output


@pytest.mark.parametrize("strategy", matrix.sample(["reduce", "triage"], 2))
def test_a_check_that_cannot_import_is_one_sentence(home: Path, strategy: str) -> None:
    run = asked(home, strategy, "import no_such_module\n")
    assert run.code == 3, run.output
    told = run.result["message"].splitlines()[0]
    assert told.count("no_such_module") == 1 and f"(run by {sys.executable})" in told, told


@pytest.mark.slow
def test_a_triage_shows_what_the_check_printed(home: Path) -> None:
    text = (
        "import sys, onnx\n"
        "for node in onnx.load(sys.argv[1]).graph.node:\n"
        "    if node.name == 'T1':\n"
        "        sys.exit('chipc: error E402: cannot lower T1')\n"
    )
    run = asked(home, "triage", text, "strategy.steps=[reduce]", model="good.onnx")
    assert run.code == 0, run.output
    assert "found: T1 (1 of " in run.output
    assert 'fails    a check fails (exit 1): "chipc: error E402: cannot lower T1", in ' in run.output


def test_advice_fits_a_check_that_reads_nothing_of_winnows(home: Path) -> None:
    run = asked(home, "triage", "import sys\n", model="good.onnx")
    said = "your check passes the model in 6 runs; to try next: run it by hand on this file"
    assert run.code == 4 and said in run.output, run.output
    assert "rtol" not in run.output and "seeds" not in run.output and "--inputs" not in run.output


@pytest.mark.parametrize("strategy", matrix.sample(["precision", "layerwise"], 2))
def test_a_model_that_the_target_does_not_load_is_no_question_of_values(tmp_path: Path, strategy: str) -> None:
    model = network(quantized=False)
    model.graph.node[1].op_type = "Tahn"
    onnx.save(model, str(tmp_path / "net.onnx"))
    run = winnow(f"strategy={strategy}", f"model={tmp_path / 'net.onnx'}", folder=tmp_path / "run")
    assert run.result["culprits"] == ["T0"] and "Tahn" in run.result["message"], run.output
    assert sum(run.result["outcomes"].values()) == 0 and "  next " not in run.output, run.output


@pytest.mark.slow
def test_a_check_that_is_quick_on_a_harmless_model_and_too_slow_on_the_whole(home: Path) -> None:
    text = "import sys, time\ntime.sleep(2.5 * (b'MatMul' in open(sys.argv[1], 'rb').read()))\n"
    run = asked(home, "reduce", text, "checker.timeout=1", model="good.onnx")
    assert run.code == 3 and "checker.timeout=1 is too short: the model file takes" in run.result["message"], run.output
    assert following(run)[:3:2] == ["resume", "--timeout"], run.output


def test_samples_along_the_open_axis_of_one_file_are_offered(home: Path) -> None:
    given = ("strategy=precision", f"model={home / 'good.onnx'}", "inputs=files", f"inputs.path={home / 'data.npz'}")
    run = winnow(*given, "plan=true", folder=home / "run")
    assert any("inputs.split=200" in warning for warning in run.result["warnings"]), run.output
    run = winnow(*given, "inputs.split=10", "plan=true", folder=home / "split")
    assert not any("one sample" in warning for warning in run.result["warnings"]), run.output


def test_samples_along_the_open_axis_of_what_a_function_yields_are_not_offered(home: Path) -> None:
    """Only files can be split."""
    (home / "data.py").write_text("import numpy\ndef samples(): yield {'x': numpy.ones((200, 16), 'f4')}\n")
    given = ("strategy=precision", f"model={home / 'good.onnx'}", "inputs=python", f"inputs.file={home / 'data.py'}")
    run = winnow(*given, "plan=true", folder=home / "run")
    assert any(warning.endswith("Give several: --inputs FOLDER") for warning in run.result["warnings"]), run.output


def test_a_part_is_not_at_fault_for_a_later_node_that_costs_a_little_accuracy(tmp_path: Path) -> None:
    judge = """
def check(model, inputs, expected):
    sys.argv[1:] = [model]
    made = session({'Softsign'}, ('Exp', 'Sigmoid')).run(['y'], {'x': np.load('own.npz')['x']})[0]
    off = np.abs(made - good['y']).max()
    print('accuracy', 99 - off)
    return bool(off < 0.01)
"""
    (tmp_path / "check.py").write_text(RUNTIME + judge)
    np.savez(tmp_path / "own.npz", x=X)
    np.savez(tmp_path / "golden.npz", y=ReferenceEvaluator(two_paths()).run(None, {"x": X})[0])
    measure = "checker.measure='accuracy ([0-9.]+)'", "checker.measure_better=higher", "checker.flaky=never"
    given = *saved(two_paths(), tmp_path, x=X), "checker=python", "checker.file=check.py", *measure
    found = winnow(*given, folder=tmp_path / "run")
    assert found.result["culprits"] == ["Exp", "Sigmoid"], found.output
