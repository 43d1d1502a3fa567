"""Large candidates at a fixed path: the weights beside them are those that they refer to, at each check."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.harness import winnow
from tests.matrix import sample

# five of these are 40 MiB in fp16: more than candidates carry inside
SIDE, LAYERS = 2048, 5

# each weight has one number all over, its layer's; what is beside the model has to be that
CHECK = f"""
import json, sys
import numpy as np
import onnx
from onnx import numpy_helper
bare = onnx.load("fixed.onnx", load_external_data=False)
entries = [entry for tensor in bare.graph.initializer for entry in tensor.external_data]
places = {{entry.value for entry in entries if entry.key == "location"}}
model = onnx.load("fixed.onnx")
tensors = {{tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}}
read = {{}}
for node in model.graph.node:
    for name in node.input:
        if node.op_type == "MatMul" and name in tensors and tensors[name].size == {SIDE**2}:
            wanted = int(node.name[-1]) + 1
            assert (tensors[name] == wanted).all(), (node.name, name, tensors[name], places)
            read[node.name] = str(tensors[name].dtype)
with open("seen.txt", "a") as file:
    file.write(json.dumps([sorted(places), read]) + "\\n")
sys.exit(1 if FAILS else 0)
"""


def large(path: Path) -> Path:
    """A chain of layers whose weights lie in ``weights.bin``, the last one first."""
    nodes, weights, x = [], [], "x"
    for number in range(LAYERS):
        nodes += [helper.make_node("MatMul", [x, f"w{number}"], [f"m{number}"], name=f"layer{number}")]
        nodes += [helper.make_node("Tanh", [f"m{number}"], [f"t{number}"], name=f"tanh{number}")]
        x = f"t{number}"
        weight = TensorProto(name=f"w{number}", data_type=1, dims=[SIDE, SIDE], data_location=TensorProto.EXTERNAL)
        offset = (LAYERS - 1 - number) * 4 * SIDE**2
        for key, value in (("location", "weights.bin"), ("offset", str(offset)), ("length", str(4 * SIDE**2))):
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
    with path.with_name("weights.bin").open("wb") as file:
        for number in reversed(range(LAYERS)):
            file.write(np.full(SIDE**2, number + 1, np.float32).tobytes())
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "fails", "culprits", "beside"),
    sample(
        [
            ("reduce", "any(node.name == 'layer3' for node in model.graph.node)", ["layer3"], {"weights.bin"}),
            ("precision", "read.get('layer3') == 'float16'", ["layer3"], {"weights.bin", "weights.fp16.bin"}),
        ],
        2,
    ),
)
def test_large_candidates_are_placed_with_their_weights(
    tmp_path: Path, strategy: str, fails: str, culprits: list[str], beside: set[str]
) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "stand").mkdir()
    model = large(tmp_path / "user" / "model.onnx")
    script = tmp_path / "check.py"
    script.write_text(CHECK.replace("FAILS", fails))
    command = f"checker.command={json.dumps([sys.executable, str(script)])}"
    words = (f"strategy={strategy}", f"model={model}", "checker=command", command, "checker.place=fixed.onnx")
    run = winnow(*words, "checker.flaky=never", folder=tmp_path / "run", cwd=tmp_path / "stand")
    assert run.code == 0, run.output
    assert run.result["culprits"] == culprits
    seen = [json.loads(line) for line in (tmp_path / "stand" / "seen.txt").read_text().splitlines()]
    assert set().union(*(places for places, _ in seen)) == beside
    # nothing is left where the user stands
    assert [path.name for path in (tmp_path / "stand").iterdir()] == ["seen.txt"]
