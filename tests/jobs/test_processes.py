"""The first worker starts before the rest of a job is imported."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from runner.jobs.job import Job
from runner.jobs.processes import processes, started
from runner.judgment import UsageError
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.checker import CommandChecker
from runner.schema.root import Settings
from runner.schema.strategy import ReduceSettings, RepeatSettings
from tests.chain_models import chain
from tests.workers.house import soon, workers
from tests.workers.test_pool import gone


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


def test_the_job_is_opened_with_the_worker_that_was_started_before(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(settings, folder):
        assert soon(lambda: len(workers()) == 1)
        before = workers()
        with Job.opened(settings, folder, ()) as job:
            assert job.pool.versions()["python"]
            assert workers() == before
            with processes(settings, folder) as running:
                assert running.pool is job.pool
    assert workers() == []
    assert not (folder / "workers").exists()
    with Job.opened(settings, folder, ()) as other:
        assert other.pool is not job.pool
        assert workers() == []


def test_none_is_started_where_no_model_will_be_read(settings: Settings, tmp_path: Path) -> None:
    for idle in (replace(settings, strategy=RepeatSettings()), settings_of(tmp_path / "missing.onnx")):
        with started(idle, tmp_path / "run"):
            assert workers() == []


def test_what_ends_a_run_early_ends_the_worker(settings: Settings, tmp_path: Path) -> None:
    pids = []

    def fails() -> None:
        with started(settings, tmp_path / "run"):
            assert soon(lambda: len(workers()) == 1)
            pids.extend(workers())
            raise UsageError("no")

    with pytest.raises(UsageError):
        fails()
    assert pids
    assert all(gone(pid) for pid in pids)
    assert not (tmp_path / "run" / "workers").exists()


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


DIES = """
import os, pathlib, signal, sys
import psutil
from runner.workers.pool import Pool
pool = Pool(pathlib.Path(sys.argv[1]))
pool.start_ahead({"op": "ingest", "args": {}})
print(psutil.Process().children()[-1].pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_dies_with_a_job_that_is_killed_before_its_first_call(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, text=True, check=False)
    assert gone(int(done.stdout)), done.stderr
