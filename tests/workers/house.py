"""A pool with leases on pretended GPUs, for tests."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from runner.schema.root import LeaseMode
from runner.workers.gpu_leases import Leases
from runner.workers.gpus import Gpus
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool

ONE, TWO = "GPU-one", "GPU-two"
LOCKS = "locks"


def leases(folder: Path, *gpus: str, mode: LeaseMode = LeaseMode.auto, slots: int = 2) -> Leases:
    return Leases(lambda: Gpus(gpus, "there is none here"), slots, folder / LOCKS, mode, folder / "run")


def free(folder: Path, name: str) -> bool:
    """Whether nobody holds the lease, asked as another job would."""
    lease = leases(folder, name).take("gpu")
    if lease:
        lease.close()
    return lease is not None


def soon(what: Callable[[], bool], patience: float = 20.0) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def written(path: Path, job: subprocess.Popen[Any]) -> str:
    """Return what a job has written to a file, as soon as that is anything."""
    while not (path.exists() and path.read_text()):
        assert job.poll() is None
        time.sleep(0.02)
    return path.read_text()


def workers() -> list[int]:
    """The workers that this process has started and that run."""
    children = [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE]
    return [one.pid for one in children if any("worker_main" in word for word in one.cmdline())]


def ended_late(ask: Callable[[float], Any], started: Path) -> Any:
    """Ask with a time-out that lets what is asked first write ``started``, however busy the machine is."""
    for timeout in (0.7, 3.0, 20.0):
        reply = ask(timeout)
        if started.exists():
            return reply
    raise AssertionError(f"{started} was not written within {timeout} s")


class House:
    """A pool with leases, and the functions that workers call."""

    def __init__(self, folder: Path, checks: Path, made: Leases) -> None:
        self.folder, self.checks = folder, checks
        self.guardian = Guardian()
        self.pool = Pool(folder / "workers", self.guardian, made)

    def ask(self, function: str = "pid", model: str = "", lease: Any = "gpu", **limits: Any) -> Any:
        arguments = {"file": str(self.checks), "function": function, "model": model, "samples": [], "expected": []}
        return self.pool.call("user_check", arguments, lease=lease, **limits)

    def pid(self, **more: Any) -> int:
        return self.ask("environment", **more).value["result"]["pid"]

    def gpu(self, **more: Any) -> str:
        return self.ask("environment", **more).value["result"]["detail"]


ENVIRONMENT = '''
def environment(model, inputs, expected):
    return {"outcome": True, "pid": os.getpid(), "detail": os.environ.get("CUDA_VISIBLE_DEVICES")}

def daemon(model, inputs, expected):
    """Leave a process in a session of its own that has all our descriptors."""
    if os.fork() == 0:
        os.setsid()
        with open(model, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    while not os.path.exists(model):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGSEGV)

def child(model, inputs, expected):
    """Start a program with all descriptors that are passed on, and stay."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, close_fds=False)
    with open(model, "w") as file:
        file.write(str(process.pid))

def poisoned(model, inputs, expected):
    """One call that is "bad" spoils the process for all others, as an illegal access of CUDA's does."""
    global POISONED
    with open(model.rpartition("/")[0] + "/calls", "a") as file:
        file.write(os.path.basename(model) + " ")
    POISONED = globals().get("POISONED") or model.endswith("bad")
    if POISONED:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return {"pid": os.getpid()}
'''


Make = Callable[..., House]
