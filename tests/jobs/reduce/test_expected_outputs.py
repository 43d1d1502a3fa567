"""`reference=files`: expected outputs from files say what is right; ONNX Runtime's approximation of Gelu is not."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from runner import api
from tests.harness import winnow

NET = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> net
  (float[2,8] x) => (float[2,8] y, float[2,8] z) {
    [tanh] a = Tanh (x)
    [exp] b = Exp (a)
    [gelu] c = com.microsoft.Gelu (b)
    [cos] d = Cos (c)
    [last] y = Sigmoid (d)
    [neg] z = Neg (a)
}"""
KEY = "optimization.enable_gelu_approximation"
FLAWED, EXACT = (f'target.config_entries={{{KEY}: "{value}"}}' for value in (1, 0))
TIGHT = "checker.rtol=1e-5", "checker.atol=0"
GIVEN = "net.onnx", FLAWED, "inputs=files", "reference=files", "checker=compare", *TIGHT
ONE = "inputs.path=in0.npz", "reference.path=out0.npz"
NOT_GIVEN = "ONNX Runtime without optimizations also gives other outputs than your files"


def approximates() -> bool:
    """Whether the installed ONNX Runtime takes Gelu for what the entry says."""
    model = onnx.parser.parse_model(NET)
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    made = []
    for value in ("0", "1"):
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry(KEY, value)
        made.append(onnxruntime.InferenceSession(model.SerializeToString(), options).run(["y"], {"x": x})[0])
    return not np.array_equal(*made)


pytestmark = pytest.mark.skipif(not approximates(), reason="this ONNX Runtime has no other Gelu")


def tensor(path: Path, name: str, value: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numpy_helper.from_array(value, name).SerializeToString())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The model, and what two inputs give without the approximation: as npz, and as data sets of ONNX."""
    onnx.save(onnx.parser.parse_model(NET), tmp_path / "net.onnx")
    exact = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    for number, x in enumerate(np.random.default_rng(0).standard_normal((2, 2, 8)).astype(np.float32)):
        y, z = exact.run(None, {"x": x})
        np.savez(tmp_path / f"in{number}.npz", x=x)
        np.savez(tmp_path / f"out{number}.npz", y=y.astype(np.float64), z=z, more=z)
        np.savez(tmp_path / f"y{number}.npz", y=y)
        np.savez(tmp_path / f"others{number}.npz", y=1.5 * y, z=z)
        for name, value in (("input_0", x), ("output_0", y), ("output_1", z)):
            names = {"input_0": "x", "output_0": "y", "output_1": "z"}
            tensor(tmp_path / "sets" / f"test_data_set_{number}" / f"{name}.pb", names[name], value)
    return tmp_path


def asked(here: Path, *words: str, strategy: str = "reduce", code: int = 0) -> dict[str, Any]:
    run = winnow(strategy, *GIVEN, *words, folder=here / "run", cwd=here)
    assert run.code == code, run.output
    return run.result


@pytest.mark.variants
@pytest.mark.parametrize(
    "paths",
    [
        ONE,
        ("inputs.path=in0.npz", "reference.path=y0.npz"),
        ("inputs.path=[in0.npz,in1.npz]", "reference.path=[out0.npz,out1.npz]"),
        ("inputs.path=in0.npz", "reference.path=sets/test_data_set_0"),
        ("inputs.path=sets",),
        (*ONE, "checker.outputs=[y]"),
        (*ONE, "checker.golden=candidate"),
    ],
)
def test_the_culprit_is_found_and_proven(here: Path, paths: tuple[str, ...]) -> None:
    result = asked(here, *paths)
    assert result["culprits"] == ["gelu"] and result["cause"]["status"] == "proven"


@pytest.mark.slow
def test_what_gives_the_expected_outputs_passes_whatever_the_reference_gives(here: Path) -> None:
    assert asked(here, *ONE, EXACT, code=4)["status"] == "nothing_to_find"
    asked(here, "inputs.path=in0.npz", "reference.path=others0.npz", code=3)
    wrong = "reference.optimization=all", f'reference.config_entries={{{KEY}: "1"}}'
    assert asked(here, *ONE, EXACT, *wrong, code=4)["status"] == "nothing_to_find"


def test_an_output_that_is_not_in_the_files_is_not_judged(here: Path) -> None:
    np.savez(here / "z.npz", z=np.load(here / "out0.npz")["z"])
    assert asked(here, "inputs.path=in0.npz", "reference.path=z.npz", code=4)["status"] == "nothing_to_find"


@pytest.mark.slow
def test_a_reference_that_does_not_give_the_outputs_has_no_good_value(here: Path) -> None:
    """Of neither a long list of nodes is made: what is wrong is said, and whether the target alone is."""
    result = asked(here, "inputs.path=in0.npz", "reference.path=others0.npz", code=3)
    assert result["message"].startswith(NOT_GIVEN) and not result["culprits"]
    assert "The target differs from that run too" in result["message"]
    assert "--original good.onnx" in result["message"] and "reference.inner=onnx_reference" in result["message"]
    assert result["lacks"] == ["--original good.onnx"]
    same = "reference.optimization=all", f'reference.config_entries={{{KEY}: "1"}}'
    optimized = asked(here, *ONE, *same, strategy="layerwise", code=3)["message"]
    assert optimized.startswith("the reference also gives other outputs than your files")


@pytest.mark.slow
def test_a_check_with_a_golden_file_of_its_own_says_nothing_of_the_references_run(here: Path) -> None:
    """It reads the model alone, so it fails whatever it is held against; with the original the run starts over."""
    (here / "check.py").write_text(
        "import sys, numpy as np, onnxruntime\n"
        "made, = onnxruntime.InferenceSession(sys.argv[1]).run(['y'], {'x': np.load('in0.npz')['x']})\n"
        "sys.exit(not np.allclose(made, np.load('others0.npz')['y']))\n"
    )
    files = "inputs=files", "inputs.path=in0.npz", "reference=files", "reference.path=others0.npz"
    argv = f"checker.command=[{sys.executable}, check.py, '{{model}}']"
    run = winnow("reduce", "net.onnx", "checker=command", argv, *files, folder=here / "run", cwd=here)
    assert run.code == 3 and run.result["message"].startswith(NOT_GIVEN), run.output
    assert "differs from that run" not in run.output and "agrees" not in run.output
    assert "next     python -m runner resume run --original good.onnx" in run.output, run.output


def test_a_reference_that_is_nearly_as_far_off_is_no_measure(here: Path) -> None:
    """Its own distance would be added to whatever is looked at, so that the last node is taken for wrong."""
    held = dict(np.load(here / "out0.npz"))
    np.savez(here / "near.npz", **{**held, "y": held["y"] * (1 - 2.5e-5)})
    result = asked(here, "inputs.path=in0.npz", "reference.path=near.npz", "checker.rtol=5e-5", code=3)
    assert "too close to know the right values inside" in result["message"]


@pytest.mark.slow
def test_an_original_tells_what_is_right_inside(here: Path) -> None:
    """With reference.model the outputs are judged by the files, and what is inside by the original."""
    child = NET.replace("d = Cos (c)", "d = Sin (c)").replace("[cos]", "[sin]")
    (here / "net.onnx").rename(here / "original.onnx")
    onnx.save(onnx.parser.parse_model(child), here / "net.onnx")
    result = asked(here, *ONE, EXACT, code=3)
    assert "The target agrees with that run" in result["message"]
    result = asked(here, *ONE, EXACT, "reference.model=original.onnx")
    assert result["culprits"] == ["sin"] and result["cause"]["status"] == "proven"


def test_a_check_of_ones_own_gets_them(here: Path) -> None:
    (here / "mine.py").write_text(
        "import numpy as np, onnx, onnxruntime as ort\n"
        "def check(model, inputs, expected):\n"
        "    options = ort.SessionOptions()\n"
        f"    options.add_session_config_entry({KEY!r}, '1')\n"
        "    session = ort.InferenceSession(model, options)\n"
        "    for feeds, good in zip(inputs, expected):\n"
        "        assert good, 'nothing to compare with'\n"
        "        names = [one.name for one in session.get_outputs() if one.name in good]\n"
        "        for name, value in zip(names, session.run(names, feeds)):\n"
        "            if not np.allclose(value, good[name], rtol=1e-5, atol=0):\n"
        "                return False\n"
        "    return True\n"
    )
    own = "net.onnx", "inputs=files", "reference=files", "checker=python", "checker.file=mine.py"
    run = winnow("reduce", *own, *ONE, folder=here / "run", cwd=here)
    assert run.code == 0 and run.result["culprits"] == ["gelu"], run.output


@pytest.mark.variants
@pytest.mark.parametrize(
    ("strategy", "words", "code"),
    [("layerwise", (), 0), ("extract", ("strategy.nodes=[gelu]",), 0), ("passes", (), 0), ("repeat", (), 0)],
)
def test_other_questions(here: Path, strategy: str, words: tuple[str, ...], code: int) -> None:
    result = asked(here, *ONE, *words, strategy=strategy, code=code)
    if strategy == "repeat":
        assert "fail" in result["message"]
    else:
        assert result["culprits"] == ["GeluApproximation" if strategy == "passes" else "gelu"]


@pytest.mark.slow
def test_a_triage(here: Path) -> None:
    result = asked(here, *ONE, strategy="triage")
    assert result["culprits"] == ["gelu"]
    asked_too = [one["question"] for one in result["triage"]["decisions"]]
    assert "Does it fail with other inputs?" not in asked_too


@pytest.mark.slow
def test_a_part_stands_alone(here: Path) -> None:
    """A kept part has other outputs than the files: what its data sets hold is right."""
    asked(here, *ONE)
    assert (here / "run" / "test_data_set_0" / "output_0.pb").is_file()
    (here / "out0.npz").unlink()
    run = winnow("recheck", "run", folder=here / "again", cwd=here)
    assert run.code == 0 and "1 still broken" in run.output, run.output


@pytest.mark.slow
def test_verdicts_belong_to_what_the_files_hold(here: Path) -> None:
    """Also where the path is the same: of a folder, or beside the inputs, no setting tells what is in it."""
    asked(here, "inputs.path=sets")
    assert asked(here, "inputs.path=sets", "resume=run")["checks"]["reused"] > 0
    held = numpy_helper.to_array(onnx.load_tensor(here / "sets/test_data_set_0/output_0.pb"))
    tensor(here / "sets/test_data_set_0/output_0.pb", "y", held * np.float32(1 + 1e-6))
    run = winnow("reduce", *GIVEN, "inputs.path=sets", "resume=run", folder=here / "run", cwd=here)
    assert run.code == 2 and "expected" in run.output, run.output


def test_from_python(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    reference: Mapping[str, Any] = {"name": "files", "path": str(here / "out0.npz")}
    found = api.reduce(
        "net.onnx",
        inputs=dict(np.load("in0.npz")),
        reference=reference,
        target={"name": "onnxruntime", "config_entries": {KEY: "1"}},
        checker={"name": "compare", "rtol": 1e-5, "atol": 0.0},
        folder=here / "run",
    )
    assert list(found.culprits) == ["gelu"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("inputs.path=in0.npz",), "reference.path=: where are the expected outputs?"),
        (("inputs.path=in0.npz", "reference.path=none.npz"), "reference.path: "),
        (("inputs.path=in0.npz", "reference.path=in0.npz"), "no value for output 'y' or 'z', only for x"),
        (("inputs.path=in0.npz", "reference.path=wide.npz"), "'y' has shape [2, 9], the model declares [2, 8]"),
        (("inputs.path=in0.npz", "reference.path=whole.npz"), "'y' has type int64, the model declares float"),
        (("inputs.path=in0.npz", "reference.path=[y0.npz,y1.npz]"), "it holds 2 samples, and inputs=files 1"),
        (
            ("inputs.path=in0.npz", "reference.path=y0.npz", "checker.outputs=[z]"),
            "checker.outputs=[z]: reference.path=",
        ),
        (("inputs=random", "reference.path=y0.npz"), "expected outputs belong to certain inputs"),
    ],
)
def test_bad_input_is_one_clear_error(here: Path, words: tuple[str, ...], said: str) -> None:
    np.savez(here / "wide.npz", y=np.zeros((2, 9), np.float32))
    np.savez(here / "whole.npz", y=np.zeros((2, 8), np.int64))
    result = asked(here, *words, code=2)
    assert said in result["message"] and result["status"] == "usage"
