"""A run has processes of its own, and what it needs later is prepared meanwhile."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from runner.jobs.job import Job
from runner.jobs.processes import processes
from runner.jobs.reduce.subgraph import Subgraph
from runner.model.files.candidate_store import Store
from runner.model.graph.graph_index import Graph
from runner.model.values import recorded as values
from runner.reference.recording import Recorded
from runner.report.progress import Checked
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.strategy import ReduceSettings
from runner.verdict import Signature, Verdict
from strategies.search import Outcome, Trial
from tests.chain_models import chain
from tests.workers.house import workers


@pytest.fixture(autouse=True)
def _only_those_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out workers of other tests that run still."""
    others, every = set(workers()), workers
    monkeypatch.setattr(f"{__name__}.workers", lambda: [pid for pid in every() if pid not in others])


def settings_of(model: Path) -> Settings:
    target, reference = OnnxRuntimeBackend(), as_reference(OnnxRuntimeBackend)()
    return Settings(
        strategy=ReduceSettings(),
        checker=CommandChecker(command=["true", "{model}"]),
        target=target,
        reference=reference,
        model=str(model),
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(chain(tmp_path / "model.onnx", 3))


def test_a_job_has_the_processes_of_the_run_that_goes_on(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with processes(settings, folder) as running:
        with Job.opened(settings, folder, ()) as job:
            assert job.pool is running.pool
            assert job.pool.versions()["python"]
        assert len(workers()) == 1
    assert workers() == []
    assert not (folder / "workers").exists()
    with Job.opened(settings, folder, ()) as other:
        assert other.pool is not job.pool


def test_runs_of_several_threads_have_processes_of_their_own(settings: Settings, tmp_path: Path) -> None:
    pools = []

    def other() -> None:
        with processes(settings, tmp_path / "other") as running:
            pools.append(running.pool)

    with processes(settings, tmp_path / "run") as running:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(pools) == 1
    assert pools[0] is not running.pool


def subgraph(folder: Path) -> Subgraph:
    """A graph whose second node reads a value that no data reaches."""
    nodes = [helper.make_node("ConstantOfShape", ["two"], ["held"]), helper.make_node("Add", ["x", "held"], ["y"])]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in "xy"]
    two = helper.make_tensor("two", TensorProto.INT64, [1], [2])
    graph = Graph.of(helper.make_model(helper.make_graph(nodes, "g", *ends, [two]), ir_version=8))
    tensor = helper.make_tensor("", TensorProto.FLOAT, [2], [0.0, 0.0])
    held = {name: values.write(tensor, name, folder / f"{name}.pb") for name in ("x", "held", "y")}
    return Subgraph(graph, Store(folder / "store"), Recorded((held,)), {}, folder / "none.onnx", folder / "values")


@pytest.mark.parametrize(("outcomes", "calls"), [("FP", 1), ("FF", 1), ("PF", 0), ("", 0)])
def test_once_the_first_check_has_failed(tmp_path: Path, outcomes: str, calls: int) -> None:
    called: list[str] = []

    def meanwhile() -> None:
        time.sleep(0.1)  # the end of the judge waits for it
        called.append(threading.current_thread().name)
        raise OSError("whoever needs it finds out")

    settings = settings_of(chain(tmp_path / "model.onnx", 3))
    with Job.opened(settings, tmp_path / "run", ()) as job:
        subject = subgraph(tmp_path)
        with job.judge(subject, None, "nodes", meanwhile=meanwhile) as judge:
            for number, letter in enumerate(outcomes, 1):
                failed = letter == "F"
                signature = Signature("check", "exit 1") if failed else None
                verdict = Verdict(Outcome.FAIL if failed else Outcome.PASS, signature)
                judge.report(Checked(number, "pre-flight", "the whole", verdict, subject.space.whole))
        assert called == ["meanwhile"] * calls


def test_constants_are_read_once_though_a_cut_asks_for_them_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, reading, asked, holds = subgraph(tmp_path), threading.Event(), threading.Event(), Store.hold
    reads: list[str] = []

    def hold(store: Store, tensors: dict[str, TensorProto]) -> dict[str, TensorProto]:
        reads.append(threading.current_thread().name)
        reading.set()
        asked.wait(10)
        return holds(store, tensors)

    monkeypatch.setattr(Store, "hold", hold)
    thread = threading.Thread(target=subject.prepare, name="meanwhile")
    thread.start()
    assert reading.wait(10)
    threading.Timer(0.1, asked.set).start()
    made = subject.cut(Trial.of([1]))
    thread.join()
    assert (made.constants, reads) == (("held",), ["meanwhile"])


def test_values_that_a_worker_would_have_to_make_are_left_to_whoever_asks(tmp_path: Path) -> None:
    subject = subgraph(tmp_path)
    later = replace(subject, recorded=replace(subject.recorded, on_demand=True))
    for one, there in ((later, False), (subject, True)):
        one.prepare()
        assert ("_constants" in vars(one)) is there
