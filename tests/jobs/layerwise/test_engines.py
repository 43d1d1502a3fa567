"""Tensors of an engine, marked as outputs of the network, on a pretended TensorRT; no GPU has run this."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS, winnow, without_nvml


@pytest.mark.slow
def test_a_wrong_operator_makes_the_first_wrong_tensor(tmp_path: Path) -> None:
    kinds, names = ["Abs", "Softplus", "Abs", "Neg"], ["x", "a", "b", "c", "y"]
    nodes = [helper.make_node(kind, [names[at]], [names[at + 1]], name=f"n{at}") for at, kind in enumerate(kinds)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])] for name in ("x", "y")]
    made = helper.make_model(helper.make_graph(nodes, "g", *ends), opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 9
    onnx.save(made, str(tmp_path / "net.onnx"))
    pretended = install(tmp_path, "rtx")
    pretended.plant("wrong:Softplus")
    gpus = (f"workers.gpus=[{','.join(PRETENDED_GPUS)}]", f"workers.lease_folder={tmp_path / 'locks'}")
    run = winnow(
        *(
            "strategy=layerwise",
            f"model={tmp_path / 'net.onnx'}",
            "target=tensorrt",
            f"target.python={pretended.python}",
        ),
        *gpus,
        folder=tmp_path / "run",
        environment=without_nvml(),
    )
    assert run.code == 0, run.output
    layers = run.result["layers"]
    assert run.result["culprits"] == ["n1"] and layers["first_bad"]["tensor"] == "b"
    assert layers["largest_own"] is None and layers["marking"] == "same" and layers["tensors"] == 4
