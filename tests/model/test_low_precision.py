"""Which precision a file has: floats of 16 bits wherever they are, and quantized nodes of every narrow type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from runner.jobs.triage.transcript import situation_of
from runner.model.graph.low_precision import apart, has_low_floats, quantized_nodes, refused_by_tensorrt
from runner.model.graph.scopes import NameSupply
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.checker import AutoChecker
from runner.schema.inputs import RandomInputs
from runner.schema.root import Settings
from runner.schema.strategy import TriageSettings
from tests.model.models import model_of

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def model(text: str = "[add] y = Add (x, w)", stored: int = FLOAT, fed: int = FLOAT) -> ModelProto:
    weight = helper.make_tensor("w", stored, [2], [1.0, 2.0])
    inputs, outputs = ([helper.make_tensor_value_info(name, kind, [2])] for name, kind in (("x", fed), ("y", FLOAT)))
    return model_of(text, inputs, outputs, [weight])


CAST = "inner = Cast <to = 10> (x)"
INSIDE = f"() => (inner) {{ {CAST} }}"


@pytest.mark.parametrize(
    ("made", "low"),
    [
        (model(), False),
        (model(stored=HALF), True),
        (model(fed=TensorProto.BFLOAT16), True),
        (model(f"y = Add (x, w)  {CAST}"), True),
        (model(f"y = If (c) <then_branch = t {INSIDE}, else_branch = e {INSIDE}>"), True),
        (model("y = DequantizeLinear <output_dtype = 10> (x, w)"), True),
    ],
)
def test_floats_of_16_bits_are_seen_wherever_they_are(made: ModelProto, low: bool) -> None:
    assert has_low_floats(made) is low


@pytest.mark.parametrize("kind", ["INT8", "UINT16", "INT4", "FLOAT8E4M3FN", "FLOAT"])
def test_a_triage_knows_quantized_weights_of_every_type(tmp_path: Path, kind: str) -> None:
    onnx.save(model(), tmp_path / "float.onnx")
    onnx.save(model(stored=TensorProto.DataType.Value(kind)), tmp_path / "net.onnx")
    quantized = kind != "FLOAT"
    assert [node.name for node in quantized_nodes(onnx.load(tmp_path / "net.onnx"))] == ["add"] * quantized
    settings = Settings(
        model=str(tmp_path / "net.onnx"),
        strategy=TriageSettings(),
        checker=AutoChecker(),
        target=OnnxRuntimeBackend(),
        reference=OnnxRuntimeBackend(model=str(tmp_path / "float.onnx")),
        inputs=RandomInputs(samples=2),
    )
    assert situation_of(settings).low == ("quantized" if quantized else "")
    alone = situation_of(Settings(**{**vars(settings), "reference": OnnxRuntimeBackend()}))
    assert (alone.low, alone.quantized_alone) == ("", quantized)
    assert alone.others == "2 other random inputs (inputs.seed=2)"


@pytest.mark.parametrize(
    ("nodes", "zero", "refused"),
    [
        ("q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)", np.int8(0), []),
        ("q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)", np.int8(3), ["zero points other than 0"]),
        ("q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z)", np.uint8(0), ["uint8"]),
        ("b = DequantizeLinear (z, s)  y = Add (x, b)", np.int32(3), ["int32 in Q/DQ nodes"]),
        ("q, r, t = DynamicQuantizeLinear (x)  y = DequantizeLinear (q, r, t)", np.int8(0), ["DynamicQuantizeLinear"]),
        ("[n] y = com.microsoft.FusedMatMul (x, x)", np.int8(0), ["FusedMatMul"]),
        ("[n] y = com.microsoft.Gelu (x)", np.int8(0), []),
    ],
)
def test_what_tensorrt_does_not_parse(nodes: str, zero: np.generic, refused: list[str]) -> None:
    held = [numpy_helper.from_array(np.asarray(one), name) for name, one in (("s", np.float32(0.5)), ("z", zero))]
    assert refused_by_tensorrt(model_of(nodes, ["x"], ["y"], held, domains=("com.microsoft",))) == refused


@pytest.mark.parametrize(
    ("reader", "read"), [("Sub", "m"), ("Add", "m_apart")], ids=["none of its own", "its product's"]
)
def test_a_raised_bias_reads_the_integers_before_its_product(reader: str, read: str) -> None:
    """Where ONNX Runtime makes one Gemm of both, the product is computed once more for the raised node."""
    graph = onnx.parser.parse_graph(f"""g (int8[2,2] q, float[2,2] w, float[2] b) => (float[2,2] y)
        <float scale = {{0.5}}, int8 zero = {{0}}> {{
            d = DequantizeLinear (q, scale, zero)  r = Transpose (d)  m = MatMul (r, w)  y = {reader} (m, b) }}""")
    # an integer that a node makes
    graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]))
    given = onnx.GraphProto.FromString(graph.SerializeToString())
    del given.node[-1]  # the raised one is new
    made = apart(graph.node, given, NameSupply({"q", "w", "b", "d", "r", "m", "y"}))
    assert made[-1].input[0] == read
    copied = [node.op_type for node in made[4:-1]]
    assert copied == (["Cast", "Cast", "Sub", "Mul", "Transpose", "MatMul"] if reader == "Add" else [])
