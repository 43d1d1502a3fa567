"""Models and tensors that the tests of backends share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runner.schema.installed_choices import SCHEMAS
from runner.workers.pool import Pool
from runner.workers.reply import Reply

BACKENDS = ["onnxruntime", "onnx_reference"]


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    with Pool(tmp_path_factory.mktemp("workers")) as pool:
        yield pool


class Lab:
    """Writes models and tensors into one folder and runs them."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder, self.pool = folder, pool

    def model(
        self, nodes: list[Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any], opset: int = 17, **more: Any
    ) -> Path:
        """``inputs`` and ``outputs``: name -> (element type, shape), a TypeProto, or None for no type at all."""
        graph = helper.make_graph(nodes, "g", *([value(*item) for item in part.items()] for part in (inputs, outputs)))
        graph.initializer.extend(more.get("initializer", []))
        opsets = [helper.make_opsetid("", opset)] + [
            helper.make_opsetid(domain, 1) for domain in more.get("domains", [])
        ]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=more.get("ir_version", 8))
        path = self.folder / f"model{len(list(self.folder.glob('*.onnx')))}.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def tensor(self, content: Any) -> str:
        proto = content if isinstance(content, TensorProto) else numpy_helper.from_array(np.asarray(content))
        path = self.folder / f"tensor{len(list(self.folder.glob('*.pb')))}.pb"
        path.write_bytes(proto.SerializeToString())
        return str(path)

    def run(self, backend: str | dict[str, Any], model: Path, *samples: Mapping[str, Any], **more: Any) -> Reply:
        arguments = {
            "backend": whole(backend) if isinstance(backend, str) else whole(**backend),
            "model": str(model),
            "samples": [{name: self.tensor(content) for name, content in sample.items()} for sample in samples],
            "out": str(self.folder / "out"),
            **more,
        }
        return self.pool.call("run", arguments)


def whole(name: str, **settings: Any) -> dict[str, Any]:
    """The settings of a backend as workers take them."""
    return {"name": name, "implementation": SCHEMAS["target"][name].implementation, **settings}  # type: ignore[attr-defined]


def value(name: str, kind: Any) -> onnx.ValueInfoProto:
    if kind is None:
        return onnx.ValueInfoProto(name=name)
    if isinstance(kind, onnx.TypeProto):
        return helper.make_value_info(name, kind)
    return helper.make_tensor_value_info(name, *kind)


def load(entry: Mapping[str, Any]) -> TensorProto:
    return TensorProto.FromString(Path(entry["path"]).read_bytes())


@pytest.fixture
def lab(tmp_path: Path, pool: Pool) -> Lab:
    return Lab(tmp_path, pool)
