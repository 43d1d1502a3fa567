"""Files and folders that the tests of workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.workers.pool import Pool
from tests.workers.house import ENVIRONMENT, House, leases

CHECKS = '''
import ctypes, os, signal, subprocess, sys, time

def passes(model, inputs, expected):
    return True

def first(model, inputs, expected):
    """The first call of a process passes, the second kills it."""
    global CALLS
    CALLS = globals().get("CALLS", 0) + 1
    if CALLS > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"pid": os.getpid()}

def segv(model, inputs, expected):
    print("about to read address 1", flush=True)
    ctypes.string_at(1)

def kill_by(model, inputs, expected):
    os.kill(os.getpid(), int(model))

def oom_score(model, inputs, expected):
    with open("/proc/self/oom_score_adj") as file:
        return {"outcome": True, "score": int(file.read())}

def killed_once(model, inputs, expected):
    """Kill the process, unless that was done before."""
    if not os.path.exists(model):
        killed(model, inputs, expected)
    return True

def killed(model, inputs, expected):
    with open(model, "a") as file:
        file.write("killed ")
    os.kill(os.getpid(), signal.SIGKILL)

def leaves(model, inputs, expected):
    os._exit(int(model))

def calls_exit(model, inputs, expected):
    sys.exit(3)

def raises(model, inputs, expected):
    print("seen before")
    raise ValueError("not like this: " + model)

def hangs(model, inputs, expected):
    """Hang with a child, a grandchild and a child in another session."""
    pids = [os.getpid()]
    for new in (False, True):
        code = "import subprocess as s, time; print(s.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=new)
        pids += [process.pid, int(process.stdout.readline())]
    with open(model + ".part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(model + ".part", model)
    time.sleep(600)

def eats(model, inputs, expected):
    data = bytearray(int(model) << 20)
    data[::4096] = b"x" * len(data[::4096])
    return {"pid": os.getpid()}

def eats_in_a_child(model, inputs, expected):
    code = "import time; data = b'x' * (300 << 20); time.sleep(600)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0

def chatters(model, inputs, expected):
    os.write(1, b"\\x00\\x00\\x00\\x02{}")
    ctypes.CDLL(None).puts(b"native text")
    print("python text")
    sys.stdout.buffer.write(b"\\xff\\xfe")
    return sys.stdin.read() == ""

def floods(model, inputs, expected):
    line = b"x" * 1023 + b"\\n"
    for _ in range(100 << 10):
        os.write(2, line)
    os.write(2, b"the end\\n")
    raise ValueError("enough")

def forks(model, inputs, expected):
    """Die while a forked child keeps the pipes open."""
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGFPE)

def pid(model, inputs, expected):
    return {"pid": os.getpid(), "path": [entry for entry in sys.path if entry.endswith("workers")]}

def nothing(model, inputs, expected):
    pass
'''


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Pool(tmp_path / "workers") as pool:
        yield pool


@pytest.fixture
def ask(pool: Pool, checks: Path) -> Callable[..., Any]:
    def call(function: str, model: str = "", **limits: Any) -> Any:
        arguments = {"file": str(checks), "function": function, "model": model, "samples": [], "expected": []}
        return pool.call("user_check", arguments, **limits)

    return call


@pytest.fixture
def house(tmp_path: Path, checks: Path) -> Iterator[Callable[..., House]]:
    checks.write_text(checks.read_text() + ENVIRONMENT)
    made: list[House] = []

    def make(*gpus: str, **more: Any) -> House:
        made.append(House(tmp_path, checks, leases(tmp_path, *gpus, **more)))
        return made[-1]

    yield make
    for one in made:
        one.pool.close()
        one.guardian.close()
