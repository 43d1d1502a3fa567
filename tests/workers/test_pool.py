from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from onnx import TensorProto, helper

from runner.schema.backend import OnnxRuntimeBackend, Optimization
from runner.workers.guardian import Guardian
from runner.workers.pool import Pool
from runner.workers.reply import WorkerKilledError, WorkerStartError
from tests.checkers.models import model
from tests.workers.house import ended_late, workers

Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def _only_those_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out workers of other tests that run still."""
    others, every = set(workers()), workers
    monkeypatch.setattr(f"{__name__}.workers", lambda: [pid for pid in every() if pid not in others])


def gone(pid: int, patience: float = 10.0) -> bool:
    """Whether a process ends soon (a zombie has ended)."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_answer(ask: Ask) -> None:
    reply = ask("passes")
    assert reply.value == {"result": True} and reply.failure is None and reply.death is None and reply.log is None
    assert reply.seconds > 0 and reply.peak_rss_mb > 1


def test_an_idle_worker_is_not_waited_for(pool: Pool, ask: Ask) -> None:
    assert ask("passes").value == {"result": True}
    (started,) = workers()
    os.kill(started, signal.SIGSTOP)  # it would not end by itself
    pool.close()
    assert gone(started, 1.0)


def test_segfault_is_an_answer_with_its_log(ask: Ask) -> None:
    reply = ask("segv")
    assert reply.death == "death MEMORY" and reply.value is None and reply.failure is None
    text = reply.log.read_text()
    assert "about to read address 1" in text and "in segv" in text  # what was printed, and where Python was


def test_deaths(ask: Ask) -> None:
    told = ((signal.SIGABRT, "MEMORY"), (signal.SIGBUS, "MEMORY"), (signal.SIGFPE, "FPE"), (signal.SIGTERM, "TERM"))
    for number, death in told:
        assert ask("kill_by", str(int(number))).death == f"death {death}"
    assert ask("leaves", "0").death == "exit 0"


def test_exceptions_leave_the_worker_alive(ask: Ask) -> None:
    first = ask("pid").value["result"]["pid"]
    reply = ask("raises", "m.onnx", keep_log=True)
    assert reply.failure is None and reply.value["raised"].endswith("ValueError: not like this: m.onnx\n")
    assert "seen before" in reply.log.read_text() and "Traceback" in reply.log.read_text()
    assert ask("calls_exit").value["raised"].endswith("SystemExit: 3\n")
    assert ask("nothing").value == {"result": None}
    assert ask("no such function").failure.stage == "setup"
    assert ask("pid").value["result"] == {"pid": first, "path": []}


def test_timeout_leaves_nothing_behind(ask: Ask, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    reply = ended_late(lambda seconds: ask("hangs", str(pids), timeout=seconds), pids)
    assert reply.death == "timeout" and reply.seconds >= 0.7
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 5 and all(gone(pid) for pid in started)


def test_memory(ask: Ask) -> None:
    assert ask("eats", "20", memory_mb=400).value is not None
    reply = ask("eats", "500", memory_mb=400)
    assert reply.death == "memory" and reply.peak_rss_mb > 400


def test_memory_of_a_call_that_is_over_before_anybody_looked(ask: Ask) -> None:
    assert ask("eats", "60", memory_mb=50).death == "memory"


def test_peak_is_of_the_call(ask: Ask, pool: Pool) -> None:
    large, small = ask("eats", "300"), ask("passes")
    assert large.peak_rss_mb > 300 and pool.peak_rss_mb == large.peak_rss_mb
    if os.access("/proc/self/clear_refs", os.W_OK):
        assert small.peak_rss_mb < 200


def test_output_never_corrupts_an_answer(ask: Ask) -> None:
    reply = ask("chatters", keep_log=True)
    assert reply.value == {"result": True}  # and its standard input is empty
    text = reply.log.read_bytes()
    assert b"native text" in text and b"python text" in text and b"\xff\xfe" in text and b"{}" in text


def test_output_is_bounded(ask: Ask) -> None:
    text = ask("floods", keep_log=True).log.read_bytes()
    assert len(text) < 5 << 20 and text.startswith(b"xxx") and b"bytes left out" in text and b"the end" in text


def test_death_while_a_forked_child_holds_the_pipes(ask: Ask) -> None:
    assert ask("forks", timeout=60).death == "death FPE"


def test_death_of_a_warm_worker_is_confirmed_in_a_fresh_one(ask: Ask) -> None:
    first = ask("first").value["result"]["pid"]
    second = ask("first")
    assert second.death is None and second.value["result"]["pid"] != first


def test_a_kill_is_made_sure_of(ask: Ask, tmp_path: Path) -> None:
    """The kernel may have meant a neighbor; that of a fresh worker as well, and whatever was asked for."""
    for number, more in enumerate(({}, {"fresh": True}, {"confirm": False, "fresh": True})):
        assert ask("killed_once", str(tmp_path / f"calls{number}"), **more).value == {"result": True}
    calls = tmp_path / "calls"
    calls.write_text("no marker")
    assert ask("killed", str(calls), fresh=True).death == "death KILL"
    assert calls.read_text().count("killed") == 2


def test_a_worker_that_is_killed_at_its_start(ask: Ask, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif mkdir "{tmp_path}/once" 2>/dev/null; then kill -9 $$; fi\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    assert ask("passes", python=str(python)).value == {"result": True}
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(WorkerKilledError, match="was killed") as raised:
        ask("passes", python=str(python), fresh=True)
    assert raised.value.exit_code == 1


def test_a_kill_of_our_own_is_not(tmp_path: Path, checks: Path) -> None:
    with Guardian() as guardian, Pool(tmp_path / "workers", guardian) as pool:
        marker = tmp_path / "pids"
        arguments = {"file": str(checks), "function": "hangs", "model": str(marker), "samples": []}
        with ThreadPoolExecutor(1) as thread:
            reply = thread.submit(pool.call, "user_check", arguments)
            while not marker.exists():
                time.sleep(0.02)
            marker.unlink()
            guardian.kill()
            assert reply.result(20).death == "death KILL"
        assert not marker.exists()


def test_fresh(ask: Ask) -> None:
    pids = {ask("pid", fresh=True).value["result"]["pid"] for _ in range(3)}
    assert len(pids) == 3
    # spares do not pile up: one warm worker is left
    living = [child for child in psutil.Process().children() if child.pid in pids]
    assert len(living) == 1


def test_a_worker_that_died_idle_is_replaced(ask: Ask) -> None:
    first = ask("pid").value["result"]["pid"]
    os.kill(first, signal.SIGKILL)
    reply = ask("pid")
    assert reply.value is not None and reply.value["result"]["pid"] != first


@pytest.mark.slow
def test_no_descriptors_and_no_zombies_are_left(ask: Ask, pool: Pool) -> None:
    ask("passes")
    before = psutil.Process().num_fds()
    for count in range(300):
        ask("segv" if count % 50 == 0 else "passes")
    assert psutil.Process().num_fds() == before
    children = psutil.Process().children()
    assert not [child for child in children if child.status() == psutil.STATUS_ZOMBIE]


def test_close_ends_calls_in_flight(tmp_path: Path, checks: Path) -> None:
    pool = Pool(tmp_path / "workers")
    marker = tmp_path / "pids"
    arguments = {"file": str(checks), "function": "hangs", "model": str(marker), "samples": []}
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.append(pool.call("user_check", arguments)))
    thread.start()
    while not marker.exists():
        time.sleep(0.02)
    pool.close()
    thread.join(20)
    assert replies[0].death == "death KILL"
    assert all(gone(int(pid)) for pid in marker.read_text().split())
    with pytest.raises(RuntimeError, match="closed"):
        pool.call("versions", {})


def test_unknown_operation(pool: Pool) -> None:
    reply = pool.call("os:system", {})
    assert reply.failure is not None and reply.failure.stage == "setup"
    assert "one of" in reply.failure.message and "run" in reply.failure.message


def test_versions(pool: Pool) -> None:
    versions = pool.versions(None)
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"onnx", "onnxruntime", "numpy"} <= set(versions)
    assert pool.versions(sys.executable) == versions


@pytest.mark.parametrize(
    ("python", "words"),
    [("/no/such/python", "no interpreter"), ("/bin/sh", "ended at its start")],
)
def test_interpreters_that_do_not_start(pool: Pool, python: str, words: str) -> None:
    with pytest.raises(WorkerStartError, match=words):
        pool.call("versions", {}, python=python)


def test_a_runtime_writes_nothing_down_about_its_user(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime keeps events about the machine and the model in a file, and sends them when it can."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    path, feed = tmp_path / "relu.onnx", tmp_path / "x.pb"
    model([helper.make_node("Relu", ["x"], ["y"])], path, shape=(0,))
    feed.write_bytes(helper.make_tensor("x", TensorProto.FLOAT, [0], []).SerializeToString())
    backend = OnnxRuntimeBackend(optimization=Optimization.none).to_json()
    samples = [{"x": str(feed)}]
    reply = pool.call(
        "run", {"backend": backend, "model": str(path), "samples": samples, "out": str(tmp_path / "out")}, fresh=True
    )
    assert reply.value is not None, reply
    pool.close()
    assert not list(home.rglob("*"))


def test_an_import_that_ends_the_process_counts_against_no_model(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "onnxruntime.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    reply = pool.call("run", {"backend": OnnxRuntimeBackend().to_json(), "model": "m.onnx", "samples": [], "out": "o"})
    assert reply.death is None and reply.failure is not None
    assert reply.failure.stage == "setup"
    assert reply.failure.message.startswith("importing what runs it ended with death MEMORY; what it printed lies in ")
    assert pool.call("user_check", {"file": "none.py", "function": "f"}).failure is not None
