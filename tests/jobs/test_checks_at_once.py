"""How many checks run at once: one on each GPU where a check takes a GPU for itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.jobs.job import Job
from runner.schema.backend import BackendSettings, OnnxRuntimeBackend, TensorRtBackend, as_reference
from runner.schema.checker import BuildsChecker, CheckerSettings, CommandChecker, CompareChecker
from runner.schema.root import LeaseMode, Settings, WorkerSettings
from runner.schema.strategy import ReduceSettings
from runner.workers.gpus import Machine
from tests.fake_tensorrt import install
from tests.harness import PRETENDED_GPUS

ON_CUDA = OnnxRuntimeBackend(providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
TENSORRT, ON_CPU = TensorRtBackend(), OnnxRuntimeBackend()
COMMAND = CommandChecker(command=["check", "{model}"])
WORKERS = WorkerSettings(count=6, gpus=list(PRETENDED_GPUS), cpu_slots=3)


@pytest.mark.parametrize(
    ("wanted", "checker", "target", "workers"),
    [
        pytest.param(6, CompareChecker(), ON_CPU, WORKERS, id="no GPU is needed"),
        pytest.param(2, CompareChecker(), ON_CUDA, WORKERS, id="CUDA"),
        pytest.param(2, CompareChecker(), TENSORRT, WORKERS, id="TensorRT"),
        pytest.param(3, BuildsChecker(), TENSORRT, replace(WORKERS, gpus=[]), id="builds on the CPU"),
        pytest.param(6, COMMAND, ON_CUDA, WORKERS, id="the target runs nothing"),
        pytest.param(2, COMMAND, ON_CPU, replace(WORKERS, lease=LeaseMode.gpu), id="a GPU for each command"),
        pytest.param(6, CompareChecker(), ON_CUDA, replace(WORKERS, lease=LeaseMode.none), id="leases switched off"),
        pytest.param(1, CompareChecker(), ON_CUDA, replace(WORKERS, gpus=[]), id="the check says that there is none"),
    ],
)
def test_no_more_checks_at_once_than_leases(
    wanted: int,
    checker: CheckerSettings,
    target: BackendSettings,
    workers: WorkerSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runner.workers.gpu_leases.installed", Machine)  # names of GPUs are taken as they are
    reference = as_reference(OnnxRuntimeBackend)()
    if isinstance(target, TensorRtBackend):
        target = replace(target, python=str(install(tmp_path, "rtx").python))
    settings = Settings(strategy=ReduceSettings(), checker=checker, target=target, reference=reference, workers=workers)
    with Job.opened(settings, tmp_path / "run", ()) as job:
        assert job.means.workers == wanted
