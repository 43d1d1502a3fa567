"""Levels of small models, recorded by ONNX Runtime in workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from runner.model.files.candidate_store import Store
from runner.model.graph.cut import whole
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as values
from runner.reference.body_values import Level, RecorderOf, level_of
from runner.reference.recording import Recorder
from runner.schema.backend import OnnxReferenceBackend, OnnxRuntimeBackend, Optimization
from runner.verdict import Sample
from runner.workers.pool import Pool
from tests.model.nested import graph_of

ORT = OnnxRuntimeBackend(optimization=Optimization.none).to_json()
REFERENCE = OnnxReferenceBackend().to_json()


def recorders(pool: Pool, store: Store, backend: Mapping[str, object] = ORT) -> RecorderOf:
    pytest.importorskip("onnxruntime")

    def make(graph: Graph, folder: Path) -> Recorder:
        return Recorder(graph, store, pool, backend, graph.value_types, folder, timeout=60)

    return make


def level(model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]], make: RecorderOf, folder: Path) -> Level:
    """A model as a level of its own, every tensor recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = [
        {name: values.write(value, name, folder / f"{at}_{name}.pb") for name, value in sample.items()}
        for at, sample in enumerate(feeds)
    ]
    made = whole(graph_of(model))
    return level_of(made, [Sample(one) for one in samples], samples, Store(folder), {}, (make, folder / "recorded"))


def arrays(found: Mapping[str, values.TensorFile]) -> dict[str, np.ndarray]:
    return {name: values.read(one) for name, one in found.items()}
