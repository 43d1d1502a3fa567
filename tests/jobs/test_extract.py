"""A part of a model that the user names stands alone."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from runner.exit_codes import UsageError
from runner.jobs.extract import between, named
from runner.model.graph.graph_index import Graph
from tests.harness import Run, winnow
from tests.jobs.models import saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """x -> a -> b -> d -> y, and x -> c -> d."""
    text = """g (float[2,3] x) => (float[2,3] y) {
        [a] ta = Exp(x) [b] tb = Neg(ta) [c] tc = Abs(x) [d] td = Add(tb, tc) y = Relu(td) }"""
    return saved(tmp_path / "net.onnx", text)


def extracted(tmp_path: Path, model: Path, *given: str) -> Run:
    return winnow("strategy=extract", f"model={model}", *given, folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("inputs", "outputs", "names"),
    [
        (["ta"], ["td"], {"b", "d"}),
        ([], ["tb"], {"a", "b"}),
        (["tb"], [], {"d", "y"}),
        (["x"], ["tc"], {"c"}),
        (["x"], ["y"], {"a", "b", "c", "d", "y"}),
    ],
)
def test_between_tensors(model: Path, inputs: list[str], outputs: list[str], names: set[str]) -> None:
    graph = Graph.load(model)
    assert {graph.nodes[at].name for at in between(graph, inputs, outputs)} == names


def test_by_name_and_by_pattern(model: Path) -> None:
    graph = Graph.load(model)
    assert {graph.nodes[at].name for at in named(graph, ["[ab]", "y"])} == {"a", "b", "y"}
    with pytest.raises(UsageError, match="no such node at its top level"):
        named(graph, ["z"])
    with pytest.raises(UsageError, match="no such tensor"):
        between(graph, ["nothing"], [])
    with pytest.raises(UsageError, match="no node lies between"):
        between(graph, ["tc"], ["tb"])


def test_the_part_stands_alone_with_recorded_values(tmp_path: Path, model: Path) -> None:
    run = extracted(tmp_path, model, "strategy.nodes=[b,d]")
    assert run.code == 4 and "the part (2 of 5 nodes) alone: pass" in run.output, run.output
    assert "; the model file: pass" in run.output
    part = run.model()
    assert [node.op_type for node in part.graph.node] == ["Neg", "Add"]
    assert {one.name for one in part.graph.input} == {"ta", "tc"} and [one.name for one in part.graph.output] == ["td"]
    assert len([*(run.folder / "test_data_set_0").glob("*.pb")]) == 3
    assert run.result["culprits"] == ["b", "d"] and run.result["nodes"] == {"before": 5, "after": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "left"), [("x", ["turn", "table", "Mul"]), ("x,table", ["Mul"]), ("x,turn", ["table", "Mul"])]
)
def test_a_constant_that_the_user_named_is_where_the_part_begins(tmp_path: Path, ends: str, left: list[str]) -> None:
    text = """g (float[2,3] x) => (float[2,3] y) <float[3] w = {0.1, 0.2, 0.3}> {
        [turn] turn = Neg(w) [table] table = Cos(turn) [Mul] m = Mul(x, table) [y] y = Relu(m) }"""
    run = extracted(tmp_path, saved(tmp_path / "net.onnx", text), f"strategy.inputs=[{ends}]", "strategy.outputs=[m]")
    assert [node.name for node in run.model().graph.node] == left, run.output
    assert run.result["nodes"] == {"before": 4, "after": len(left)}
    assert f"the part ({len(left)} of 4 nodes) alone: " in run.output


def test_the_part_fails_if_it_does_as_the_whole_model(tmp_path: Path, model: Path) -> None:
    """A NaN that the reference makes as well; of another part, which has none, nothing fails."""
    changed = onnx.load(str(model))
    changed.graph.node[1].op_type = "Log"  # of what is below zero
    changed.graph.node[0].op_type = "Neg"
    onnx.save(changed, str(model))
    run = extracted(tmp_path, model, "strategy.nodes=[b]", "inputs.ranges={x: [1, 2]}")
    assert run.code == 0 and "\nextracted: b; the part (1 of 5 nodes) alone: fail" in run.output, run.output
    assert run.result["signature"]["kind"] == "nan"
    given = ("strategy=extract", f"model={model}", "strategy.nodes=[c]", "inputs.ranges={x: [1, 2]}")
    run = winnow(*given, folder=tmp_path / "good")
    assert " alone: pass" in run.output and run.result["signature"] is None, run.output
    assert (run.folder / "REPORT.md").read_text().startswith("# extract: nothing to find\n")
    assert "  next " not in run.output, "nothing fails that could be asked about"


@pytest.mark.slow
def test_a_plan_says_what_would_be_extracted_and_the_replay_extracts_it(tmp_path: Path, model: Path) -> None:
    """Nothing is handed over or checked."""
    run = extracted(tmp_path, model, "strategy.nodes=[b,d]", "plan=true")
    assert run.code == 0 and run.result["status"] == "planned", run.output
    assert "2 nodes of 5 would be extracted" in run.result["message"]
    assert not (run.folder / "reduced.onnx").exists() and not any(run.result["checks"].values()), run.result["checks"]
    again = winnow(str(run.folder / "replay.yaml"), "plan=false", folder=tmp_path / "again")
    assert again.code == 4 and again.result["culprits"] == ["b", "d"], again.output


def test_refusals(tmp_path: Path, model: Path) -> None:
    for given, said in (
        (("strategy.nodes=[a]", "strategy.inputs=[x]"), "either strategy.nodes="),
        (("strategy.nodes=[q]",), "strategy.nodes=q: the model has no such node"),
    ):
        run = extracted(tmp_path, model, *given)
        assert run.code == 2 and said in run.output, run.output
