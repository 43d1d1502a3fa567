"""Good outputs of further samples: by a plain run of the original; recorded in pieces where that cannot be made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import onnx.parser
import pytest

from runner.exit_codes import UsageError
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.reference import parent
from runner.schema.backend import OnnxRuntimeBackend
from runner.schema.root import Settings

MODEL = '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Tanh(x) }'


@pytest.mark.parametrize(("partner", "tried"), [("y", True), ("", False)])
def test_what_does_not_run_as_a_whole_is_recorded_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partner: str, tried: bool
) -> None:
    runs: list[str] = []

    def refused(*_: Any) -> None:
        runs.append("plain")
        raise UsageError("the reference cannot run it: it reached a limit (memory)")

    def recorded(*_: Any) -> SimpleNamespace:
        runs.append("pieces")
        return SimpleNamespace(recorded=SimpleNamespace(values=("as recorded",)))

    monkeypatch.setattr(parent, "outputs_of", refused)
    monkeypatch.setattr(parent, "inherit", recorded)
    graph, store = Graph.of(onnx.parser.parse_model(MODEL)), Store(tmp_path / "store")
    above = SimpleNamespace(
        parent=SimpleNamespace(graph=graph, store=store),
        recorded=SimpleNamespace(values=({"y": None},)),
        partners={"y": partner},
    )
    settings = Settings(model="net.onnx", reference=OnnxRuntimeBackend(model="float.onnx"))
    given = settings, graph, store, cast(parent.Inherited, above), (), cast(Any, None), tmp_path / "more"
    assert parent.with_outputs(*given) == ("as recorded",)
    assert runs == ["plain"] * tried + ["pieces"] and not [*tmp_path.rglob("*parent*.onnx")]
