"""What subjects say they are: equal where the same trial is the same candidate, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import helper

from runner.engine.verdict_cache import Journals
from runner.jobs.reduce.refinements import Trimming
from runner.jobs.reduce.simplification_levels import Levels, Shrunk, Whole
from runner.jobs.reduce.subgraph import Subgraph
from runner.jobs.repeat import Command
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.reference.recording import Recorded
from runner.schema.root import CutPolicy, OutputPolicy
from strategies.search import Closure, Trial
from tests.model.models import model_of


def subgraph(tmp_path: Path, third: str = "Split") -> Subgraph:
    """``b`` is read inside an answer of its first nodes and outside of it; Split hands out two outputs."""
    made = [("Abs", "x", "a"), ("Relu", "a", "b"), (third, "b", "s t"), ("Neg", "b", "z")]
    nodes = [helper.make_node(op, [reads], gives.split(), name=gives) for op, reads, gives in made]
    nodes[2].attribute.append(helper.make_attribute("axis", 0))
    model = onnx.shape_inference.infer_shapes(model_of(nodes, ["x"], ["s", "t", "z"]))
    graph = Graph.of(model)
    types = {one.name: one.type for one in (*model.graph.value_info, *model.graph.output)}
    return Subgraph(graph, Store(tmp_path / "store"), Recorded(()), types, tmp_path, tmp_path)


def test_whatever_changes_a_candidate_changes_the_identity(tmp_path: Path) -> None:
    base = subgraph(tmp_path)
    others = [
        replace(base, closure=Closure.ANCESTORS),
        replace(base, closure=Closure.DESCENDANTS),
        replace(base, cut_policy=CutPolicy.input),
        replace(base, outputs=OutputPolicy.sinks),
        replace(base, origin="body 0 of an answer"),
        subgraph(tmp_path, "Unique"),
    ]
    said = [tuple(sorted(one.identity().items())) for one in (base, *others)]
    assert len(set(said)) == len(said)
    assert subgraph(tmp_path).identity() == base.identity()


def test_what_is_trimmed_says_what_it_is_trimmed_of(tmp_path: Path) -> None:
    base, answer = subgraph(tmp_path), Trial.of([0, 1, 2])
    frontier, sinks = Trimming(base, answer), Trimming(replace(base, outputs=OutputPolicy.sinks), answer)
    assert (frontier.spare, sinks.spare) == (("b", "t"), ("t",)), "element 1 is another tensor"
    assert frontier.identity() != sinks.identity()
    assert frontier.identity() != Trimming(base, Trial.of([1, 2])).identity()


def test_what_is_shrunk_says_what_of_and_how(tmp_path: Path) -> None:
    base, answer = subgraph(tmp_path), Trial.of([0, 1, 2])
    side: Any = None

    def shrunk(trial: Trial, name: str, tops: tuple[int, ...]) -> Shrunk:
        simpler: Any = SimpleNamespace(name=name, levels=Levels(tops))
        return Shrunk(base, trial, Whole(onnx.ModelProto(), ()), simpler, 0, side, tmp_path)

    made = [
        (answer, "values", (2,)),
        (answer, "values", (2, 2)),
        (answer, "sizes", (2,)),
        (Trial.of([1]), "values", (2,)),
    ]
    said = [tuple(sorted(shrunk(*one).identity().items())) for one in (*made, made[0])]
    assert len(set(said)) == len(made)
    assert shrunk(*made[0]).names(Trial.of([0])) == base.names(answer)


def test_stages_share_a_journal_only_where_they_ask_the_same(tmp_path: Path) -> None:
    settings = SimpleNamespace(strategy=SimpleNamespace(repeats=False), journal=SimpleNamespace(share=False, reuse=[]))
    journals = Journals(settings, tmp_path, tmp_path.joinpath)  # type: ignore[arg-type]
    base = subgraph(tmp_path)
    sinks = replace(base, outputs=OutputPolicy.sinks)
    main = journals.main({"model": "abc"})
    asked = [("sinks", sinks), *[("trim", Trimming(one, Trial.of([0, 1, 2]))) for one in (base, sinks)]]
    paths = {journals.stage(main, name, subject).path for name, subject in asked}
    assert len(paths) == 3
    inner = journals.stage(journals.stage(main, "sinks", sinks), "trim", Trimming(sinks, Trial.of([0, 1, 2])))
    assert inner.path in paths, "by whatever way a stage is come to"


@pytest.mark.parametrize("other", [b"two", None])
def test_a_repeat_is_about_the_content_of_a_file(tmp_path: Path, other: bytes | None) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"one")
    before = Command(path).identity()
    if other:
        path.write_bytes(other)
    assert Command(path if other else None).identity() != before
