"""Many jobs on two GPUs that do not exist: whatever dies, and however, no two share one, and none stays locked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from runner.schema.root import LeaseMode
from runner.workers.gpu_leases import Leases
from runner.workers.gpus import Gpus
from tests.harness import PRETENDED_GPUS, without_nvml

FATES = ["passes"] * 110 + ["twice"] * 20 + ["crashes"] * 20 + ["hangs"] * 10 + ["raises"] * 10
FATES += ["job killed"] * 18 + ["all killed"] * 12

# what a worker does: it first binds a name that is the GPU's, which the kernel gives to one process at a time and frees
# with it
CHECKS = """
import ctypes, os, signal, socket, time

def claim(model):
    global MINE
    if "MINE" not in globals():
        MINE = socket.socket(socket.AF_UNIX)
        try:
            # the folder by its number: such a name has 107 bytes at most
            MINE.bind(f"\\0{os.stat(os.environ['WINNOW_TEST']).st_ino}{os.environ['CUDA_VISIBLE_DEVICES']}")
        except OSError:
            with open(os.environ["WINNOW_TEST"] + "/conflicts", "a") as file:
                file.write(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    with open(model + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(model + ".part", model)
    time.sleep(0.01)

def passes(model, inputs, expected):
    claim(model)
    return True

def crashes(model, inputs, expected):
    claim(model)
    ctypes.string_at(1)

def raises(model, inputs, expected):
    claim(model)
    raise ValueError("no")

def hangs(model, inputs, expected):
    claim(model)
    time.sleep(600)

def stuck(model, inputs, expected):
    claim(model)
    ctypes.PyDLL(None).sleep(600)
"""

JOB = """
import os, sys
from pathlib import Path
from runner.schema.root import WorkerSettings
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from runner.workers.gpu_leases import Leases
folder, checks, fate, gpus = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
function = {"twice": "passes", "job killed": "stuck", "all killed": "stuck"}.get(fate, fate)
timeout = 0.3 if fate == "hangs" else 120.0
settings = WorkerSettings(gpus=gpus or None, lease_folder=os.environ["WINNOW_TEST"] + "/locks")
with Guardian() as guardian, Pool(folder, guardian, Leases.of(settings, folder)) as pool:
    for _ in range(2 if fate == "twice" else 1):
        arguments = {"file": checks, "function": function, "model": str(folder / "pid"), "samples": []}
        reply = pool.call("user_check", arguments, lease="gpu", timeout=timeout)
raised = (reply.value or {}).get("raised")
print(reply.death or ("raised" if raised else reply.failure.type if reply.failure else "pass"))
"""
ANSWERS = {"passes": "pass", "twice": "pass", "crashes": "death MEMORY", "hangs": "timeout", "raises": "raised"}


def work(folder: Path, number: int, fate: str) -> str:
    """Run one job; kill it, or it and its guardian, while its worker has a GPU. Half are told of the GPUs by CUDA's
    variable."""
    place = folder / str(number)
    place.mkdir()
    env, told = {**without_nvml(), "WINNOW_TEST": str(folder)}, list(PRETENDED_GPUS)
    random.Random(number).shuffle(told)
    if number % 2:
        env["CUDA_VISIBLE_DEVICES"], told = ",".join(told), []
    argv = [sys.executable, "-c", JOB, str(place), str(folder / "checks.py"), fate, *told]
    job = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not fate.endswith("killed"):
        return job.communicate(timeout=240)[0].strip()
    while not (place / "pid").exists():
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.01)
    worker = int((place / "pid").read_text())
    if fate == "all killed":
        for child in psutil.Process(job.pid).children():
            if child.pid != worker:
                child.kill()
    job.kill()
    job.communicate()
    if fate == "all killed":
        time.sleep(0.5)  # the orphan goes on with its GPU, whatever happened to its job
        answer = "orphan" if psutil.pid_exists(worker) else "no orphan"
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        return answer
    return "killed"


@pytest.mark.variants
@pytest.mark.parametrize("count", [20, 200])
def test_jobs_on_two_gpus(tmp_path: Path, count: int) -> None:
    assert len(FATES) == 200
    (tmp_path / "checks.py").write_text(CHECKS)
    fates = FATES[:: 200 // count]
    random.Random(4).shuffle(fates)
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(work, [tmp_path] * count, range(count), fates))

    # each job came to its end
    for fate, answer in zip(fates, answers, strict=True):
        assert answer == ANSWERS.get(fate, {"job killed": "killed", "all killed": "orphan"}.get(fate)), fate
    # no two holders of one GPU at any moment: so says the kernel, which knows nothing of locks
    assert not (tmp_path / "conflicts").exists()
    # no GPU is left locked
    after = Leases(lambda: Gpus(PRETENDED_GPUS), 1, tmp_path / "locks", LeaseMode.auto, tmp_path)
    end = time.monotonic() + 20
    taken = [after.take("gpu"), after.take("gpu")]
    while not all(taken) and time.monotonic() < end:
        time.sleep(0.05)
        taken = [one or after.take("gpu") for one in taken]
    assert all(taken)
