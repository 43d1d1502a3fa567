"""What a candidate of a long graph costs: counts, not seconds."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnx import TensorProto, helper

from runner.jobs.reduce.subgraph import Subgraph
from runner.model.files.candidate_store import Store
from runner.model.graph.cut import cut, splice
from runner.model.graph.graph_index import Graph
from runner.model.values.recorded import TensorFile
from runner.reference.recording import Recorded
from runner.schema.root import OutputPolicy
from tests.chain_models import chain

LONG = 200
TYPES = {f"t{number}": helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 4]) for number in range(LONG + 1)}


@contextmanager
def calls() -> Iterator[Counter[str]]:
    """Count the functions that are called, by name."""
    called: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, _: called.update([frame.f_code.co_name] if event == "call" else []))
    try:
        yield called
    finally:
        sys.setprofile(None)


def test_the_types_of_recorded_values_are_found_once_a_run(tmp_path: Path) -> None:
    graph = Graph.load(chain(tmp_path / "long.onnx", LONG))
    held = {f"t{number}": TensorFile(f"t{number}", tmp_path / "v", 1, (1, 4)) for number in range(LONG + 1)}
    subject = Subgraph(graph, Store(tmp_path), Recorded((held,)), {}, tmp_path / "none.onnx", tmp_path / "values")
    with calls() as called:
        assert not subject.declared_otherwise
        assert replace(subject, outputs=OutputPolicy.sinks).types_of_all == subject.types_of_all
    assert called["recorded_types"] == 1


def test_what_has_good_values_spliced_in_is_cut_from_the_models_own_index(tmp_path: Path) -> None:
    graph = Graph.load(chain(tmp_path / "long.onnx", LONG))
    with calls() as called:
        made = splice(graph, {5}, alive=True)
        candidate = cut(graph, made.keep, types=TYPES, constants={}, expose="own", front=made.front, shown=made.shown)
    assert len(candidate.model.graph.node) == LONG - 1
    assert not called["of"], "a second index"
    assert not called["copy_of"], "a second model"
