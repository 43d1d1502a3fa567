"""The end of Winnow's own operations in a crash is no verdict on a model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import disk_space
from runner.disk_space import NoRoom
from runner.exit_codes import UsageError, WinnowError
from runner.model.files.candidate_store import Store
from runner.reference.models import ingest, outputs_of
from runner.schema.backend import OnnxRuntimeBackend, as_reference
from runner.schema.root import Settings, WorkerSettings
from runner.schema.strategy import InspectSettings
from runner.workers import pool
from runner.workers.pool import Pool, operate
from runner.workers.reply import OUT_OF_MEMORY, Failure, Reply

WORKERS = Path(pool.__file__).parent
DONE = Reply({"done": 1}, None, None, 0.0, 0.0)


def died(how: str) -> Reply:
    return Reply(None, None, how, 0.0, 0.0)


class Scripted(Pool):
    """Answers as was written down; everything else is the pool's own."""

    def __init__(self, folder: Path, *replies: Reply) -> None:
        super().__init__(folder)
        self.replies: Iterator[Reply] = iter(replies)
        self.asked: list[dict[str, Any]] = []

    def call(self, op: str, args: Any, **more: Any) -> Reply:
        self.asked.append(more)
        return next(self.replies)


def asked(pool: Pool) -> Reply:
    return operate(pool, Settings(), "ingest", {}, "model=m.onnx: reading it")


def test_a_death_is_tried_once_more_in_a_fresh_worker(tmp_path: Path) -> None:
    pool = Scripted(tmp_path, died("death KILL"), DONE)
    assert asked(pool) is DONE
    assert [one["fresh"] for one in pool.asked] == [False, True]


def test_two_deaths_are_no_mistake_of_the_users(tmp_path: Path) -> None:
    with pytest.raises(WinnowError, match=r"reading it ended with death MEMORY, and so it did in a second") as raised:
        asked(Scripted(tmp_path, died("death KILL"), died("death MEMORY")))
    assert raised.value.exit_code == 1
    with pytest.raises(WinnowError, match=r"workers\.memory_mb=MIB sets another limit") as raised:
        asked(Scripted(tmp_path, died(OUT_OF_MEMORY)))
    assert raised.value.exit_code == 1


def test_a_process_that_ends_while_the_disk_is_full_says_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.onnx"
    model.touch()
    settings = Settings(strategy=InspectSettings())  # whose models are not cut
    for reserve, error in ((1 << 60, NoRoom), (0, WinnowError)):
        monkeypatch.setattr(disk_space, "RESERVE", reserve)
        pool = Scripted(tmp_path, died("exit 1"), died("exit 1"))
        with pytest.raises(WinnowError) as raised:
            ingest("model", model, Store(tmp_path / "run" / "store"), settings, pool)
        assert type(raised.value) is error


@pytest.mark.parametrize("limit", ["timeout", "memory"])
def test_limits_are_the_users(tmp_path: Path, limit: str) -> None:
    with pytest.raises(UsageError, match=r"workers\.timeout=600 workers\.memory_mb=null"):
        asked(Scripted(tmp_path, died(limit)))


def test_what_runs_on_a_gpu_holds_its_lease(tmp_path: Path) -> None:
    failed = Reply(None, Failure("infer", "Fail", "no"), None, 0.0, 0.0)
    for providers, lease in ((["CUDAExecutionProvider"], "gpu"), (["CPUExecutionProvider"], None)):
        pool = Scripted(tmp_path, failed)
        settings = Settings(reference=as_reference(OnnxRuntimeBackend)(providers=providers), workers=WorkerSettings())
        with pytest.raises(UsageError, match="the reference cannot run it: no"):
            outputs_of(settings, pool, tmp_path / "m.onnx", [], tmp_path)
        assert pool.asked[0]["lease"] == lease


def test_a_worker_can_import_all_that_it_is_asked_for() -> None:
    # it has packages of its own making, which hold nothing but their modules
    said = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True, cwd=WORKERS)
    assert said.stdout.splitlines() == []


_IMPORTS = """
import importlib
import worker_main
worker_main._own_packages()
for operation, (place, *_) in worker_main.OPERATIONS.items():
    try:
        importlib.import_module(place.partition(":")[0])
    except ImportError as error:
        if (error.name or "").startswith("runner"):  # what is to be tried may be missing here, as TensorRT
            print(operation, error)
"""
