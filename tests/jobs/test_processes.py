"""The processes of a run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from runner.jobs.job import Job
from runner.jobs.processes import processes
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.strategy import ReduceSettings
from tests.chain_models import chain
from tests.workers.house import workers


@pytest.fixture(autouse=True)
def _only_those_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out workers of other tests that run still."""
    others, every = set(workers()), workers
    monkeypatch.setattr(f"{__name__}.workers", lambda: [pid for pid in every() if pid not in others])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    check, model = CommandChecker(command=["true", "{model}"]), str(chain(tmp_path / "model.onnx", 3))
    target, reference = OnnxRuntimeBackend(), as_reference(OnnxRuntimeBackend)()
    return Settings(strategy=ReduceSettings(), checker=check, target=target, reference=reference, model=model)


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
