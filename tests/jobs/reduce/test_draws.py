"""Models that draw random numbers: one that is sound passes, and in one that is not the fault is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.harness import by_command, check_script, winnow
from tests.jobs.models import saved
from tests.matrix import sample

RUN = """
import numpy as np, onnxruntime as ort
feeds, good = dict(np.load(sys.argv[2])), dict(np.load(sys.argv[3]))
FAULT
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs() if one.name in good]
made = session.run(names, {one.name: feeds[one.name] for one in session.get_inputs()})
sys.exit(int(not all(np.allclose(value, good[name], rtol=1e-2, atol=1e-3) for name, value in zip(names, made))))
"""
WRONG = """
for node in model.graph.node:
    if node.op_type == "Tanh":
        node.op_type = "Softsign"
"""


def noisy(folder: Path, drawing: str = "RandomNormalLike(a)") -> str:
    """A model of six nodes, of which one draws; ``noise`` is what it draws of ``a``."""
    constants = "float ratio = {0.5}, bool training = {1}" if "ratio" in drawing else ""
    text = f"""g (float[4,4] x) => (float[4,4] y) <{constants}> {{
        [abs] a = Abs(x) [noise] noise = {drawing} [add] b = Add(a, noise) [tanh] c = Tanh(b)
        [matmul] d = MatMul(c, w) [neg] y = Neg(d) }}"""
    return f"model={saved(folder / 'net.onnx', text, w=np.eye(4, dtype=np.float32))}"


@pytest.mark.parametrize("drawing", sample(["RandomNormalLike(a)", "Dropout(a, ratio, training)"], 2))
def test_a_sound_model_that_draws_has_nothing_to_find(tmp_path: Path, drawing: str) -> None:
    """ONNX Runtime's optimizations take a Dropout away in training too, which is another failure."""
    given = noisy(tmp_path, drawing), "inputs.samples=2", "target.optimization=none"
    run = winnow(*given, folder=tmp_path / "run")
    assert run.code == 4 and any("set_seed" in warning for warning in run.result["warnings"]), run.output


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [True, False])
def test_a_check_that_compares_with_references(seeded: bool, tmp_path: Path) -> None:
    body = RUN.replace("FAULT", "ort.set_seed(1)" if seeded else "")
    check = by_command(check_script(tmp_path, body), "{inputs}", "{references}")
    run = winnow(noisy(tmp_path), *check, "inputs.samples=3", folder=tmp_path / "run")
    assert run.code == 4, run.output
    assert seeded is not any("passes with the same ones" in warning for warning in run.result["warnings"])


@pytest.mark.variants
@pytest.mark.parametrize(("strategy", "seeded"), [("reduce", True), ("extract", False)])
def test_a_part_that_is_to_be_used_draws_as_it_did(strategy: str, seeded: bool, tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, "sys.exit(int('noise' in nodes))"))
    asked = check if strategy == "reduce" else ("strategy.nodes=[noise]",)
    run = winnow(noisy(tmp_path), f"strategy={strategy}", *asked, folder=tmp_path / "run")
    (path,) = (one for one in (tmp_path / "run").glob("*.onnx") if one.name in ("reduced.onnx", "extracted.onnx"))
    (node,) = onnx.load(path).graph.node
    assert [one.name for one in node.attribute] == (["seed"] if seeded else []), run.output


@pytest.mark.slow
def test_a_fault_beside_a_draw_is_found(tmp_path: Path) -> None:
    check = by_command(check_script(tmp_path, RUN.replace("FAULT", WRONG)), "{inputs}", "{references}")
    run = winnow(noisy(tmp_path), *check, "inputs.samples=2", folder=tmp_path / "run")
    assert (run.code, run.result["culprits"], run.result["cause"]["status"]) == (0, ["tanh"], "proven"), run.output
