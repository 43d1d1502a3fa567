"""`sanitize` through a whole run: what is reduced is the sanitized model, and what was done is said."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.harness import by_command, check_script, winnow
from tests.model.models import model_of, tensor


@pytest.fixture
def model(tmp_path):
    """A model with a computed shape, a dead node, and Tanh as the culprit."""
    text = """shape = Shape (x)  same = Reshape (x, shape)  [culprit] t = Tanh (same)  dead = Abs (t)  y = Neg (t)"""
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    path = tmp_path / "m.onnx"
    onnx.save(model_of(text, declared[:1], declared[1:], [tensor("unused", np.ones(4))]), path)
    return f"model={path}"


def culprit(tmp_path, *more: str) -> tuple[str, str]:
    """A check that fails where the culprit is, and notes which nodes it saw."""
    body = f"open({str(tmp_path / 'seen')!r}, 'a').write(' '.join(kinds) + '\\n')\n"
    return by_command(check_script(tmp_path, f"{body}sys.exit(1 if 'culprit' in nodes else 0)"), *more)


def test_the_sanitized_model_is_what_is_reduced(tmp_path, model):
    options = ["sanitize.fold=true", "sanitize.shapes=true", "sanitize.cleanup=true", "inputs.shapes={x: [2, 3]}"]
    run = winnow(model, *culprit(tmp_path), *options, folder=tmp_path / "run")
    assert run.code == 0, run.output
    assert run.result["culprits"] == ["culprit"]
    assert run.result["nodes"]["before"] == 3
    assert (tmp_path / "seen").read_text().splitlines()[0] == "Reshape Tanh Neg"
    for step in ("shapes: the model's inputs now", "fold: 1 of 5 nodes folded", "cleanup: 1 dead node and 1 unused"):
        assert any(f"sanitize.{step}" in warning for warning in run.result["warnings"]), run.result["warnings"]
    assert not (run.folder / "sanitized").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["sanitize.shapes=true"], "sanitize.shapes=true: there are no shapes to write"),
        (["sanitize.fold=true", "workers.memory_mb=20"], "sanitize.fold=true: "),
    ],
)
def test_a_step_that_fails_is_named(tmp_path, model, options, said):
    run = winnow(model, *culprit(tmp_path), *options, folder=tmp_path / "run")
    assert run.code == 2, run.output
    assert said in run.output
    assert "Traceback" not in run.output
    assert not (run.folder / "sanitized").exists()
    assert not (tmp_path / "seen").exists()
